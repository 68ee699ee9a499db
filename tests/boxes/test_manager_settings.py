"""`[boxes]` of the settings, and paths that mean the same wherever somebody is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from serai.boxes import Boxes, Hook
from serai.boxes.manager import read_settings
from serai.errors import BadSettings
from serai.limits import Limits
from tests.support.boxes.harness import Harness


def read_box_settings(**boxes: Any) -> dict[str, Any]:
    return read_settings({"boxes": boxes}, who="/etc/serai/config.toml")


@pytest.mark.req("hooks.settings.paths")
def test_paths_begin_where_the_settings_are_and_names_are_looked_up_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    table = {"path": "../other/hook", "name": "other", "env": {"A": "b"}, "env_clear": True}
    hooks = ["./mint", "~/hooks/own", "/usr/bin/hook", "plain", table]
    found = read_box_settings(hooks=hooks, key_file="key", max_boxes=3, backend="process")
    assert found["hooks"] == (
        Hook("/etc/serai/mint"),
        Hook("/home/you/hooks/own"),
        Hook("/usr/bin/hook"),
        Hook("plain"),
        Hook("/etc/other/hook", "other", {"A": "b"}, env_clear=True),
    )
    assert (found["key_file"], found["most"], found["backend"]) == ("/etc/serai/key", 3, "process")
    assert read_box_settings(key_file="~/key")["key_file"] == "/home/you/key"


def test_without_settings_there_are_the_usual_ones() -> None:
    assert read_settings({}) == {"backend": "namespaces", "hooks": (), "most": 0, "key_file": None, "limits": Limits()}
    assert read_settings({"limits": {"hook_timeout": 5}})["limits"] == Limits().but(hook_timeout=5)


@pytest.mark.parametrize(
    "config",
    [
        {"boxes": {"hoks": []}},
        {"boxes": {"hooks": [{"name": "x"}]}},
        {"boxes": {"hooks": [{"path": "x", "evn": {}}]}},
        {"boxes": {"max_boxes": "many"}},
        {"boxes": {"max_boxes": -1}},
        {"boxes": []},
        {"limits": {"hook_time": 5}},
    ],
    ids=str,
)
def test_a_typing_error_is_an_error_that_names_the_file(config: dict[str, Any]) -> None:
    with pytest.raises(BadSettings) as raised:
        read_settings(config, who="/etc/serai/config.toml")
    assert raised.value.who == "/etc/serai/config.toml"


@pytest.mark.req("hooks.settings.paths")
async def test_a_hook_named_by_a_relative_path_is_told_of_the_end_wherever_we_are_then(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(harness.folder)
    async with harness.boxes() as boxes:
        box = await boxes.create("web", hooks=[Hook("./mint", env=harness.mint.env)])
        assert len(harness.tokens) == 1
        monkeypatch.chdir("/")
        assert await box.destroy() == ""
        assert harness.tokens == []


async def test_a_key_file_is_looked_at_when_boxes_are_opened(tmp_path: Path) -> None:
    boxes = Boxes(str(tmp_path / "boxes"), key_file=str(tmp_path / "none"))
    with pytest.raises(BadSettings, match="key file cannot be read"):
        await boxes.open()
    await boxes.close()
    assert not os.path.exists(tmp_path / "boxes")
