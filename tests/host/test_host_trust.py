"""Who may start at all, and what may not run without its guards (design rules 8 and 12)."""

from __future__ import annotations

import asyncio
import os
import signal
from os import kill
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadSettings, GuardDown, NotTrusted
from serai.host.guest import GuestState
from serai.host.host import Host
from serai.host.trust import Trust
from serai.model.contributions import Refuse
from tests.support.host.zot_guests import NOTE, PRELUDE, build_host, log_of, make, open_host, pid_of, pids, wait_for_state

WORKER = "remember(tools=('work',))"
GUARD = f"{NOTE}remember(subscribe(intercept=['tool_call']), tools=())"


def project_place(tmp_path: Path, dialect: str = "zot") -> Path:
    return tmp_path / "project" / {"zot": ".zot/extensions", "serai": ".serai/guests"}[dialect]


def user_place(tmp_path: Path) -> Path:
    return tmp_path / "home" / "guests"


def trust(tmp_path: Path) -> None:
    Trust.usual({"SERAI_HOME": str(tmp_path / "home")}).allow(tmp_path / "project")


@pytest.mark.req("zot.rule.1.2-trust")
@pytest.mark.parametrize("dialect", ["zot", "serai"])
async def test_a_projects_guests_start_only_once_it_is_trusted(tmp_path: Path, dialect: str) -> None:
    folder = make(project_place(tmp_path, dialect), NOTE + WORKER)
    async with open_host(tmp_path) as host:
        assert (list(host.guests), pids(folder)) == ([], [])
        (line,) = host.report.to_lines()
        assert line == f"not trusted: zot:probe in {folder}: it was never trusted; `serai trust` in that folder lets it start"
        await host.reload()
        assert pids(folder) == []
        trust(tmp_path)
        assert (await host.reload()).to_lines() == []
        assert not (await host.call_tool("work")).is_error
        assert len(pids(folder)) == 1


@pytest.mark.req("host.trust.pinned")
@pytest.mark.req("zot.rule.1.2-trust")
@pytest.mark.parametrize("file", ["guest.py", "extension.json", "guest.toml"])
async def test_a_changed_file_withdraws_the_trust(tmp_path: Path, file: str) -> None:
    """What runs goes on as it was trusted; what has changed is not started, now or later."""
    folder = make(project_place(tmp_path), NOTE + WORKER, settings="watch = true\n")
    trust(tmp_path)
    async with open_host(tmp_path) as host:
        pid = pid_of(host, "probe")
        (folder / file).write_text((folder / file).read_text() + "\n")
        report = await host.reload()
        assert report.untrusted == (f"zot:probe in {folder}: it has changed since it was trusted: {file}",)
        assert pid_of(host, "probe") == pid
        assert f"not reloaded: it has changed since it was trusted: {file}" in log_of(host, "probe")
        assert not (await host.call_tool("work")).is_error
    async with open_host(tmp_path) as host:
        assert list(host.guests) == []
        assert len(pids(folder)) == 1


@pytest.mark.req("host.trust.pinned")
async def test_what_has_changed_is_not_started_again_after_a_crash(tmp_path: Path) -> None:
    """Trust is asked before every process, not only when the guest is found."""
    folder = make(project_place(tmp_path), NOTE + WORKER)
    trust(tmp_path)
    async with open_host(tmp_path, limits={"restart_wait": 0.01}) as host:
        (folder / "guest.py").write_text("raise SystemExit('never')")
        kill(pid_of(host, "probe"), signal.SIGKILL)
        await wait_for_state(host, "probe", GuestState.GONE)
        error = host.guest("probe").error
        assert isinstance(error, NotTrusted)
        assert error.message == "it has changed since it was trusted: guest.py"
        assert len(pids(folder)) == 1


@pytest.mark.req("zot.rule.1.2-trust")
@pytest.mark.parametrize("homes", [False, ["zot"]])
async def test_zots_own_home_is_searched_only_when_switched_on(tmp_path: Path, homes: Any) -> None:
    folder = make(tmp_path / "zot" / "extensions", NOTE + WORKER)
    config = {"guests": {"homes": homes}}
    async with open_host(tmp_path, environ={"ZOT_HOME": str(tmp_path / "zot")}, config=config) as host:
        assert [row.scope for row in host.report.guests] == (["zot home"] if homes else [])
        assert len(pids(folder)) == (1 if homes else 0)


@pytest.mark.req("zot.ours.1.2-only-winner-starts")
async def test_of_two_folders_with_one_name_only_the_winner_is_started(tmp_path: Path) -> None:
    winner = make(user_place(tmp_path), f"{NOTE}remember(tools=('winner',))", name="a")
    loser = make(user_place(tmp_path), f"{NOTE}remember(tools=('loser',))", name="b")
    (loser / "extension.json").write_text((loser / "extension.json").read_text().replace('"b"', '"a"'))
    async with open_host(tmp_path) as host:
        assert [tool.name for tool in host.tools] == ["winner"]
        assert (len(pids(winner)), pids(loser)) == (1, [])
        (line,) = host.report.to_lines()
        assert line == f"extension load: {loser}: zot:a is there already, from {winner}: this one is not started"
        await host.reload()
        assert (len(pids(winner)), pids(loser)) == (2, [])


@pytest.mark.req("zot.edge.43")
async def test_a_link_to_a_working_copy_is_started_like_a_folder(tmp_path: Path) -> None:
    folder = make(tmp_path / "work", NOTE + WORKER)
    user_place(tmp_path).mkdir(parents=True)
    (user_place(tmp_path) / "linked").symlink_to(folder)
    async with open_host(tmp_path) as host:
        assert not (await host.call_tool("work")).is_error
        assert len(pids(folder)) == 1


# -- guards ---------------------------------------------------------------------------------------------------------------------


async def assert_blocked(host: Host, why: str) -> None:
    """Not a tool, not a turn; and a run would not even begin."""
    result = await host.call_tool("work")
    assert (result.is_error, result.code) == (True, "BLOCKED"), result
    assert why in result.text
    assert isinstance(await host.intercept("turn_start", 1), Refuse)
    with pytest.raises(GuardDown) as raised:
        host.require_guards()
    assert why in str(raised.value)
    assert "serai guest disable" in raised.value.hint
    assert why in host.report.guards_down
    assert not host.report.ok
    assert any(line.startswith("guard: ") and why in line for line in host.report.to_lines())


async def assert_unblocked(host: Host) -> None:
    assert not (await host.call_tool("work")).is_error
    host.require_guards()
    assert host.report.guards_down == ""


@pytest.mark.req("host.trust.hidden-guard")
async def test_nothing_runs_while_a_project_hides_a_guard(tmp_path: Path) -> None:
    """An empty folder of the same name is enough for zot; it must not be enough to switch a guard off."""
    guard = make(user_place(tmp_path), GUARD, name="guard", settings="guard = true\n")
    worker = make(tmp_path, WORKER, name="worker")
    hider = project_place(tmp_path) / "guard"
    hider.mkdir(parents=True)
    async with open_host(tmp_path, worker) as host:
        await assert_blocked(host, f"{guard}: the project's {hider} hides this guard")
        hider.rmdir()
        await host.reload()
        await assert_unblocked(host)
        hider.mkdir()
        await host.reload("worker")  # whatever is reloaded
        await assert_blocked(host, "hides this guard")


@pytest.mark.req("host.guard.missing")
async def test_nothing_runs_without_a_guard_that_the_settings_name(tmp_path: Path) -> None:
    worker = make(tmp_path, WORKER, name="worker")
    config = {"guest": {"zot:police": {"guard": True}}}
    async with open_host(tmp_path, worker, config=config) as host:
        await assert_blocked(host, "the guard zot:police is named in the settings and was not found")
        make(user_place(tmp_path), GUARD, name="police")
        await host.reload()
        await assert_unblocked(host)


@pytest.mark.req("host.guard.never-ready")
async def test_nothing_runs_while_a_guard_was_never_ready(tmp_path: Path) -> None:
    guard = make(tmp_path, "sys.exit('no rules')", name="guard", settings="guard = true\n")
    async with open_host(tmp_path, guard, make(tmp_path, WORKER, name="worker")) as host:
        await assert_blocked(host, "the guard zot:guard is gone: exited before hello (exit status 1); stderr ended with: no rules")
        (guard / "guest.py").write_text(f"{PRELUDE}\n{GUARD}\n")
        await host.reload("guard")
        await assert_unblocked(host)


@pytest.mark.req("host.guard.never-ready")
async def test_nothing_runs_before_a_guard_is_ready(tmp_path: Path) -> None:
    guard = make(tmp_path, f"open('go').read()\n{GUARD}", name="guard", settings="guard = true\n")
    os.mkfifo(guard / "go")
    host = build_host(tmp_path, guard, make(tmp_path, WORKER, name="worker"))
    starting = asyncio.create_task(host.start())
    await asyncio.sleep(0)
    try:
        await wait_for_state(host, "worker", GuestState.READY)
        await assert_blocked(host, "the guard zot:guard is starting")
        await asyncio.to_thread((guard / "go").write_text, "on")
        assert (await starting).ok
        await assert_unblocked(host)
    finally:
        await host.close()


@pytest.mark.parametrize("by", ["person", "author"])
async def test_a_guard_that_is_switched_off_does_not_count(tmp_path: Path, by: str) -> None:
    settings = "guard = true\n"
    manifest = {"enabled": False} if by == "author" else {}
    guard = make(user_place(tmp_path), GUARD, name="guard", settings=settings, **manifest)
    config = {"guest": {"guard": {"guard": True, "enabled": False}}} if by == "person" else {}
    async with open_host(tmp_path, make(tmp_path, WORKER, name="worker"), config=config) as host:
        await assert_unblocked(host)
        assert host.report.disabled == ("zot:guard",)
        assert host.report.ok
        assert pids(guard) == []


@pytest.mark.req("host.guard.run")
async def test_a_run_does_not_begin_while_a_guard_is_down_even_if_it_was_ready_once(tmp_path: Path) -> None:
    guard = make(tmp_path, GUARD, name="guard", settings="guard = true\n")
    async with open_host(tmp_path, guard, limits={"restart_wait": 25.0}) as host:
        host.require_guards()
        os.kill(pid_of(host, "guard"), 9)
        await wait_for_state(host, "guard", GuestState.BACKING_OFF)
        with pytest.raises(GuardDown, match="the guard zot:guard is backing off: ended"):
            host.require_guards()


async def test_a_guard_that_intercepts_nothing_is_told(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, WORKER, settings="guard = true\n")) as host:
        assert host.report.to_lines() == ["guard: the guard zot:probe intercepts nothing"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"guest": {"police": {"gaurd": True}}}, 'guest."police": Object contains unknown field `gaurd`'),
        ({"guest": {"police": {"guard": "yes"}}}, "Expected `bool`, got `str`"),
        ({"guest": {"police": {"limits": {"tol": 3}}}}, "there is no limit tol"),
        ({"guest": {"police": {"env": ["*_KEY"]}}}, "is not the name of a variable"),
        ({"guest": ["police"]}, "guest: Expected `object`"),
        ({"guests": {"homes": ["nowhere"]}}, "guests: "),
    ],
)
async def test_settings_that_cannot_be_are_an_error_before_anything_starts(tmp_path: Path, config: Any, why: str) -> None:
    folder = make(tmp_path, NOTE + WORKER)
    with pytest.raises(BadSettings) as raised:
        async with open_host(tmp_path, folder, config=config):
            pass
    assert why in str(raised.value)
    assert "config.toml" in str(raised.value)
    assert pids(folder) == []
