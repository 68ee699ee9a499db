"""The conformance suite that every backend passes (spec hooks 8): the same tests for all, as root and as an ordinary user.

What a capabilities record claims is tested; what it does not claim must be refused, not forgotten.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serai.boxes import Boxes
from serai.boxes.backends.local import LocalBackend
from serai.boxes.backends.namespaces import NamespacesLaunch
from serai.dialects.hookproto.host_side import BoxFile
from serai.errors import BoxNotFound, BoxRefused, SeraiError
from tests.support import needs
from tests.support.boxes.harness import Harness, read_output

NOBODY = 65534
Check = Callable[[Harness, Boxes], Awaitable[None]]


def list_kinds() -> list[Any]:
    """By whom boxes are made. Root also tries what an ordinary user gets, in a child that is one."""
    if os.geteuid() == 0:
        slow = (pytest.param(kind, marks=pytest.mark.slow) for kind in ("namespaces of a user", "process of a user"))
        return ["namespaces", "process", "bubblewrap of a user", *slow]
    return ["namespaces", "bubblewrap", "process"]


@asynccontextmanager
async def open_boxes(harness: Harness, kind: str) -> AsyncIterator[Boxes]:
    async with harness.boxes(backend="process" if kind == "process" else "namespaces") as boxes:
        if kind == "bubblewrap":
            boxes._backends["namespaces"] = LocalBackend(NamespacesLaunch("bwrap"), boxes.home, boxes.limits, boxes._open_client)
        yield boxes


def conformance(check: Check) -> Callable[[str, pytest.TempPathFactory], None]:
    """A test for each kind, in a process of the user that it is about."""

    @pytest.mark.parametrize("kind", list_kinds())
    def test(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        kind, _, user = kind.partition(" of ")
        if kind == "bubblewrap":
            needs.require("bwrap")
        if kind != "process":
            needs.require("user-namespaces" if user else "namespaces")
        # Not in the folder of pytest, where only its own user may look.
        folder = Path(tempfile.mkdtemp(prefix="serai-box-")) if user else tmp_path_factory.mktemp("box")

        async def play() -> None:
            harness = Harness(folder)
            async with open_boxes(harness, kind) as boxes:
                assert boxes.backend(boxes.backend_name).missing == ""
                await check(harness, boxes)
            assert harness.left() == []

        if user:
            run_as_nobody(folder, play)
            shutil.rmtree(folder)
        else:
            asyncio.run(play())

    test.__name__ = check.__name__
    return test


def run_as_nobody(folder: Path, play: Callable[[], Awaitable[None]]) -> None:
    """In a child without privileges: what goes wrong there is told by its status and its stderr."""
    os.chown(folder, NOBODY, NOBODY)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            if not os.access(sys.executable, os.X_OK):  # in somebody's home
                sys.executable = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
            asyncio.run(play())  # type: ignore[arg-type]
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0


@pytest.mark.req("hooks.rule.8-contract")
@conformance
async def test_create_list_exec_destroy(harness: Harness, boxes: Boxes) -> None:
    backend = boxes.backend(boxes.backend_name)
    box = await boxes.create("web")
    [seen] = await backend.list()
    assert (seen.box_id, seen.generation, seen.state) == ("web", box.generation, "running")
    result = await box.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
    assert (await box.exec("kill -9 $$")).exit_code == -1
    instance = await backend.find("web")
    await box.destroy()
    await instance.destroy()
    await instance.destroy()
    assert list(await backend.list()) == []


@pytest.mark.req("hooks.rule.8-find-exact", "hooks.scenario.backend-08")
@conformance
async def test_find_is_exact(harness: Harness, boxes: Boxes) -> None:
    backend = boxes.backend(boxes.backend_name)
    box = await boxes.create("web-1")
    for name in ("web-1", box.generation):
        assert (await backend.find(name)).generation == box.generation
    for name in ("web", "WEB-1", box.generation[:12], "nobody", ""):
        with pytest.raises(BoxNotFound):
            await backend.find(name)


@pytest.mark.req("hooks.rule.8-contract")
@conformance
async def test_a_taken_id_is_refused(harness: Harness, boxes: Boxes) -> None:
    box = await boxes.create("web")
    backend = boxes.backend(boxes.backend_name)
    with pytest.raises(BoxRefused, match="already in use"):
        await backend.provision(box.record.wanted, boxes.holder(box.record))
    assert await read_output(box, "echo unharmed") == "unharmed\n"


@pytest.mark.req("hooks.rule.8-contract", "hooks.rule.4-files-before-script")
@conformance
async def test_files_are_there_before_the_script_whose_effect_is_seen(harness: Harness, boxes: Boxes) -> None:
    given = [BoxFile(path="/root/given/file", content=b"\0\xff", mode=0o640, uid=0, gid=0)]
    script = b"#!/bin/sh\ncp given/file copy && stat -c %a given given/file > modes\n"
    box = await boxes.create("web", files=given, script=script)
    assert box.record.status == "ready"
    assert (await box.control.get("/root/copy"), await box.control.get("/root/modes")) == (b"\0\xff", b"755\n640\n")


@pytest.mark.req("hooks.rule.8-contract")
@conformance
async def test_a_failing_script_keeps_a_reachable_box_with_its_output(harness: Harness, boxes: Boxes) -> None:
    box = await boxes.create("web", script=b"#!/bin/sh\necho it broke >&2; exit 9\n")
    assert box.record.last_error == "init script failed: exit status 9\n\nit broke"
    assert await read_output(box, "echo reachable") == "reachable\n"


@pytest.mark.req("hooks.rule.8-contract", "hooks.rule.3.5-pause")
@conformance
async def test_pause_and_resume_keep_the_disk(harness: Harness, boxes: Boxes) -> None:
    box = await boxes.create("web")
    await read_output(box, 'echo kept > "$HOME/file"')
    await box.pause()
    assert box.record.state == "paused"
    with pytest.raises(SeraiError):
        await box.exec("true")
    await box.resume()
    assert box.record.state == "running"
    assert await read_output(box, 'cat "$HOME/file"') == "kept\n"


@pytest.mark.req("hooks.box.kept")
@pytest.mark.req("hooks.rule.8-close", "hooks.scenario.backend-09")
@conformance
async def test_closing_leaves_kept_boxes_and_another_finds_them(harness: Harness, boxes: Boxes) -> None:
    if isinstance(boxes.backend("namespaces"), LocalBackend) and boxes.backend("namespaces").kind._wanted == "bwrap":  # type: ignore[attr-defined]
        return  # which launcher is used is not a setting of boxes: another manager would take its own
    box = await boxes.create("web", kept=True)
    async with harness.boxes() as others:
        found = await others.get("web")
        assert await read_output(found, "echo found") == "found\n"
        await others.backend(found.record.backend).close()
        assert await read_output(box, "echo still") == "still\n"
        await others.destroy("web")
    assert await boxes.list() == []


@pytest.mark.req("hooks.scenario.backend-02")
@conformance
async def test_limits_hold_where_they_are_claimed_and_are_refused_where_not(harness: Harness, boxes: Boxes) -> None:
    limits = boxes.backend(boxes.backend_name).capabilities.limits
    for name, value, claimed in (("memory", 64 << 20, limits.memory), ("cpus", 0.5, limits.cpus), ("pids", 20, limits.pids)):
        if not claimed:
            with pytest.raises(BoxRefused, match=f"limit of {name} cannot be held"):
                await boxes.create(f"no-{name}", **{name: value})  # type: ignore[arg-type]
    if limits.memory:
        box = await boxes.create("memory", memory=64 << 20)
        hungry = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c"
        assert (await box.exec(hungry)).stdout.strip() != b"200000000"
        assert await read_output(box, "echo the porter lives") == "the porter lives\n"
    if limits.pids:
        box = await boxes.create("pids", pids=20)
        forks = "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done 2>&1; jobs -p | wc -l; kill $(jobs -p)"
        result = await box.exec(forks)
        assert b"ork" in result.stdout + result.stderr or result.exit_code != 0, result  # Cannot fork
        await box.control.signal(9)
        assert await read_output(box, "echo the porter lives") == "the porter lives\n"


@conformance
async def test_ports_inside_are_reached_where_it_is_claimed(harness: Harness, boxes: Boxes) -> None:
    box = await boxes.create("web")
    if not boxes.backend(boxes.backend_name).capabilities.dial:
        with pytest.raises(SeraiError):
            await box.control.dial(8080)
        return
    with pytest.raises(SeraiError, match="port 8080: Connection refused"):
        await box.control.dial(8080)


@pytest.mark.req("hooks.owner.02", "hooks.naive.17")
@conformance
async def test_owners_are_exact_where_it_is_claimed_and_else_the_one_user_of_the_box(harness: Harness, boxes: Boxes) -> None:
    full = boxes.backend(boxes.backend_name).capabilities.ownership == "full"
    given = [BoxFile(path="/root/mine", content=b"x", mode=0o600, uid=1000, gid=1001)]
    box = await boxes.create("web", files=given)
    found = await box.control.get_into("/root/mine", lambda _: None)
    user, group = map(int, (await read_output(box, "id -u; id -g")).split())  # as whom its commands run
    assert (found.uid, found.gid) == ((1000, 1001) if full else (user, group))
    assert found.mode == 0o600
