"""What the documents say is run, compared with the code, or at least there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from serai.limits import Limits
from serai.testing import faults
from tests.support.doc_pages import format_amount

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def format_limits_table() -> str:
    rows = [f"| `{name}` | {format_amount(default, unit)} | {why} |" for name, default, unit, why in Limits.explain()]
    return "\n".join(["| Limit | Default | Why |", "|---|---|---|", *rows])


def format_faults_table() -> str:
    rows = [
        f"| `{name}` | {does} | {', '.join(f'`{key}={value!r}`' for key, value in options.items()) or '-'} |"
        for name, (does, options) in faults.FAULTS.items()
    ]
    return "\n".join(["| Fault | What it does | Options |", "|---|---|---|", *rows])


@pytest.mark.parametrize(("name", "table"), [("limits", format_limits_table()), ("faults", format_faults_table())])
def test_generated_tables_are_current(name: str, table: str) -> None:
    """`python -m tests.docs.test_all_pages` writes them anew."""
    assert f"-->\n{table}\n<!-- {name}: end -->" in (ROOT / "docs" / "wire.md").read_text()


# Every program in the documents, with what it prints.
PRINTED = {
    "docs/host.md": ["['weather']\nBern: 16 degrees, fog\nBLOCKED - weather: rm -rf is not run here; delete files by name\n"],
    "docs/parity/002-agentboot.md": [
        "Let me look.\nmay it? Bash {'command': 'ls'}\nNothing.\nNothing is here. None\n",
    ],
    "README.md": ["b'{\"ok\":true}'\n"],
    "docs/record.md": [
        """\
open None   \nframe sent tool/execute 1 {"jsonrpc":"2.0","id":1,"method":"tool/execute","params":{"key":"*************"}}
frame received result 1 {"jsonrpc":"2.0","id":1,"result":"done"}
end None   \nAnswer b'"done"'
""",
    ],
    "docs/wire.md": [
        """\
exit status 3
why
my guest: there is no program no-such-program on the PATH
install no-such-program, or give its path
""",
        """\
{"ok":true}
{"ok":true}
exit status 3 - fatal: the habit got the better of me
""",
    ],
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_programs_in_the_documents_run_as_they_stand(document: Path) -> None:
    programs = re.findall(r"```python\n(import .*?)```", document.read_text(), re.DOTALL)
    printed = []
    for program in programs:
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        printed.append(ran.stdout)
    assert printed == PRINTED.get(str(document.relative_to(ROOT)), [])


@pytest.mark.req("zot.edge.50")
def test_the_documents_say_what_a_guest_inherits() -> None:
    text = " ".join((ROOT / "docs" / "host.md").read_text().split())
    assert "**What a guest inherits.** Your environment, except variables that look like credentials" in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_readme_names_commands_that_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for document in DOCUMENTS:
        for command in re.findall(r"^make ([a-z]+)", document.read_text(), re.MULTILINE):
            assert command in targets, f"{document.name}: make {command}"


def write_tables() -> None:
    path = ROOT / "docs" / "wire.md"
    text = path.read_text()
    for name, table in (("limits", format_limits_table()), ("faults", format_faults_table())):
        before, rest = text.split(f"<!-- {name}: begin", 1)
        comment, rest = rest.split("-->\n", 1)
        _, after = rest.split(f"<!-- {name}: end", 1)
        text = f"{before}<!-- {name}: begin{comment}-->\n{table}\n<!-- {name}: end{after}"
    path.write_text(text)


if __name__ == "__main__":
    write_tables()
