"""Writes the agreed texts of the contract tests: `python -m tests.contract.write`.

Run it only when an issue names the change, and commit the difference with that change. It needs a machine on which boxes work.
`data/config.toml`, `data/disk/home` and `data/disk/project` are input and are never written.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.contract import golden
from tests.contract.place import DATA
from tests.contract.program import Program


def main() -> None:
    for folder in ("help", "disk/expected"):
        shutil.rmtree(DATA / folder, ignore_errors=True)
        (DATA / folder).mkdir()
    with Program() as program, tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        texts = golden.read_help_texts(program, root / "help") | golden.read_disk_texts(program, root / "disk")
        texts["api.txt"] = golden.read_api_text()
        texts["config_keys.txt"] = golden.read_config_text(program, root / "config")
        texts["entry_points.txt"] = golden.read_entry_text(program, root / "entry")
        texts["json_keys.toml"] = golden.format_toml(golden.read_json_keys(program, root / "json"))
        texts["exit_statuses.toml"] = golden.format_toml(golden.read_status_table(program, root / "statuses"))
    for name, text in texts.items():
        (DATA / name).write_text(text)
    print(f"{len(texts)} files in {DATA}")


if __name__ == "__main__":
    main()
