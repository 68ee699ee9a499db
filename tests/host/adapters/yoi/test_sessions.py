"""Plugins in a host and in a session: started, reloaded, and kept as what they were (spec yoi 9, 10.2, 12)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.app.app import App
from serai.errors import BadSession, NotAllowed
from serai.host.host import Host
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.package import compute_digest
from serai.store.stored_session import StoredSession as Stored
from serai.tools import BuiltInTools
from serai.wire.plain_process import PlainSpawner
from tests.support.agents.scripted_models import Answers, call, reply
from tests.support.app.apps import build_environ, close_app, create_app, open_app, sessions_of
from tests.support.host import zot_guests
from tests.support.yoi import components
from tests.support.yoi.plugin_packages import enable, files, format_toml, grant, write_folder, write_package


def echo(tool: str = "echo", **about: Any) -> dict[str, bytes]:
    return files(component=components.tool(), tool=tool, **about)


def store_of(tmp_path: Path) -> Path:
    return tmp_path / "home" / "guests"


async def content_of(host: Host, tool: str = "echo") -> str:
    result = await host.call_tool(tool, {"a": 1})
    assert not result.is_error, result
    return result.text


# -- in a host


async def test_a_package_of_the_users_store_runs_and_its_copy_is_kept(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    async with zot_guests.open_host(tmp_path, config=enable(grant("user:echo", echo()))) as host:
        assert '{"a":1}' in await content_of(host)
        assert [(row.id, row.state) for row in host.report.guests] == [("yoi:echo", "ready")]
    copies = [path.name for path in (tmp_path / "home" / "plugins").iterdir()]
    assert copies == [f"{compute_digest(echo()).removeprefix('sha256:')}.yoi-plugin"]


@pytest.mark.req("yoi.conform.16", "yoi.edge.34")
async def test_a_package_that_changes_between_finding_and_starting_does_not_run(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    host = zot_guests.build_host(tmp_path, config=enable(grant("user:echo", echo())))
    found = host._search()

    def changing() -> Any:
        write_package(store_of(tmp_path), content=echo(more='description = "another"'))
        return found

    host._search = changing
    try:
        await host.start()
        [row] = host.report.guests
        assert row.state != "ready"
        assert "resolved plugin package digest does not match current package content" in row.why
    finally:
        await zot_guests.close_host(host)


@pytest.mark.req("yoi.rule.055")
async def test_finding_runs_compiles_and_writes_nothing(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    host = zot_guests.build_host(tmp_path, config=enable(grant("user:echo", echo())))
    before = sorted(tmp_path.rglob("*"))
    assert [manifest.id for manifest in host._search().guests] == ["yoi:echo"]
    assert sorted(tmp_path.rglob("*")) == before
    await host.close()


@pytest.mark.req("yoi.edge.35")
async def test_a_tool_named_like_a_built_in_one_loses_unless_the_guest_may_replace_it(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo(tool="read"))
    config = enable(grant("user:echo", echo(tool="read"), tool="read"))
    async with PlainSpawner() as spawner:
        built_in = BuiltInTools(str(tmp_path), spawner=spawner)
        async with zot_guests.open_host(tmp_path, config=config, built_in=built_in) as host:
            assert host.table.tools["read"].owner.id == "serai"
            assert [(entry.guest, entry.name, entry.by) for entry in host.table.shadowed] == [("yoi:echo", "read", "serai")]
        granted_too = {**config, "guest": {"yoi:echo": {"replace": ["read"]}}}
        async with zot_guests.open_host(tmp_path, config=granted_too, built_in=built_in) as host:
            assert host.table.tools["read"].owner.id == "yoi:echo"


@pytest.mark.req("yoi.rule.068")
async def test_of_two_plugins_with_one_tool_the_first_has_it_until_it_goes(tmp_path: Path) -> None:
    first = write_package(store_of(tmp_path), "z.yoi-plugin", echo(id="a"))
    write_package(store_of(tmp_path), "y.yoi-plugin", echo(id="b"))
    config = enable(grant("user:a", echo(id="a")), grant("user:b", echo(id="b")))
    async with zot_guests.open_host(tmp_path, config=config) as host:
        assert host.table.tools["echo"].owner.id == "yoi:a"
        assert [(entry.guest, entry.name) for entry in host.table.shadowed] == [("yoi:b", "echo")]
        first.unlink()
        await host.reload()
        assert (host.table.tools["echo"].owner.id, host.table.shadowed) == ("yoi:b", ())


@pytest.mark.parametrize("as_folder", [False, True])
async def test_a_changed_package_that_is_not_granted_leaves_the_running_one_and_the_person_is_told(
    tmp_path: Path, as_folder: bool
) -> None:
    def write(content: dict[str, bytes]) -> Path:
        return (
            write_folder(store_of(tmp_path) / "echo", content) if as_folder else write_package(store_of(tmp_path), content=content)
        )

    write(echo())
    surface = zot_guests.AwaitableSurface()
    async with zot_guests.open_host(tmp_path, config=enable(grant("user:echo", echo())), surface=surface) as host:
        pid = host.guest("echo").running.pid  # type: ignore[union-attr]
        write({**echo(), "README.md": b"changed"})
        report = await host.reload("echo")
        assert host.guest("echo").running.pid == pid  # type: ignore[union-attr]
        assert '{"a":1}' in await content_of(host)
        why = "enabled plugin digest does not match package digest"
        assert any(why in line for line in report.to_lines())
        assert any(why in str(action) for action in surface.actions)


async def test_a_changed_package_is_seen_by_the_watcher(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    surface = zot_guests.AwaitableSurface()
    config = enable(grant("user:echo", echo()))
    async with zot_guests.open_host(tmp_path, config=config, surface=surface, watch=True, limits={"reload_wait": 0.01}):
        write_package(store_of(tmp_path), content=echo(version="0.2.0"))
        await surface.shown(lambda action: "enabled plugin digest does not match" in str(action))


async def test_a_trusted_projects_plugin_runs_and_one_that_is_not_does_not(tmp_path: Path) -> None:
    project = tmp_path / "project" / ".serai" / "guests"
    write_package(project, content=echo())
    config = enable(grant("project:echo", echo()))
    async with zot_guests.open_host(tmp_path, config=config) as host:
        assert (list(host.guests), len(host.report.untrusted)) == ([], 1)
    from serai.host.trust import Trust

    Trust.usual({"SERAI_HOME": str(tmp_path / "home")}).allow(tmp_path / "project")
    async with zot_guests.open_host(tmp_path, config=config) as host:
        assert '{"a":1}' in await content_of(host)


# -- in a session


def settle(tmp_path: Path, *contents: dict[str, bytes]) -> None:
    """What `serai guest grant` has written of them."""
    entries = [grant("user:echo", content, version=_version(content)) for content in contents]
    (tmp_path / "home" / "plugins.toml").write_text(format_toml(enable(*entries)))


def _version(content: dict[str, bytes]) -> str:
    return next(line for line in content["plugin.toml"].decode().splitlines() if line.startswith("version")).split('"')[1]


def answer_with_call() -> Answers:
    return Answers([reply("", call("echo", a=1))], [reply("done")])


def open_stored(tmp_path: Path) -> Stored:
    [one] = sessions_of(tmp_path).list()
    return Stored(one.path)


@pytest.mark.req("yoi.rule.060", "yoi.rule.061", "yoi.conform.15", "yoi.conform.16")
async def test_a_session_that_goes_on_has_the_plugin_that_it_began_with(tmp_path: Path) -> None:
    path = write_package(store_of(tmp_path), content=echo())
    settle(tmp_path, echo())
    async with open_app(tmp_path, answers=answer_with_call(), installed=True) as app:
        await app.submit("do it")
    with open_stored(tmp_path) as session:
        kept = session.read_plugins()
        assert kept is not None
        [record] = msgspec.convert(msgspec.json.decode(kept)["records"], tuple[ResolvedPlugin, ...])
        assert (record.identity, record.digest, record.package_path) == ("user:echo", compute_digest(echo()), str(path))
        assert record.manifest.tools[0].name == "echo"
    newer = echo(version="0.2.0")
    write_package(store_of(tmp_path), content=newer)
    settle(tmp_path, newer)
    async with open_app(tmp_path, answers=answer_with_call(), installed=True, session="latest") as app:
        assert versions(app) == {"yoi:echo": "0.1.0"}
        assert '{"a":1}' in await content_of(app.host)
        await app.submit("again")
    with open_stored(tmp_path) as session:
        assert session.read_plugins() == kept
    async with open_app(tmp_path, answers=answer_with_call(), installed=True) as app:  # a new one
        assert versions(app) == {"yoi:echo": "0.2.0"}


def versions(app: App) -> dict[str, str]:
    assert not app.host.report.failed, app.host.report.to_lines()
    return {id: guest.manifest.version for id, guest in app.host.guests.items()}


@pytest.mark.req("yoi.conform.15", "yoi.rule.061")
async def test_without_a_copy_the_session_goes_on_without_the_plugin_and_says_why(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    settle(tmp_path, echo())
    async with open_app(tmp_path, answers=answer_with_call(), installed=True) as app:
        await app.submit("do it")
    write_package(store_of(tmp_path), content=echo(version="0.2.0"))
    for copy in (tmp_path / "home" / "plugins").iterdir():
        copy.unlink()
    app = create_app(tmp_path, answers=answer_with_call(), installed=True, session="latest")
    report = await app.open()
    try:
        assert any("resolved plugin package digest does not match current package content" in line for line in report.to_lines())
        assert report.failed[0].id == "yoi:echo"
    finally:
        await close_app(app)


async def test_a_fork_keeps_the_plugins_too(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    settle(tmp_path, echo())
    async with open_app(tmp_path, answers=answer_with_call(), installed=True) as app:
        await app.submit("do it")
    with open_stored(tmp_path) as session, session.fork() as fork:
        assert fork.read_plugins() == session.read_plugins() is not None


async def test_a_session_without_plugins_keeps_nothing_of_them(tmp_path: Path) -> None:
    async with open_app(tmp_path, answers=Answers([reply("done")])) as app:
        await app.submit("do it")
    with open_stored(tmp_path) as session:
        assert (session.read_plugins(), session.meta.plugins) == (None, "")
    write_package(store_of(tmp_path), content=echo())
    settle(tmp_path, echo())
    async with open_app(tmp_path, answers=answer_with_call(), installed=True, session="latest") as app:
        assert versions(app) == {"yoi:echo": "0.1.0"}


async def test_a_session_in_which_nothing_was_said_is_not_kept_for_a_plugins_sake(tmp_path: Path) -> None:
    write_package(store_of(tmp_path), content=echo())
    settle(tmp_path, echo())
    async with open_app(tmp_path, answers=answer_with_call(), installed=True):
        pass
    assert sessions_of(tmp_path).list() == []


def test_nobody_else_writes_a_plan_into_a_session(tmp_path: Path) -> None:
    """It would be a grant."""
    with sessions_of(tmp_path).create(str(tmp_path)) as session, pytest.raises(NotAllowed):
        session.append_entry("plugins", {"records": []})


async def test_a_plan_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with sessions_of(tmp_path).create(os.fspath(tmp_path / "project"), agent="resident") as session:
        session.append_user("hello")
        session.keep_plugins({"records": [{"identity": "user:echo"}]})
    app = create_app(tmp_path, answers=answer_with_call(), session="latest", environ=build_environ(tmp_path))
    with pytest.raises(BadSession, match="what it keeps of its plugins cannot be read"):
        await app.open()
    await app.close()


@pytest.mark.req("yoi.edge.33")
async def test_native_code_comes_from_our_own_cache_and_never_from_a_package(tmp_path: Path) -> None:
    import wasmtime
    from wasmtime.component import Component

    config = wasmtime.Config()
    config.epoch_interruption = True
    native = bytes(Component(wasmtime.Engine(config), components.tool()).serialize())
    contents = files(id="native", component=native), echo()
    for number, content in enumerate(contents):
        write_package(store_of(tmp_path), f"{number}.yoi-plugin", content)
    both = enable(grant("user:native", contents[0]), grant("user:echo", contents[1]))
    async with zot_guests.open_host(tmp_path, config=both) as host:
        assert '{"a":1}' in await content_of(host)
        assert [row.id for row in host.report.failed] == ["yoi:native"]
    cache = tmp_path / "home" / "wasm"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    compiled = list(cache.glob("*.cwasm"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in compiled] == [0o600]
    assert native not in [path.read_bytes() for path in cache.iterdir() if path.is_file()]
