"""A guest is switched on and off in a person's settings, which stay as they were written."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.app.settings_writer import set_guest_enabled
from serai.errors import BadSettings, NotWritten

ID = "piglet:one"


def switch_guest(tmp_path: Path, text: str, *, enabled: bool = False) -> str:
    file = tmp_path / "config.toml"
    file.write_text(text)
    set_guest_enabled(str(file), ID, enabled=enabled)
    after = file.read_text()
    said, before = tomllib.loads(after), tomllib.loads(text)
    entry = said["guest"].pop(ID)
    assert entry.pop("enabled") is enabled
    old = before.get("guest", {}).pop(ID, {})
    old.pop("enabled", None)
    before.setdefault("guest", {})
    assert (said, entry) == (before, old)
    return after


@pytest.mark.req("host.cli.switch-settings")
@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", '[guest."piglet:one"]\nenabled = false\n'),
        ("# mine\n", '# mine\n\n[guest."piglet:one"]\nenabled = false\n'),
        ("record = false", 'record = false\n\n[guest."piglet:one"]\nenabled = false\n'),
        ('[guest."piglet:one"]\nenabled = true # yes\n', '[guest."piglet:one"]\nenabled = false # yes\n'),
        ("[guest.'piglet:one']\nguard = true\n", "[guest.'piglet:one']\nenabled = false\nguard = true\n"),
        ('[ guest . "piglet:one" ] # it\nenv = []', '[ guest . "piglet:one" ] # it\nenabled = false\nenv = []'),
        ('[guest."piglet:one"]', '[guest."piglet:one"]\nenabled = false\n'),
        (
            '[guest.two]\nenabled = true\n[guest."piglet:one"]\nenabled = true\n',
            '[guest.two]\nenabled = true\n[guest."piglet:one"]\nenabled = false\n',
        ),
        (
            'text = """\n[guest."piglet:one"]\nenabled = true\n"""\n[guest."piglet:one"]\nwatch = false\n',
            'text = """\n[guest."piglet:one"]\nenabled = true\n"""\n[guest."piglet:one"]\nenabled = false\nwatch = false\n',
        ),
    ],
)  # fmt: skip
def test_only_the_switch_changes(tmp_path: Path, text: str, after: str) -> None:
    assert switch_guest(tmp_path, text) == after


def test_it_is_switched_back_where_it_stands(tmp_path: Path) -> None:
    text = switch_guest(tmp_path, "# mine\n")
    assert switch_guest(tmp_path, text, enabled=True) == text.replace("false", "true")
    assert switch_guest(tmp_path, text) == text


@pytest.mark.parametrize("text", ['guest = { "piglet:one" = { guard = true } }\n', "guest = {}\n"])
def test_what_cannot_be_changed_without_more_is_left_and_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(NotWritten) as raised:
        set_guest_enabled(str(file), ID, enabled=False)
    assert raised.value.hint == 'write `enabled = false` under `[guest."piglet:one"]` yourself'
    assert (file.read_text(), os.listdir(tmp_path)) == (text, ["config.toml"])


@pytest.mark.parametrize("text", ["guest = 7\n", "[guest]\n'piglet:one' = 7\n", "= no\n", "guest = [1]\n"])
def test_settings_that_are_none_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(BadSettings):
        set_guest_enabled(str(tmp_path / "config.toml"), ID, enabled=False)
    assert (tmp_path / "config.toml").read_text() == text


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_any_id_can_be_switched(tmp_path_factory: pytest.TempPathFactory, id: str) -> None:
    file = tmp_path_factory.mktemp("home") / "config.toml"
    set_guest_enabled(str(file), id, enabled=False)
    assert tomllib.loads(file.read_text()) == {"guest": {id: {"enabled": False}}}
    assert os.stat(file).st_mode & 0o777 == 0o600
