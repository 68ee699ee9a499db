"""Where Serai keeps its things."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai import home
from serai.errors import BadSettings


def test_serai_home_holds_everything() -> None:
    environ = {"SERAI_HOME": "/somewhere/../else"}
    assert home.config_folder(environ) == home.state_folder(environ) == "/else"


def test_without_it_the_platforms_folders_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert (home.config_folder({}), home.state_folder({})) == ("/c/serai", "/s/serai")


def test_no_settings_are_no_error(tmp_path: Path) -> None:
    assert home.settings({"SERAI_HOME": str(tmp_path)}) == {}


@pytest.mark.parametrize("content", [b"a = ", b"\xff"])
def test_settings_that_cannot_be_read_name_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(BadSettings) as raised:
        home.settings({"SERAI_HOME": str(tmp_path)})
    assert raised.value.who == str(tmp_path / "config.toml")
