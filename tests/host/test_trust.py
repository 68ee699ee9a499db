"""What a person has trusted, and that nothing else starts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serai.errors import BadSettings
from serai.host.discovery import find_guests
from serai.host.trust import Trust
from tests.support.host import unprivileged_user
from tests.support.host.guest_folders import Harness, folders, write_zot_guest


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A project with one guest whose program, entry and settings are files of its folder, trusted."""
    harness = Harness(tmp_path)
    folder = write_zot_guest(weather(harness), exec="./run", args=["main.py", "../shared.py"], guest_toml="exclusive = true")
    for file in (folder / "run", folder / "main.py", folder / "data.txt", folder.parent / "shared.py"):
        file.write_text("one")
    harness.trust.allow(harness.project)
    return harness


def weather(harness: Harness) -> Path:
    return harness.project / ".zot" / "extensions" / "weather"


def reason(harness: Harness) -> str:
    return "; ".join(aside.reason for aside in harness.find().untrusted)


def test_what_was_trusted_starts_and_is_told(harness: Harness) -> None:
    assert folders(harness.find()) == ["weather"]
    [pinned] = harness.trust.allow(harness.project)
    assert (pinned.id, pinned.scope) == ("zot:weather", "project")


@pytest.mark.req("host.trust.pinned")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run", "it has changed since it was trusted: run"),
        ("main.py", "it has changed since it was trusted: main.py"),
        ("../shared.py", "it has changed since it was trusted: ../shared.py"),
    ],
)
def test_a_changed_file_is_not_trusted_any_more_and_named(harness: Harness, name: str, said: str) -> None:
    (weather(harness) / name).write_text("two")
    assert reason(harness) == said
    harness.trust.allow(harness.project)
    assert reason(harness) == ""


def test_a_change_of_the_guests_settings_counts(harness: Harness) -> None:
    (weather(harness) / "guest.toml").write_text('env = ["A_TOKEN"]')
    assert reason(harness) == "it has changed since it was trusted: guest.toml"


@pytest.mark.req("host.trust.pinned")
def test_a_change_of_the_command_line_counts(harness: Harness) -> None:
    manifest = weather(harness) / "extension.json"
    manifest.write_text(manifest.read_text().replace("./run", "sh"))
    assert reason(harness) == "its command line has changed since it was trusted"


@pytest.mark.parametrize("name", ["run", "guest.toml"])
def test_a_file_that_went_counts(harness: Harness, name: str) -> None:
    (weather(harness) / name).unlink()
    assert reason(harness) == f"it has changed since it was trusted: {name}"


def test_a_file_that_the_guest_writes_does_not_count(harness: Harness) -> None:
    (weather(harness) / "data.txt").write_text("two")
    assert reason(harness) == ""


@pytest.mark.req("host.trust.later")
def test_a_new_guest_waits_for_the_next_time(harness: Harness) -> None:
    write_zot_guest(weather(harness).with_name("later"))
    assert (folders(harness.find()), reason(harness)) == (["weather"], "it was never trusted")
    harness.trust.allow(harness.project)
    assert folders(harness.find()) == ["later", "weather"]


@pytest.mark.req("host.trust.pinned")
def test_a_link_that_is_bent_elsewhere_counts_even_with_the_same_content(harness: Harness, tmp_path: Path) -> None:
    for copy in ("one", "two"):
        write_zot_guest(tmp_path / copy, name="linked")
    link = weather(harness).with_name("linked")
    link.symlink_to(tmp_path / "one")
    harness.trust.allow(harness.project)
    assert reason(harness) == ""
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert reason(harness) == f"it was moved since it was trusted: to {tmp_path / 'two'}"


def test_a_link_inside_is_pinned_by_what_it_leads_to(harness: Harness, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("one")
    (weather(harness) / "main.py").unlink()
    (weather(harness) / "main.py").symlink_to(outside)
    harness.trust.allow(harness.project)
    assert reason(harness) == ""
    outside.write_text("two")
    assert reason(harness) == "it has changed since it was trusted: main.py"


@pytest.mark.req("host.trust.pinned")
def test_a_project_is_known_by_its_real_path(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(harness.project)
    assert folders(find_guests(cwd=tmp_path / "alias", config={}, environ=harness.environ)) == ["weather"]
    os.rename(harness.project, tmp_path / "elsewhere")
    assert find_guests(cwd=tmp_path / "elsewhere", config={}, environ=harness.environ).guests == ()


def test_trust_can_be_withdrawn(harness: Harness) -> None:
    assert harness.trust.withdraw(harness.project)
    assert reason(harness) == "it was never trusted"
    assert not harness.trust.withdraw(harness.project)


def test_one_project_says_nothing_of_another(harness: Harness, tmp_path: Path) -> None:
    write_zot_guest(tmp_path / "second" / ".serai" / "guests" / "other")
    harness.trust.allow(tmp_path / "second")
    harness.trust.withdraw(tmp_path / "second")
    assert folders(harness.find()) == ["weather"]


def test_what_cannot_be_read_is_not_pinned(harness: Harness) -> None:
    broken = weather(harness).with_name("broken")
    broken.mkdir()
    (broken / "extension.json").write_text("{")
    assert [manifest.name for manifest in harness.trust.allow(harness.project)] == ["weather"]


def test_the_file_is_the_persons_alone_and_nothing_else_is_left(harness: Harness) -> None:
    assert stat.S_IMODE(harness.trust.file.stat().st_mode) == 0o600
    assert sorted(os.listdir(harness.trust.file.parent)) == [".trust.lock", "trust.json"]


def test_names_that_are_no_text_can_be_trusted_too(harness: Harness) -> None:
    odd = weather(harness).with_name(os.fsdecode(b"od\xffd"))
    write_zot_guest(odd, name="odd")
    harness.trust.allow(harness.project)
    assert reason(harness) == ""


@pytest.mark.parametrize("content", [b"", b"{", b'{"projects": 1}', b"\xff", b"[" * 100_000, b'{"version": 2}'])
def test_a_damaged_file_is_an_error_that_names_it(harness: Harness, content: bytes) -> None:
    harness.trust.file.write_bytes(content)
    acts: list[Callable[[], object]] = [harness.find, lambda: harness.trust.allow(harness.project)]
    for act in acts:
        with pytest.raises(BadSettings) as raised:
            act()
        assert raised.value.who == str(harness.trust.file)
    assert harness.trust.file.read_bytes() == content


def test_a_file_that_cannot_be_written_is_an_error_that_names_it_and_the_old_one_stays(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(BadSettings, match="cannot be written: No space left on device") as raised:
        harness.trust.withdraw(harness.project)
    assert raised.value.who == str(harness.trust.file)
    assert sorted(os.listdir(harness.trust.file.parent)) == [".trust.lock", "trust.json"]
    assert reason(harness) == ""


def test_only_a_folder_can_be_trusted(harness: Harness, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="not a directory"):
        harness.trust.allow(tmp_path / "gone")


# -- all of the code


@pytest.mark.req("host.trust.pinned")
@pytest.mark.parametrize(
    ("exec", "args", "entry"),
    [
        ("python3", ["-m", "ext"], "ext.py"),
        ("python3", ["."], "__main__.py"),
        ("sh", ["-c", "exec python3 ext.py"], "ext.py"),
        ("sh", ["-c", "exec perl ./ext"], "ext"),
        ("env", ["-S", "python3 ext.py"], "ext.py"),
        ("python3", ["-c", "import lib.ext"], "lib/ext.py"),
        ("npm", ["start"], "package.json"),
    ],
)
def test_the_entry_is_pinned_however_it_is_named(harness: Harness, exec: str, args: list[str], entry: str) -> None:
    folder = write_zot_guest(weather(harness).with_name("other"), exec=exec, args=args)
    (folder / entry).parent.mkdir(exist_ok=True)
    (folder / entry).write_text("one")
    harness.trust.allow(harness.project)
    assert reason(harness) == ""
    (folder / entry).write_text("two")
    assert reason(harness) == f"it has changed since it was trusted: {entry}"


@pytest.mark.req("host.trust.pinned")
@pytest.mark.parametrize("name", ["json.py", "json/__init__.py", "json.cpython-311-x86_64-linux-gnu.so", "lib.pyc", "package.json"])
def test_code_that_comes_later_counts_as_it_may_shadow_an_import(harness: Harness, name: str) -> None:
    (weather(harness) / name).parent.mkdir(exist_ok=True)
    (weather(harness) / name).write_text("new")
    assert reason(harness) == f"it has changed since it was trusted: {name}"


@pytest.mark.req("host.trust.pinned")
def test_a_linked_folder_is_pinned_by_where_it_leads(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (weather(harness) / "json").symlink_to(tmp_path / "elsewhere")
    assert reason(harness) == "it has changed since it was trusted: json"
    harness.trust.allow(harness.project)
    (weather(harness) / "json").unlink()
    (weather(harness) / "json").symlink_to(tmp_path)
    assert reason(harness) == "it has changed since it was trusted: json"


@pytest.mark.parametrize("name", ["node_modules/a/index.js", ".cache/x.py", "__pycache__/main.cpython-311.pyc", "venv/lib/x.py"])
def test_what_others_made_is_not_pinned(harness: Harness, name: str) -> None:
    (weather(harness) / name).parent.mkdir(parents=True)
    (weather(harness) / name).write_text("new")
    assert reason(harness) == ""


@pytest.mark.req("host.trust.pinned")
def test_two_ways_to_one_name_are_two_files(harness: Harness, tmp_path: Path) -> None:
    """`a/../main.py` is not `main.py` when `a` is a link."""
    (tmp_path / "far" / "a").mkdir(parents=True)
    (tmp_path / "far" / "main.py").write_text("one")
    folder = write_zot_guest(weather(harness).with_name("other"), args=["a/../main.py", "main.py"])
    (folder / "a").symlink_to(tmp_path / "far" / "a")
    (folder / "main.py").write_text("one")
    harness.trust.allow(harness.project)
    assert reason(harness) == ""
    (tmp_path / "far" / "main.py").write_text("two")
    assert reason(harness) == "it has changed since it was trusted: a/../main.py"


def test_names_that_look_alike_once_they_are_text_are_told_apart(harness: Harness) -> None:
    one, two = (weather(harness) / os.fsdecode(name) for name in (b"a\xff.py", b"a\\xff.py"))
    for file in (one, two):
        file.write_text("same")
    harness.trust.allow(harness.project)
    for file in (one, two):
        file.write_text("other")
        assert reason(harness) != ""
        file.write_text("same")


@pytest.mark.req("host.trust.pinned")
def test_a_guest_that_is_too_big_to_look_at_cannot_be_trusted_and_says_why(harness: Harness) -> None:
    with open(weather(harness) / "main.py", "wb") as file:
        file.truncate(1 << 41)  # two terabytes of nothing
    said = f"it cannot be read: {weather(harness) / 'main.py'}: with it there is more than 64 MiB, too much to be trusted"
    assert reason(harness) == said
    assert harness.trust.allow(harness.project) == ()
    [manifest] = [aside.manifest for aside in harness.find().untrusted]
    assert (reason(harness), harness.trust.find_obstacle(manifest)) == ("it was never trusted", said)


def test_a_guest_with_too_many_files_cannot_be_trusted(harness: Harness) -> None:
    for number in range(2_100):
        (weather(harness) / f"{number}.py").touch()
    [manifest] = [aside.manifest for aside in harness.find().untrusted]
    assert harness.trust.find_obstacle(manifest).endswith("it has too many files to be trusted")


def test_a_guest_whose_entry_is_not_readable_is_left_out_and_says_why() -> None:
    with unprivileged_user.make_folder() as folder:
        entry = write_zot_guest(folder / "project" / ".zot" / "extensions" / "weather", args=["main.py"]) / "main.py"
        entry.touch(mode=0o000)
        script = "t = trust.Trust.usual(environ); print(t.allow('project'), t.find_obstacle(find().untrusted[0].manifest))"
        assert unprivileged_user.run(folder, script) == f"() it cannot be read: {entry}: Permission denied\n"


# -- grants


def test_what_the_person_grants_by_name_is_told_when_a_project_is_trusted(harness: Harness) -> None:
    (weather(harness) / "guest.toml").write_text('env = ["A_TOKEN", "B_TOKEN"]')
    (harness.trust.file.parent / "config.toml").write_text('[guest.weather]\nenv = ["A_TOKEN", "C_TOKEN"]\n')
    [manifest] = harness.trust.allow(harness.project)
    assert (manifest.settings.env, manifest.settings.asked) == (("A_TOKEN", "C_TOKEN"), ("env B_TOKEN",))
    [manifest] = harness.trust.allow(harness.project, {})
    assert (manifest.settings.env, manifest.settings.asked) == ((), ("env A_TOKEN", "env B_TOKEN"))


# -- the file


def test_many_at_once_lose_nothing(harness: Harness, tmp_path: Path) -> None:
    projects = [tmp_path / f"p{number}" for number in range(12)]
    for project in projects:
        write_zot_guest(project / ".zot" / "extensions" / "weather")
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(harness.trust.allow, projects))
        withdrawn = list(pool.map(harness.trust.withdraw, projects[:6]))
    assert withdrawn == [True] * 6
    found = [find_guests(cwd=project, config={}, environ=harness.environ) for project in projects]
    assert [len(each.guests) for each in found] == [0] * 6 + [1] * 6
    assert folders(harness.find()) == ["weather"]


def test_whoever_holds_the_file_too_long_is_told_of(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serai.locked_file._LOCK", 0.02)
    with open(harness.trust.file.parent / ".trust.lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BadSettings, match="another Serai is changing it") as raised:
            harness.trust.withdraw(harness.project)
    assert raised.value.who == str(harness.trust.file)
    assert harness.trust.withdraw(harness.project)


def test_a_linked_file_stays_a_link(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    harness.trust.file.rename(tmp_path / "dotfiles" / "trust.json")
    harness.trust.file.symlink_to(tmp_path / "dotfiles" / "trust.json")
    assert harness.trust.withdraw(harness.project)
    assert harness.trust.file.is_symlink()
    assert str(harness.project) not in (tmp_path / "dotfiles" / "trust.json").read_text()


def test_every_folder_that_is_made_for_it_is_the_persons_alone(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    old = os.umask(0)
    try:
        Trust(tmp_path / "config" / "serai" / "trust.json").allow(tmp_path / "project")
    finally:
        os.umask(old)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("config", "config/serai")] == [0o700] * 2


def test_an_empty_path_is_not_this_folder(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(harness.project)
    for act in (harness.trust.allow, harness.trust.withdraw):
        with pytest.raises(BadSettings, match="the path is empty"):
            act("")


@pytest.mark.req("policy.rule.project")
def test_a_projects_rules_are_trusted_as_they_are_now(harness: Harness) -> None:
    never = "they were never trusted; look at them, then `serai trust`"
    changed = "they have changed since they were trusted; look at them, then `serai trust`"
    trust, rules = harness.trust, harness.project / ".serai" / "policy.toml"
    assert trust.check_policy(harness.project) == never  # trusted when it had none
    rules.parent.mkdir(exist_ok=True)
    rules.write_text("one")
    assert trust.check_policy(harness.project) == never
    trust.allow(harness.project)
    assert trust.check_policy(harness.project) == ""
    rules.write_text("two")
    assert trust.check_policy(harness.project) == changed
    rules.unlink()
    assert trust.check_policy(harness.project) == changed
    rules.write_text("one")
    assert trust.check_policy(harness.project) == ""
    (harness.project.parent / "alias").symlink_to(harness.project)
    assert trust.check_policy(harness.project.parent / "alias") == ""  # by its real path
    assert trust.check_policy(harness.project.parent) == never
    trust.withdraw(harness.project)
    assert trust.check_policy(harness.project) == never


@pytest.mark.parametrize("what", ["pipe", "too long"])
def test_rules_that_cannot_be_read_are_not_trusted(harness: Harness, what: str) -> None:
    rules = harness.project / ".serai" / "policy.toml"
    rules.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(rules)
    else:
        rules.write_bytes(b"#" * (1024 * 1024 + 1))
    harness.trust.allow(harness.project)
    assert harness.trust.check_policy(harness.project).startswith("they were never trusted")


# -- rules


@pytest.mark.req("policy.rule.project")
def test_just_the_rules_that_a_person_has_seen_are_trusted(harness: Harness) -> None:
    path = harness.project / ".serai" / "policy.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"# other")
    harness.trust.allow(harness.project, rules=b"# seen")
    assert harness.trust.check_policy(harness.project).startswith("they have changed since")
    assert harness.trust.check_policy(harness.project, b"# seen") == ""
    harness.trust.allow(harness.project, rules=b"")
    assert harness.trust.check_policy(harness.project).startswith("they were never trusted")
    harness.trust.allow(harness.project)
    assert harness.trust.check_policy(harness.project) == ""


# -- settings ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.config.pinned")
def test_a_projects_settings_are_trusted_as_they_are_now(harness: Harness) -> None:
    never = "they were never trusted; look at them, then `serai trust`"
    changed = "they have changed since they were trusted; look at them, then `serai trust`"
    trust, path = harness.trust, harness.project / ".serai" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("one")
    assert trust.check_config(harness.project) == never
    trust.allow(harness.project)
    assert trust.check_config(harness.project) == trust.check_config(harness.project, b"one") == ""
    assert trust.check_config(harness.project, b"two") == changed
    path.write_text("two")
    assert trust.check_config(harness.project) == changed
    trust.allow(harness.project, settings=b"seen")
    assert trust.check_config(harness.project) == changed
    assert trust.check_config(harness.project, b"seen") == ""
    assert trust.check_policy(harness.project).startswith("they were never trusted")
    trust.withdraw(harness.project)
    assert trust.check_config(harness.project, b"seen") == never


@pytest.mark.req("app.config.pinned")
def test_what_was_trusted_before_settings_were_pinned_is_still_read(harness: Harness) -> None:
    known = json.loads(harness.trust.file.read_text())
    for project in known["projects"].values():
        del project["config"]
    harness.trust.file.write_text(json.dumps(known))
    assert folders(harness.find()) == ["weather"]
    assert harness.trust.check_config(harness.project, b"x").startswith("they were never trusted")
