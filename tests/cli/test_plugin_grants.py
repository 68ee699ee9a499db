"""`serai guest grant` and `revoke`: shown first, asked for, written whole, and never more than was asked for (spec yoi 10)."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
import termios
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from serai.cli.plugin_grants import _parse_fs, _parse_request, _parse_websocket
from serai.errors import BadSettings
from serai.plugins import grants, resolution
from serai.plugins.grants import Enablement, FsGrant, Grants
from serai.plugins.grants_file import GrantsFile
from serai.plugins.manifest import Permission, Target
from serai.plugins.targets import parse_url, request_matches
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.yoi.plugin_manifests import parse_report, write_plugin

REQUEST = '[[request]]\nscheme = "https"\nhost = "api.example.com"\nmethods = ["GET", "POST"]\npath_prefixes = ["/v1"]'
SOCKET = '[[websocket]]\nscheme = "wss"\nhost = "example.com"\npath_prefixes = ["/socket"]'
ALL = ("surfaces.tool", "tool.echo", "host_api.request", "host_api.websocket", "host_api.fs")


def write_full(tmp_path: Path, **parts: Any) -> Path:
    return write_plugin(tmp_path / "echo", REQUEST, SOCKET, permissions=ALL, **parts)


def read_enablement(shell: InProcessShell) -> dict[str, Any]:
    """The one enablement in the file."""
    said = tomllib.loads((shell.home / "plugins.toml").read_text())
    assert said["feature"] == {"plugins": {"enabled": True}}
    [one] = said["plugins"]["enabled"]
    assert isinstance(one, dict)
    return one


# -- what is given ----------------------------------------------------------------------------------------------------------------


def test_by_default_it_gets_what_it_asks_for_and_no_folder(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    ran = in_process_shell("guest", "grant", write_full(tmp_path), "--yes")
    assert ran.returncode == 0, ran.stderr
    one = read_enablement(in_process_shell)
    digest = one["digest"]
    assert (one["id"], one["version"]) == ("user:acme.echo", "1.0.0")
    assert digest.startswith("sha256:")
    grants = one["grants"]
    assert (grants["id"], grants["version"], grants["digest"]) == ("user:acme.echo", "1.0.0", digest)
    assert len(grants["permissions"]) == len(ALL)
    assert [target["host"] for target in grants["request"]] == ["api.example.com"]
    assert [target["host"] for target in grants["websocket"]] == ["example.com"]
    assert "fs" not in grants
    assert "it asks for files and gets none: --fs ROOT:read,list gives it a folder" in ran.stdout


def test_what_it_asks_for_is_shown_before_anything_is_written(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    ran = in_process_shell("guest", "grant", write_full(tmp_path))
    assert ran.returncode == 1
    for label in (*ALL, "https://api.example.com GET,POST /v1", "wss://example.com /socket"):
        assert ran.stdout.count(label) >= 2, label  # asked for, and what it would get
    assert "nobody is there to say yes" in ran.stderr
    assert "--yes" in ran.stderr
    assert not (in_process_shell.home / "plugins.toml").exists()


def test_flags_say_what_and_where(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    flags = ["--fs", f"{tmp_path}/data:list,read", "--request", "get https://API.example.com:8443/v1/a", "--private"]
    flags += ["--websocket", "ws://[::1]:80/socket", "--config", '{"level": ["x", 1]}']
    ran = in_process_shell("guest", "grant", write_full(tmp_path), "--yes", *flags)
    assert ran.returncode == 0, ran.stderr
    one = read_enablement(in_process_shell)
    assert one["config"] == {"level": ["x", 1]}
    grants = one["grants"]
    assert grants["fs"] == [{"root": f"{tmp_path}/data", "operations": ["read", "list"]}]
    target = {"scheme": "https", "host": "api.example.com", "port": 8443, "methods": ["GET"], "path_prefixes": ["/v1/a"]}
    assert grants["request"] == [target | {"private": True}]
    assert grants["websocket"] == [{"scheme": "ws", "host": "::1", "port": 80, "path_prefixes": ["/socket"], "private": True}]
    assert "host_api.websocket to ws://::1:80 /socket is in vain" in ran.stdout  # it declares another


@pytest.mark.parametrize(
    ("read", "flag", "port"),
    [
        (_parse_request, "GET http://localhost", 80),
        (_parse_request, "GET,POST HTTPS://api.example.com/v1", 443),
        (_parse_request, "GET http://[::1]/", 80),
        (_parse_request, "GET http://localhost:8080/", 8080),
        (_parse_request, "GET https://api.example.com:80/", 80),
        (_parse_websocket, "ws://localhost/a", 80),
        (_parse_websocket, "wss://example.com", 443),
        (_parse_websocket, "wss://example.com:8443", 8443),
    ],
)
def test_a_url_without_a_port_means_the_one_of_its_scheme(read: Callable[[str], Target], flag: str, port: int) -> None:
    assert read(flag).port == port


def test_a_flag_for_localhost_opens_no_other_port_of_it() -> None:
    target = _parse_request("GET,POST http://localhost")
    for url, fits in (
        ("http://localhost/", True),
        ("http://localhost:80/a", True),
        ("http://localhost:2375/containers/create", False),
        ("http://localhost:6379/", False),
        ("https://localhost/", False),
    ):
        assert request_matches(target, "POST", parse_url(url)) == fits, url


def test_only_some_contributions(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    service = '[[services]]\nname = "watch"\ndescription = "d"'
    asks = ("surfaces.tool", "tool.echo", "external_write", "surfaces.service", "service.watch", "host_api.fs")
    folder = write_plugin(tmp_path / "echo", service, permissions=asks)
    assert in_process_shell("guest", "grant", folder, "--yes", "--surface", "service").returncode == 0
    one = read_enablement(in_process_shell)
    assert one["surfaces"] == ["service"]
    assert [each["kind"] for each in one["grants"]["permissions"]] == ["surface", "service", "host_api"]
    ran = in_process_shell("guest", "grant", folder, "--yes", "--surface", "ingress")
    assert ran.returncode == 2
    assert "does not declare it" in ran.stderr


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--fs", "/data", "ROOT:OPERATIONS"),
        ("--fs", "/data:", "ROOT:OPERATIONS"),
        ("--fs", "/data:read,delete", "ROOT:OPERATIONS"),
        ("--fs", ":read", "ROOT:OPERATIONS"),
        ("--request", "https://host/", "METHODS URL"),
        ("--request", "BREW https://host/", "METHODS URL"),
        ("--request", "GET ftp://host/", "http://HOST"),
        ("--request", "GET https://user@host/", "http://HOST"),
        ("--request", "GET https://host/a?b", "http://HOST"),
        ("--request", "GET https://host/a/../b", "would match nothing"),
        ("--request", "GET https://host/a/%2E%2e/b", "would match nothing"),
        ("--request", "GET https://host:70000/", "there is no port"),
        ("--websocket", "https://host/", "ws://HOST"),
        ("--websocket", "wss://", "ws://HOST"),
        ("--request", "GET https://host/\udcff", "no text in UTF-8"),
        ("--fs", "/da\udcffta:read", "no text in UTF-8"),
        ("--surface", "panel", "panel"),
        ("--config", "{", "not JSON"),
    ],
)
def test_a_flag_that_means_nothing_is_a_wrong_command_line(
    in_process_shell: InProcessShell, tmp_path: Path, flag: str, value: str, said: str
) -> None:
    ran = in_process_shell("guest", "grant", write_full(tmp_path), "--yes", flag, value)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert not (in_process_shell.home / "plugins.toml").exists()


@pytest.mark.parametrize(
    "flags",
    [("--fs", "/data:read"), ("--request", "GET https://host/"), ("--websocket", "wss://host/")],
    ids=lambda flags: flags[0],
)
def test_nothing_is_given_that_it_does_not_ask_for(
    in_process_shell: InProcessShell, tmp_path: Path, flags: tuple[str, str]
) -> None:
    ran = in_process_shell("guest", "grant", write_plugin(tmp_path / "echo"), "--yes", *flags)
    assert ran.returncode == 2
    assert "does not ask for host_api." in ran.stderr


@pytest.mark.req("yoi.rule.093")
def test_print_gives_the_snippet_with_the_digest_and_writes_nothing(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_full(tmp_path)
    digest = parse_report(in_process_shell("guest", "check", folder, "--json"))["package"]["digest"]
    ran = in_process_shell("guest", "grant", folder, "--print", "--fs", f"{tmp_path}:read")
    assert ran.returncode == 0
    [one] = tomllib.loads(ran.stdout)["plugins"]["enabled"]
    assert one["digest"] == one["grants"]["digest"] == digest
    assert one["grants"]["fs"] == [{"root": str(tmp_path), "operations": ["read"]}]
    assert not in_process_shell.home.exists()


@given(st.text(), st.sampled_from(["/data:", "GET https://host/", "GET,PUT http://[::1]:80", "wss://host:1/a", "*://*", ""]))
def test_whatever_is_said_gives_a_grant_that_can_be_kept_or_none(text: str, begin: str) -> None:
    """What comes out of a flag is the same after it was written and read, and never more than one host of one scheme."""
    for read in (_parse_fs, _parse_request, _parse_websocket):
        try:
            found = read(begin + text)
        except ValueError:
            continue
        if isinstance(found, FsGrant):
            assert os.path.isabs(found.root)
            assert found.operations
        else:
            assert found.scheme
            assert found.host
            assert not set(found.host) & set("/@?#\\ ")
            assert len(found.path_prefixes) <= 1
        kind = "fs" if isinstance(found, FsGrant) else "websocket" if read is _parse_websocket else "request"
        digest = "sha256:" + "0" * 64
        meant = Enablement(id="user:a", grants=replace(Grants(id="user:a", version="1", digest=digest), **{kind: (found,)}))
        assert resolution.read_plugin_settings(tomllib.loads(grants.format_enablement(meant))).enabled == (meant,)


def test_what_toml_cannot_say_is_no_config(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    ran = in_process_shell("guest", "grant", write_full(tmp_path), "--yes", "--config", '{"a": null}')
    assert ran.returncode == 2
    assert "TOML has no null" in ran.stderr


# -- the yes ----------------------------------------------------------------------------------------------------------------------


def run_on_terminal(
    shell: InProcessShell, answer: str, *arguments: str | Path, stdout: int = subprocess.PIPE, stderr: int = subprocess.STDOUT
) -> tuple[int, str]:
    """The command on a terminal where somebody types that; its status, and what was seen there."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    os.write(ours, answer.encode())
    command = [sys.executable, "-m", "serai", *map(str, arguments)]
    with subprocess.Popen(command, env=shell.env, cwd=shell.cwd, stdin=theirs, stdout=stdout, stderr=stderr) as ran:
        try:
            said, told = ran.communicate(timeout=60)
        finally:
            os.close(theirs)
            os.close(ours)
    return ran.returncode, ((said or b"") + (told or b"")).decode()


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("Y\n", 0), ("\n", 1), ("n\n", 1), ("yes please\n", 1), ("\x04", 1)])
def test_only_a_yes_is_one(in_process_shell: InProcessShell, tmp_path: Path, answer: str, status: int) -> None:
    ended, seen = run_on_terminal(in_process_shell, answer, "guest", "grant", write_plugin(tmp_path / "echo"))
    assert ended == status, seen
    assert "grant that to user:acme.echo ? [y/N]" in seen
    assert (in_process_shell.home / "plugins.toml").exists() == (status == 0)


def test_who_is_asked_has_seen_it_wherever_stdout_goes(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    for more in ((), ("--json",)):
        command = ("guest", "grant", write_full(tmp_path), *more)
        _, seen = run_on_terminal(in_process_shell, "n\n", *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert "permission host_api.fs" in seen.partition("[y/N]")[0]


# -- the file ---------------------------------------------------------------------------------------------------------------------


def test_the_file_is_for_this_user_alone_and_keeps_the_others(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        assert in_process_shell("guest", "grant", write_plugin(tmp_path / name, id=name), "--yes").returncode == 0
    file = in_process_shell.home / "plugins.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.id for one in GrantsFile(file).read()] == ["user:two", "user:one"]
    assert sorted(path.name for path in in_process_shell.home.iterdir()) == [".plugins.lock", "plugins", "plugins.toml"]


def test_what_is_granted_is_on_the_disk_before_it_takes_the_old_ones_place(
    in_process_shell: InProcessShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace_ = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append("sync " + os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def replaced(old: str, new: str) -> None:
        if new == str(in_process_shell.home / "plugins.toml"):
            done.append(f"replace {old}")
        replace_(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    assert in_process_shell("guest", "grant", write_plugin(tmp_path / "one", id="one"), "--yes").returncode == 0
    (temporary,) = [one.removeprefix("replace ") for one in done if one.startswith("replace ")]
    assert done.index(f"sync {temporary}") < done.index(f"replace {temporary}")


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    files = [GrantsFile(tmp_path / "plugins.toml") for _ in range(8)]
    threads = [threading.Thread(target=file.put, args=(build_enablement(f"user:p{place}"),)) for place, file in enumerate(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.id for one in files[0].read()} == {f"user:p{place}" for place in range(8)}


def build_enablement(id: str) -> Enablement:
    digest = "sha256:" + "0" * 64
    permissions = (Permission(kind="external_write"),)
    return Enablement(id=id, digest=digest, grants=Grants(id=id, version="1", digest=digest, permissions=permissions))


def test_a_file_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "plugins.toml"
    for text in ("[plugins", "[[plugins.enabled]]\nid = 1\n", "\xff"):
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(BadSettings):
            GrantsFile(file).put(build_enablement("user:a"))
        assert file.read_bytes() == text.encode("latin-1")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "plugins.toml").symlink_to("real/plugins.toml")
    GrantsFile(tmp_path / "plugins.toml").put(build_enablement("user:a"))
    assert (tmp_path / "plugins.toml").is_symlink()
    assert [one.id for one in GrantsFile(tmp_path / "real" / "plugins.toml").read()] == ["user:a"]


# -- what has changed -------------------------------------------------------------------------------------------------------------


def test_a_change_is_shown_as_a_difference(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    assert in_process_shell("guest", "grant", folder, "--yes").returncode == 0
    assert "the same as before" in in_process_shell("guest", "grant", folder, "--yes").stdout
    write_full(tmp_path, version="2.0.0", tools=("echo", "wipe"))
    ran = in_process_shell("guest", "grant", folder)
    assert ran.returncode == 1
    _, _, changed = ran.stdout.partition("changed since it was granted:")
    for line in ("version 1.0.0 -> 2.0.0", "+ tool wipe", "+ permission host_api.fs", "+ request target https://api.example.com"):
        assert line in changed
    assert "it gets now: permission host_api.fs" in changed
    assert read_enablement(in_process_shell)["version"] == "1.0.0"


def test_without_the_old_copy_the_difference_says_so(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    assert in_process_shell("guest", "grant", folder, "--yes").returncode == 0
    for copy in (in_process_shell.home / "plugins").iterdir():
        copy.unlink()
    write_full(tmp_path)
    assert "no copy of sha256:" in in_process_shell("guest", "grant", folder).stdout


def test_what_config_toml_says_counts_as_before(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    in_process_shell.home.mkdir()
    (in_process_shell.home / "config.toml").write_text(in_process_shell("guest", "grant", folder, "--print").stdout)
    ran = in_process_shell("guest", "grant", folder, "--yes")
    assert "the same as before" in ran.stdout
    assert "is enabled in your config.toml or the project's too" in ran.stderr


def test_nothing_of_a_manifest_reaches_the_terminal_as_it_is(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    evil = '[[request]]\nscheme = "https"\nhost = "a\\u001b[2J\\n  gets:"\nmethods = ["GET"]'
    folder = write_plugin(
        tmp_path / "echo", evil, version="1\\u001b[31m\\nforged", permissions=("surfaces.tool", "tool.echo", "host_api.request")
    )
    ran = in_process_shell("guest", "grant", folder, "--yes")
    assert ran.returncode == 0, ran.stderr
    again = write_plugin(tmp_path / "echo", permissions=("surfaces.tool", "tool.echo"))
    seen = (
        ran.stdout
        + ran.stderr
        + in_process_shell("guest", "grant", again).stdout
        + in_process_shell("guest", "list", "-e", again).stdout
    )
    assert "\x1b" not in seen
    assert not any(line.startswith("forged") for line in seen.splitlines())
    assert "\x1b" not in in_process_shell("guest", "grant", folder, "--print").stdout


# -- by name, and back ------------------------------------------------------------------------------------------------------------


def test_by_name_among_the_stores(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    write_plugin(in_process_shell.home / "guests" / "echo")
    for name in ("acme.echo", "yoi:acme.echo", "user:acme.echo"):
        form = parse_report(in_process_shell("guest", "grant", name, "--yes", "--json"))
        assert (form["id"], form["granted"]) == ("user:acme.echo", True)
    write_plugin(in_process_shell.cwd / ".serai" / "guests" / "echo")
    ran = in_process_shell("guest", "grant", "acme.echo", "--yes")
    assert ran.returncode == 1
    assert "project:acme.echo or user:acme.echo" in ran.stderr
    (in_process_shell.cwd / "nobody").mkdir()  # a folder, but no plugin's
    ran = in_process_shell("guest", "grant", "nobody", "--yes")
    assert ran.returncode == 1
    assert "there is no plugin nobody" in ran.stderr


def test_a_bare_word_means_one_of_the_stores_before_what_lies_here(in_process_shell: InProcessShell) -> None:
    write_plugin(in_process_shell.home / "guests" / "echo", id="echo", version="1.0.0")
    write_plugin(in_process_shell.cwd / "echo", id="echo", version="6.6.6")  # of whoever sent this folder
    assert parse_report(in_process_shell("guest", "grant", "echo", "--yes", "--json"))["version"] == "1.0.0"
    assert parse_report(in_process_shell("guest", "grant", "./echo", "--yes", "--json"))["version"] == "6.6.6"
    write_plugin(in_process_shell.cwd / "other", id="other")
    assert parse_report(in_process_shell("guest", "grant", "other", "--yes", "--json"))["id"] == "user:other"


def test_a_projects_own_by_its_path_is_the_projects(in_process_shell: InProcessShell) -> None:
    path = write_plugin(in_process_shell.cwd / ".serai" / "guests" / "echo")
    assert parse_report(in_process_shell("guest", "grant", path, "--yes", "--json"))["id"] == "project:acme.echo"


def test_what_stands_in_its_way_is_told(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "echo")
    assert "`serai guest add" in in_process_shell("guest", "grant", folder, "--yes").stderr
    write_plugin(in_process_shell.home / "guests" / "echo", version="0.9")
    assert "is another, and is refused now" in in_process_shell("guest", "grant", folder, "--yes").stderr
    (in_process_shell.home / "config.toml").write_text("[feature.plugins]\nenabled = false\n")
    assert "plugins are switched off" in in_process_shell("guest", "grant", folder, "--yes").stderr


def test_revoke_takes_it_back(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert in_process_shell("guest", "grant", write_plugin(tmp_path / name, id=name), "--yes").returncode == 0
    form = parse_report(in_process_shell("guest", "revoke", "one", "--json"))
    assert form == {"id": "user:one", "file": str(in_process_shell.home / "plugins.toml"), "revoked": True}
    assert read_enablement(in_process_shell)["id"] == "user:two"
    ran = in_process_shell("guest", "revoke", "one")
    assert ran.returncode == 1
    assert "nothing was granted to one" in ran.stderr
    assert parse_report(in_process_shell("guest", "list", "--json", "-e", tmp_path / "one"))["items"][0]["status"] == "disabled"


def test_what_config_toml_enables_is_not_ours_to_revoke(in_process_shell: InProcessShell, tmp_path: Path) -> None:
    in_process_shell.home.mkdir()
    snippet = in_process_shell("guest", "grant", write_plugin(tmp_path / "echo"), "--print").stdout
    (in_process_shell.home / "config.toml").write_text(snippet)
    ran = in_process_shell("guest", "revoke", "acme.echo")
    assert ran.returncode == 1
    assert "config.toml: take it out there" in ran.stderr
