"""How boxes end: by request, by themselves, by their time; with their hooks, once, when they are gone."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys

import pytest

from serai.boxes.backends.local import find_processes
from serai.errors import BoxFailed, BoxNotFound, BoxRefused
from tests.support.boxes.harness import Harness, kill_box_server, read_output

OWNER = """
import asyncio, sys
from serai.boxes import Boxes

async def main():
    async with Boxes(sys.argv[1]) as boxes:
        await boxes.create("web")
        print("there", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""

# Tells what it finds of the box with that generation; and that it ran.
LOOKS = r"""#!/bin/sh
grep -q box.create && exec echo '{"state":"s"}'
generation=$(cat "$HERE/generation")
{
    [ -e "$HERE/boxes/$generation" ] && echo its folder
    grep -lsaE "(^|[^A-Z_])SERAI_BOX=$generation" /proc/[0-9]*/environ
} > "$HERE/found"
echo looked >> "$HERE/runs"
"""


@pytest.mark.req("hooks.naive.23", "hooks.rule.2.3-best-effort", "hooks.naive.31")
async def test_a_failing_destroy_hook_does_not_keep_the_box(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    fails = harness.hook("fails", '#!/bin/sh\ngrep -q create && { echo \'{"state":"very-secret-state"}\'; exit 0; }\nexit 5\n')
    with caplog.at_level(logging.DEBUG):
        async with harness.boxes(hooks=[fails, harness.mint]) as boxes:
            box = await boxes.create("web")
            assert (await box.destroy()).endswith("/fails: exit status 5")
            assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])
    assert "exit status 5" in caplog.text
    assert "very-secret-state" not in caplog.text


@pytest.mark.req("hooks.scenario.manager-05")
async def test_an_error_of_the_backends_destroy_is_told_and_the_record_stays(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")

        def stuck(*_: object) -> None:
            raise OSError("disk is busy")

        with monkeypatch.context() as patched:
            patched.setattr(type(boxes.backend("namespaces").kind), "release", stuck)  # type: ignore[attr-defined]
            with pytest.raises(BoxFailed, match="disk is busy"):
                await box.destroy()
        assert [record.box_id for record in await boxes.list()] == ["web"]
        assert harness.events == ["box.create"]
        await boxes.destroy("web")
        assert (harness.tokens, harness.left()) == ([], [])


@pytest.mark.req("hooks.scenario.manager-04")
async def test_an_error_of_the_backends_find_is_told(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async with harness.boxes() as boxes, harness.boxes() as others:
        await boxes.create("web")

        async def broken(name: str) -> None:
            raise BoxFailed("cannot look")

        monkeypatch.setattr(others.backend("namespaces"), "find", broken)
        with pytest.raises(BoxFailed, match="cannot look"):
            await others.get("web")


async def test_destroy_by_many_at_once_runs_the_hooks_once(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        await asyncio.gather(*(box.destroy() for _ in range(5)), boxes.destroy("web"))
        assert harness.events == ["box.create", "box.destroy"]


async def test_an_owned_box_is_not_taken_from_its_living_owner(harness: Harness) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, harness.home, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"there\n"
    async with harness.boxes() as boxes:
        box = await boxes.get("web")
        assert await read_output(box, "echo from outside") == "from outside\n"
        with pytest.raises(BoxRefused, match=f"belongs to the running process {process.pid} and ends with it"):
            await boxes.destroy("web")
        with pytest.raises(BoxRefused, match=f"belongs to the running process {process.pid}"):
            await boxes.pause("web")
        process.stdin.close()
        assert await process.wait() == 0
        assert await boxes.list() == []


@pytest.mark.req("hooks.box.ttl")
async def test_a_time_to_live_ends_a_box_and_leaves_a_tombstone(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        await boxes.create("web", ttl=0.2)
        while (record := (await boxes.list())[0]).lifecycle != "terminated":
            await asyncio.sleep(0.02)
        assert (record.last_error, record.state, harness.tokens) == ("its time to live is over", "terminated", [])
        with pytest.raises(BoxRefused, match=r'box "web" is terminated \(it no longer exists\): its time to live is over'):
            await boxes.get("web")
        assert harness.left() == []


@pytest.mark.req("hooks.rule.2.5-once-after")
@pytest.mark.parametrize("keep", [False, True], ids=["owned", "kept"])
async def test_destroy_hooks_run_once_and_when_they_do_the_box_is_gone(harness: Harness, keep: bool) -> None:
    """The hook looks for its folder and its processes; so it does before the end, to show that it would find them."""
    looks = harness.hook("looks", LOOKS, {"HERE": str(harness.folder)})
    async with harness.boxes(hooks=[looks]) as boxes:
        box = await boxes.create("web", kept=keep)
        (harness.folder / "generation").write_text(box.generation)
        subprocess.run([looks.path], env=os.environ | looks.env, input=b"", check=True)
        before = (harness.folder / "found").read_text().splitlines()
        assert before[0] == "its folder"
        assert {f"/proc/{process.pid}/environ" for process in find_processes(box.generation)} == set(before[1:])
        assert len(before) >= 2  # its launcher; an ordinary user may not look at its box server
        (harness.folder / "found").unlink()
        await asyncio.gather(boxes.destroy("web"), box.destroy())
        await boxes.destroy("web")
    assert (harness.folder / "found").read_text() == ""
    assert (harness.folder / "runs").read_text() == "looked\nlooked\n"


@pytest.mark.req("hooks.scenario.destroy-05")
@pytest.mark.parametrize("found", [False, True], ids=["when it is looked for", "when it is to be ended"])
async def test_destroying_a_box_that_its_backend_has_no_more_is_a_success(
    harness: Harness, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> None:
        raise BoxNotFound("no such box")

    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        await box.instance.destroy()  # behind the manager's back
        if found:
            monkeypatch.setattr(box.instance, "destroy", gone)
        else:
            boxes.disown(box.generation)
        with pytest.raises(BoxNotFound):
            await boxes.backend("namespaces").find("web")
        assert harness.events == ["box.create"]
        assert await boxes.destroy("web") == ""
        assert harness.events == ["box.create", "box.destroy"]
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.scenario.destroy-07", "hooks.naive.22")
async def test_a_box_that_died_is_a_tombstone_and_destroying_that_asks_no_backend_and_runs_no_hook(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        kill_box_server(box.generation)
        while (await boxes.record("web")).lifecycle != "terminated":
            await asyncio.sleep(0.01)
        assert harness.events == ["box.create", "box.destroy"]
        assert harness.tokens == []
        asked: list[str] = []
        async with harness.boxes() as others:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(others, "backend", asked.append)
                assert await others.destroy("web") == ""
            assert await others.list() == []
            assert await others.destroy("web") == ""
        assert (asked, harness.events) == ([], ["box.create", "box.destroy"])
        await boxes.create("web")  # its id is free again
