"""Where Serai keeps its things."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from serai import paths
from serai.errors import BadSettings


def test_serai_home_holds_everything() -> None:
    environ = {"SERAI_HOME": "/somewhere/../else"}
    assert paths.config_folder(environ) == paths.state_folder(environ) == "/else"


def test_without_it_the_platforms_folders_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert (paths.config_folder({}), paths.state_folder({})) == ("/c/serai", "/s/serai")


def test_no_settings_are_no_error(tmp_path: Path) -> None:
    assert paths.read_settings({"SERAI_HOME": str(tmp_path)}) == {}


@pytest.mark.parametrize("content", [b"a = ", b"\xff"])
def test_settings_that_cannot_be_read_name_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(BadSettings) as raised:
        paths.read_settings({"SERAI_HOME": str(tmp_path)})
    assert raised.value.who == str(tmp_path / "config.toml")


def test_settings_that_are_nested_too_deep_are_a_mistake_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(BadSettings, match="nested too deep") as raised:
        paths.read_settings({"SERAI_HOME": str(tmp_path)})
    assert raised.value.who == str(tmp_path / "config.toml")


@pytest.mark.req("host.find.settings")
@pytest.mark.parametrize(("text", "key"), [("[geust.gate]\nguard = true\n", "geust"), ("guard = true\n", "guard"), ("'' = 1", "")])
def test_a_setting_that_nobody_reads_names_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(BadSettings) as raised:
        paths.read_settings({"SERAI_HOME": str(tmp_path)})
    assert str(raised.value) == f"{tmp_path / 'config.toml'}: there is no setting {key!r}"
    known = "record, guests, guest, boxes, limits, agent, agents, tools, default_model, small_model, system_prompt, prompt_order"
    assert raised.value.hint == f"at its top the file has {known}, compact_at, disabled_extensions, feature, plugins"


def test_every_setting_that_there_is_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "record = false\n[guests]\nhomes = true\n[guest.gate]\nguard = true\n[limits]\ntool = 1\n"
    )
    assert list(paths.read_settings({"SERAI_HOME": str(tmp_path)})) == ["record", "guests", "guest", "limits"]
    assert not paths.is_recording_enabled({"SERAI_HOME": str(tmp_path)})


def test_an_empty_path_is_never_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.absolute_path(".") == paths.absolute_path(Path()) == str(tmp_path)
    with pytest.raises(BadSettings, match="the path is empty"):
        paths.absolute_path("")


def test_every_folder_that_is_made_is_for_this_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        paths.make_private_folder(tmp_path / "a" / "b" / "c")
        paths.make_private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(old)
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        paths.make_private_folder(tmp_path / "file")


# -- a project's settings ---------------------------------------------------------------------------------------------------------


def theirs(project: Path) -> Path:
    path = project / paths.PROJECT_CONFIG
    path.parent.mkdir(exist_ok=True)
    return path


def test_a_project_without_settings_has_none(tmp_path: Path) -> None:
    assert paths.read_project_settings(tmp_path) == b""
    theirs(tmp_path).write_text("agent = 'x'")
    assert paths.read_project_settings(tmp_path) == b"agent = 'x'"


@pytest.mark.parametrize("what", ["pipe", "folder", "device", "dangling link", "too long", "dots", "no folder above"])
def test_whatever_lies_in_the_place_of_a_projects_settings_is_an_error_and_never_a_wait(tmp_path: Path, what: str) -> None:
    path = tmp_path / paths.PROJECT_CONFIG
    if what == "no folder above":
        path.parent.touch()
    else:
        path.parent.mkdir()
    match what:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "dangling link":
            path.symlink_to("nowhere")
        case "too long":
            path.write_bytes(b"#" * ((1 << 20) + 1))
        case "dots":
            path.write_bytes(b"a." * 4000 + b"a = 1")
    with pytest.raises(BadSettings) as raised:
        paths.read_project_settings(tmp_path)
    said = {
        "pipe": "cannot be read: it is not a file",
        "folder": "cannot be read: it is not a file",
        "device": "cannot be read: it is not a file",
        "dangling link": "it is a link that leads to no file",
        "too long": "cannot be read: it is longer than 1 MiB",
        "dots": "a line with more than 50 dots",
        "no folder above": "cannot be read: Not a directory",
    }
    assert str(raised.value) == f"{path}: {said[what]}"


def test_a_megabyte_of_settings_is_still_read(tmp_path: Path) -> None:
    theirs(tmp_path).write_bytes(b"#" * (1 << 20))
    assert len(paths.read_project_settings(tmp_path)) == 1 << 20
