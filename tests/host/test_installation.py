"""Adding, removing and switching guests, and finding the one that is meant."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from serai.errors import BadManifest, BadSettings, NoGuest, NotWritten, PeerGone, PeerTimeout, SeraiError
from serai.host.guest_manifest import GuestManifest
from serai.host.installation import add, add_url, choose, is_url, remove, set_enabled
from tests.support.host import unprivileged_user
from tests.support.host.guest_folders import Harness, folders, write_zot_guest


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.project.mkdir()
    return harness


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = write_zot_guest(tmp_path / "work" / "weather", exec="./run")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o751)
    (folder / "lib").mkdir()
    (folder / "lib" / "real.py").touch()
    (folder / "lib" / "link.py").symlink_to("../run")
    return folder


def list_guests(harness: Harness) -> list[str]:
    """Everything in the user's guests, hidden things too."""
    return sorted(os.listdir(harness.user)) if harness.user.exists() else []


# -- add


def test_a_folder_is_copied_with_modes_and_links(harness: Harness, source: Path) -> None:
    target = add(str(source), environ=harness.environ)
    assert target == harness.user / "weather"
    assert stat.S_IMODE((target / "run").stat().st_mode) == 0o751
    assert (target / "lib" / "link.py").readlink() == Path("../run")
    assert folders(harness.find()) == list_guests(harness) == ["weather"]


@pytest.mark.req("zot.ours.1.4-canonical-path")
def test_the_path_is_made_canonical_before_its_base_name_is_taken(
    harness: Harness, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source / "lib")
    assert add("..", environ=harness.environ) == harness.user / "weather"
    remove(choose(harness.find(), "weather"))
    monkeypatch.chdir(source)
    assert add(".", environ=harness.environ) == harness.user / "weather"


def test_another_name_may_be_given(harness: Harness, source: Path) -> None:
    assert add(str(source), environ=harness.environ, name="other") == harness.user / "other"


@pytest.mark.parametrize("name", [".", "..", ".hidden", "a/b", "a\0b"])
def test_a_name_that_would_not_be_found_is_refused(harness: Harness, source: Path, name: str) -> None:
    with pytest.raises(NoGuest, match="no name for a guest's folder"):
        add(str(source), environ=harness.environ, name=name)
    assert list_guests(harness) == []


def test_what_is_there_already_is_not_overwritten(harness: Harness, source: Path) -> None:
    add(str(source), environ=harness.environ)
    with pytest.raises(BadSettings, match="already exists; remove it first") as raised:
        add(str(source), environ=harness.environ)
    assert "serai guest remove weather" in raised.value.hint
    assert list_guests(harness) == ["weather"]


@pytest.mark.req("host.trust.hidden-guard")
def test_an_id_that_is_there_already_is_refused(harness: Harness, source: Path) -> None:
    """Its folder would sort first, and then it would be started in the other's place."""
    other = write_zot_guest(harness.user / "other", name="weather", guest_toml="guard = true")
    with pytest.raises(BadSettings, match=f"zot:weather is there already, in {other}") as raised:
        add(str(source), environ=harness.environ, name="aaa")
    assert "serai guest remove other" in raised.value.hint
    assert list_guests(harness) == ["other"]


def test_settings_that_cannot_be_read_are_told_before_anything_is_copied(harness: Harness, source: Path) -> None:
    harness.user.parent.mkdir(parents=True)
    (harness.user.parent / "config.toml").write_text("guest = 1")
    with pytest.raises(BadSettings, match="guest"):
        add(str(source), environ=harness.environ)
    assert list_guests(harness) == []


def test_what_a_killed_one_left_is_swept_up_and_what_is_being_made_is_not(harness: Harness, source: Path) -> None:
    for name in (".serai-dead", ".serai-alive", ".other"):
        (harness.user / name / "part").mkdir(parents=True)
    descriptor = os.open(harness.user / ".serai-alive", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        add(str(source), environ=harness.environ)
    finally:
        os.close(descriptor)
    assert list_guests(harness) == [".other", ".serai-alive", "weather"]


def test_all_that_is_made_is_the_persons_alone(harness: Harness, source: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        add(str(source), environ={"SERAI_HOME": str(tmp_path / "config" / "serai")})
    finally:
        os.umask(old)
    made = [tmp_path / name for name in ("config", "config/serai", "config/serai/guests")]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3


def test_an_empty_path_is_not_this_folder(harness: Harness, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source)
    with pytest.raises(BadSettings, match="the path is empty"):
        add("", environ=harness.environ)
    assert list_guests(harness) == []


def test_what_is_no_guest_is_refused(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(BadManifest, match="source lacks extension.json or manifest.yaml"):
        add(str(tmp_path / "bare"), environ=harness.environ)
    for name in ("file", "gone"):
        with pytest.raises(NoGuest, match="not a directory: "):
            add(str(tmp_path / name), environ=harness.environ)


@pytest.mark.parametrize("link", ["/etc/hostname", "../../secret", "../weather/run", "lib/../../out"])
def test_a_link_that_leads_out_is_an_error_and_nothing_is_left(harness: Harness, source: Path, link: str) -> None:
    (source / "out").symlink_to(link)
    with pytest.raises(BadManifest, match="out is a link that leads out of the guest's folder"):
        add(str(source), environ=harness.environ)
    assert list_guests(harness) == []


def test_what_cannot_be_copied_is_an_error_and_nothing_is_left(harness: Harness, source: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(NotWritten, match="cannot be copied: .*pipe is neither a file nor a folder"):
        add(str(source), environ=harness.environ)
    assert list_guests(harness) == []


def test_a_folder_is_not_copied_into_itself(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "extension.json").touch()
    with pytest.raises(BadSettings, match="into itself"):
        add(str(tmp_path), environ=harness.environ)


# -- add from a URL


@pytest.mark.parametrize("source", ["https://example.org/weather", "git@example.org:me/weather", "/some/weather.git"])
def test_what_is_cloned(source: str) -> None:
    assert is_url(source)


@pytest.mark.parametrize("source", [".", "weather", "/some/https://weather"])
def test_what_is_copied(source: str) -> None:
    assert not is_url(source)


def test_a_folder_that_is_there_is_copied_whatever_its_name(harness: Harness, source: Path) -> None:
    folder = source.rename(source.with_name("my.git"))
    assert not is_url(str(folder))
    assert add(str(folder), environ=harness.environ) == harness.user / "my.git"


@pytest.fixture
def repository(source: Path, environ: dict[str, str]) -> str:
    """The address of a repository with a guest in it, on this disk."""
    target = source.parent / "weather.git"
    who = {f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for argv in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"], ["clone", "-q", "--bare", ".", str(target)]):
        subprocess.run(["git", *argv], cwd=source, env=env, check=True, capture_output=True, timeout=30)
    return f"file://{target}"


async def test_a_repository_is_cloned_without_its_history(harness: Harness, repository: str, environ: dict[str, str]) -> None:
    target = await add_url(repository, environ={**environ, **harness.environ})
    assert target == harness.user / "weather"
    assert (target / ".git" / "shallow").exists()
    assert folders(harness.find()) == list_guests(harness) == ["weather"]


async def test_a_repository_without_a_manifest_is_rolled_back(harness: Harness, repository: str, environ: dict[str, str]) -> None:
    source = Path(repository.removeprefix("file://")).with_suffix("")
    (source / "extension.json").unlink()
    env = {**environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    name = ["-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run(["git", *name, "commit", "-qam", "x"], cwd=source, env=env, check=True, timeout=30)
    with pytest.raises(BadManifest, match="installed dir lacks extension.json .*; aborted and rolled back"):
        await add_url(f"file://{source}/.git", environ={**environ, **harness.environ}, name="weather")
    assert list_guests(harness) == []


async def test_a_clone_that_fails_says_what_git_said(harness: Harness, environ: dict[str, str]) -> None:
    with pytest.raises(PeerGone, match="git clone failed .exit status 128.; stderr ended with: .*nowhere/weather.git"):
        await add_url("file:///nowhere/weather.git", environ={**environ, **harness.environ})
    assert list_guests(harness) == []


@pytest.mark.parametrize("url", ["--upload-pack=touch ran.git", "ext::touch ran.git"])
async def test_an_address_is_neither_an_option_nor_a_program(
    harness: Harness, environ: dict[str, str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PeerGone):
        await add_url(url, environ={**environ, **harness.environ}, name="weather")
    assert not (tmp_path / "ran.git").exists()
    assert list_guests(harness) == []


def write_fake_git(harness: Harness, folder: Path, script: str) -> dict[str, str]:
    """An environment whose git is this script; its seventh argument is where to clone to."""
    program = folder / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {**harness.environ, "PATH": f"{program.parent}:/usr/bin:/bin"}


async def test_a_clone_cannot_ask_and_leaves_nothing_when_it_fails(harness: Harness, tmp_path: Path) -> None:
    environ = write_fake_git(harness, tmp_path, 'mkdir "$7"; echo "$5 $6 $GIT_TERMINAL_PROMPT" >&2; exit 3')
    with pytest.raises(PeerGone, match="-- https://example.org/weather 0"):
        await add_url("https://example.org/weather", environ=environ)
    assert list_guests(harness) == []


async def test_a_password_in_the_address_is_not_shown(harness: Harness, tmp_path: Path) -> None:
    environ = write_fake_git(harness, tmp_path, 'echo "no such $6" >&2; exit 128')
    with pytest.raises(PeerGone) as raised:
        await add_url("https://me:secret@example.org/weather", environ=environ)
    assert raised.value.stderr == "no such https://…@example.org/weather\n"
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("password", ["se@cret", "se/cret", "@/se@@cret/", "cret@"])
async def test_a_password_is_not_shown_whatever_it_is_made_of(harness: Harness, tmp_path: Path, password: str) -> None:
    environ = write_fake_git(harness, tmp_path, 'echo "no such $6, and no host cret@example.org or se" >&2; exit 128')
    with pytest.raises(PeerGone) as raised:
        await add_url(f"https://me:{password}@example.org/weather", environ=environ, name="weather")
    assert "cret" not in str(raised.value)
    assert "https://…@example.org/weather" in str(raised.value)


async def test_a_clone_with_an_id_that_is_there_already_is_rolled_back(
    harness: Harness, repository: str, environ: dict[str, str]
) -> None:
    other = write_zot_guest(harness.user / "other", name="weather")
    with pytest.raises(BadSettings, match=f"zot:weather is there already, in {other}"):
        await add_url(repository, environ={**environ, **harness.environ})
    assert list_guests(harness) == ["other"]


async def test_a_clone_has_a_deadline(harness: Harness, tmp_path: Path) -> None:
    environ = write_fake_git(harness, tmp_path, "exec sleep 600")
    with pytest.raises(PeerTimeout, match="longer than 0.1 s"):
        await add_url("https://example.org/weather", environ=environ, timeout=0.1)
    assert list_guests(harness) == []


# -- remove


def test_a_removed_guest_is_gone(harness: Harness, source: Path) -> None:
    add(str(source), environ=harness.environ)
    remove(choose(harness.find(), "weather"))
    assert list_guests(harness) == []


def test_of_a_linked_guest_only_the_link_goes(harness: Harness, source: Path) -> None:
    harness.user.mkdir(parents=True)
    (harness.user / "linked").symlink_to(source)
    remove(choose(harness.find(), "linked"))
    assert list_guests(harness) == []
    assert (source / "run").exists()


def test_what_was_only_named_is_not_deleted(harness: Harness, source: Path) -> None:
    with pytest.raises(NoGuest, match="zot:weather is not installed"):
        remove(choose(harness.find(source), "weather"))
    assert (source / "run").exists()


@pytest.mark.parametrize("link", [".zot", ".zot/extensions"])
def test_nothing_outside_of_a_project_is_removed_or_switched_through_a_linked_place(
    harness: Harness, source: Path, link: str
) -> None:
    """A project may come with a link to the person's own folders."""
    (harness.project / link).parent.mkdir(exist_ok=True)
    (harness.project / link).symlink_to(source.parent)
    if link == ".zot":
        (source.parent / "extensions").symlink_to(source.parent)
    guest = choose(harness.find(), "weather")
    assert guest.scope == "project"
    with pytest.raises(BadManifest, match="outside of"):
        remove(guest)
    with pytest.raises(BadManifest, match="outside of"):
        set_enabled(guest, enabled=False)
    assert enabled(source / "extension.json")


def test_of_a_projects_linked_guest_only_the_link_goes(harness: Harness, source: Path) -> None:
    link = harness.project / ".zot" / "extensions" / "linked"
    link.parent.mkdir(parents=True)
    link.symlink_to(source)
    remove(choose(harness.find(), "linked"))
    assert (os.path.lexists(link), (source / "run").exists()) == (False, True)


def test_a_guest_with_a_long_name_can_be_removed(harness: Harness, source: Path) -> None:
    name = "w" * 255
    add(str(source), environ=harness.environ, name=name)
    remove(choose(harness.find(), name))
    assert list_guests(harness) == []


def test_a_guest_with_read_only_folders_can_be_removed() -> None:
    with unprivileged_user.make_folder() as folder:
        script = """
os.makedirs("home/guests/ro/deep/er")
Path("home/guests/ro/extension.json").write_text('{"name": "ro", "exec": "x"}')
Path("home/guests/ro/deep/er/file").touch()
for path, mode in (("home/guests/ro/deep/er", 0o000), ("home/guests/ro/deep", 0o555), ("home/guests/ro", 0o555)):
    os.chmod(path, mode)
installation.remove(installation.choose(find(), "ro"))
print(os.listdir("home/guests"))
"""
        assert unprivileged_user.run(folder, script) == "[]\n"


def test_a_guest_that_cannot_be_deleted_is_there_again(harness: Harness, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(str(source), environ=harness.environ)

    def refused(path: object) -> None:
        raise PermissionError(1, "not permitted", "some file")

    monkeypatch.setattr("shutil.rmtree", refused)
    with pytest.raises(NotWritten, match="cannot be removed: some file: not permitted"):
        remove(choose(harness.find(), "weather"))
    assert list_guests(harness) == ["weather"]


def test_what_cannot_be_removed_is_an_error(harness: Harness, source: Path) -> None:
    add(str(source), environ=harness.environ)
    guest = choose(harness.find(), "weather")
    shutil.rmtree(guest.folder)
    with pytest.raises(NotWritten, match="cannot be removed: No such file or directory"):
        remove(guest)


# -- enable and disable


@pytest.mark.req("zot.rule.1.4-enable-disable")
def test_disable_and_enable_change_one_field_and_keep_the_mode(harness: Harness) -> None:
    folder = write_zot_guest(harness.user / "weather", zoo={"b": 1})
    (folder / "extension.json").chmod(0o640)
    set_enabled(choose(harness.find(), "weather"), enabled=False)
    assert (harness.find().guests, [guest.name for guest in harness.find().disabled]) == ((), ["weather"])
    assert json.loads((folder / "extension.json").read_text()) == {
        "name": "weather",
        "exec": "python3",
        "zoo": {"b": 1},
        "enabled": False,
    }
    set_enabled(choose(harness.find(), "weather"), enabled=True)
    assert folders(harness.find()) == ["weather"]
    assert stat.S_IMODE((folder / "extension.json").stat().st_mode) == 0o640
    assert os.listdir(folder) == ["extension.json"]


def enabled(manifest: Path) -> bool:
    return json.loads(manifest.read_text()).get("enabled", True) is True


def test_a_linked_manifest_stays_a_link(harness: Harness) -> None:
    folder = write_zot_guest(harness.user / "weather")
    (folder / "extension.json").rename(folder / "real.json")
    (folder / "extension.json").symlink_to("real.json")
    set_enabled(choose(harness.find(), "weather"), enabled=False)
    assert (folder / "extension.json").is_symlink()
    assert not enabled(folder / "real.json")


@pytest.mark.parametrize("place", ["user", "project", "ad hoc"])
def test_a_manifest_elsewhere_is_not_rewritten_through_a_link(harness: Harness, tmp_path: Path, place: str) -> None:
    real = write_zot_guest(tmp_path / "real") / "extension.json"
    places = {"user": harness.user, "project": harness.project / ".zot" / "extensions", "ad hoc": tmp_path / "named"}
    folder = places[place] / "weather"
    folder.mkdir(parents=True)
    (folder / "extension.json").symlink_to(real)
    with pytest.raises(BadManifest, match="it really lies in .*real/extension.json, outside of ") as raised:
        set_enabled(choose(harness.find(*[folder] if place == "ad hoc" else []), "weather"), enabled=False)
    assert raised.value.hint
    assert enabled(real)


def test_a_guest_that_the_person_linked_is_switched_where_it_lies(harness: Harness, source: Path) -> None:
    harness.user.mkdir(parents=True)
    (harness.user / "linked").symlink_to(source)
    set_enabled(choose(harness.find(), "linked"), enabled=False)
    assert not enabled(source / "extension.json")


def test_what_the_person_switched_off_is_not_switched_on_elsewhere(harness: Harness) -> None:
    write_zot_guest(harness.user / "weather")
    guest = choose(harness.find(config={"guest": {"weather": {"enabled": False}}}), "weather")
    with pytest.raises(BadSettings, match="enabled = false"):
        set_enabled(guest, enabled=True)


def test_a_manifest_that_cannot_be_rewritten_is_left_as_it_is(harness: Harness) -> None:
    folder = write_zot_guest(harness.user / "weather")
    guest = choose(harness.find(), "weather")
    (folder / "extension.json").write_text("{")
    with pytest.raises(BadManifest, match="parse manifest: "):
        set_enabled(guest, enabled=False)
    assert (folder / "extension.json").read_text() == "{"
    (folder / "extension.json").unlink()
    with pytest.raises(NotWritten, match="cannot be rewritten: No such file or directory"):
        set_enabled(guest, enabled=False)


def test_other_dialects_have_no_switch_yet(harness: Harness) -> None:
    guest = GuestManifest(dialect="serai", name="a", folder=harness.user, file=harness.user, scope="user", argv=("x",))
    with pytest.raises(BadManifest, match="the dialect serai has no such switch yet"):
        set_enabled(guest, enabled=False)


# -- choose


@pytest.mark.req("zot.ours.1.4-either-name")
@pytest.mark.parametrize("name", ["zot:weather", "weather", "folder"])
def test_a_guest_is_known_by_id_name_and_folder(harness: Harness, name: str) -> None:
    write_zot_guest(harness.user / "folder", name="weather")
    assert choose(harness.find(), name).id == "zot:weather"


@pytest.mark.req("zot.ours.1.4-project-first")
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("folder", ["weather", "other"])
def test_the_named_one_comes_before_the_projects_and_that_before_the_persons(
    harness: Harness, tmp_path: Path, folder: str, trusted: bool
) -> None:
    write_zot_guest(harness.user / "weather")
    write_zot_guest(harness.project / ".zot" / "extensions" / folder, name="weather")
    named = write_zot_guest(tmp_path / "named", name="weather")
    if trusted:
        harness.trust.allow(harness.project)
    assert choose(harness.find(), "weather").scope == "project"
    assert choose(harness.find(named), "weather").scope == "ad hoc"


def test_the_name_says_more_than_the_folder(harness: Harness) -> None:
    write_zot_guest(harness.user / "a", name="b")
    write_zot_guest(harness.user / "b", name="a")
    assert choose(harness.find(), "a").folder.name == "b"


def test_nobody_of_that_name_names_who_there_is(harness: Harness) -> None:
    with pytest.raises(NoGuest, match="there is no guest x, nor any other"):
        choose(harness.find(), "x")
    write_zot_guest(harness.user / "weather")
    write_zot_guest(harness.user / "off", enabled=False)
    with pytest.raises(NoGuest, match="there is no guest x; there is zot:off, zot:weather"):
        choose(harness.find(), "x")


def test_who_gives_a_path_for_a_name_is_told_how_folders_are_given(harness: Harness) -> None:
    write_zot_guest(harness.user / "weather")
    with pytest.raises(NoGuest, match=r"there is no guest \./weather") as raised:
        choose(harness.find(), "./weather")
    assert "--guest FOLDER" in raised.value.hint
    with pytest.raises(NoGuest) as raised:
        choose(harness.find(), "x")
    assert raised.value.hint == NoGuest.default_hint


def test_one_that_is_broken_says_so(harness: Harness) -> None:
    (harness.user / "weather").mkdir(parents=True)
    (harness.user / "weather" / "extension.json").write_text("{}")
    with pytest.raises(NoGuest, match="weather cannot be read: manifest: name is required"):
        choose(harness.find(), "weather")


def test_one_name_in_two_dialects_has_to_be_said_by_id(harness: Harness) -> None:
    found = harness.find()
    zot, piglet = (
        GuestManifest(dialect=dialect, name="weather", folder=harness.user / dialect, file=harness.user, scope="user", argv=("x",))
        for dialect in ("zot", "piglet")
    )
    found = type(found)(guests=(zot, piglet))
    with pytest.raises(NoGuest, match="weather may be piglet:weather or zot:weather"):
        choose(found, "weather")
    assert choose(found, "piglet:weather") is piglet


def test_every_error_says_what_to_do(harness: Harness) -> None:
    with pytest.raises(SeraiError) as raised:
        add("/nowhere", environ=harness.environ)
    assert raised.value.hint
