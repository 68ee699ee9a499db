"""A box's whole life, on real namespaces with real hooks."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from serai.boxes import Box
from serai.boxes.backends.local import find_processes
from serai.boxes.box_client import BoxClient
from serai.boxes.box_records import hash_token
from serai.boxes.programs import box_server
from serai.dialects.hookproto.host_side import BoxFile
from serai.errors import BoxFailed, BoxNotFound, BoxRefused, Closed
from serai.limits import Limits
from tests.support.boxes.box_servers import BOOT, b64, start_server
from tests.support.boxes.harness import Harness, kill_box_server, read_output

SHOW = "#!/bin/sh\nset -e\ncp /root/.token /workspace/seen\n"


@pytest.mark.req(
    "hooks.scenario.create-01", "hooks.scenario.create-11", "hooks.scenario.destroy-01",
    "hooks.scenario.destroy-02", "hooks.scenario.verbs-01", "hooks.rule.1.3-box-on-create",
    "hooks.rule.1.3-box-on-destroy", "hooks.rule.14-before-start", "hooks.rule.4-files-before-script", "hooks.rule.3.1-generation",
)  # fmt: skip
async def test_a_hook_mints_a_token_that_the_box_finds_and_revokes_it_at_the_end(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", description="a box", script=SHOW.encode())
        [token] = harness.tokens
        record = await boxes.record("web")
        assert (record.box_id, record.description, record.token_hash) == ("web", "a box", hash_token(box.token))
        assert (record.lifecycle, record.status, record.hook_state) == ("running", "ready", {"mint": token})
        assert (record.observed_name, record.observed_state) == (f"serai-{box.generation}", "running")
        assert len(bytes.fromhex(box.generation)) == 8
        assert await read_output(box, "cat /root/.token; stat -c '%a %u:%g' /root/.token; cat /workspace/seen; hostname") == (
            f"secret-{token}600 0:0\nsecret-{token}web\n"
        )
        assert harness.told == [{"event": "box.create", "box": {"box_id": "web", "description": "a box"}}]
        assert await box.destroy() == ""
        assert harness.tokens == []
        assert harness.told[1:] == [{"event": "box.destroy", "box": {"box_id": "web"}, "state": token}]
        assert await boxes.list() == []
        assert harness.left() == []
        with pytest.raises(BoxNotFound, match=r'no box found with box ID "web" \(it may have expired'):
            await boxes.get("web")


@pytest.mark.req("hooks.scenario.create-03")
async def test_a_create_asks_each_hook_once_keeps_its_state_and_gives_its_files_to_their_owner(harness: Harness) -> None:
    """Where boxes have one user only, that is the owner of all; root's have as many as the machine."""
    files = '[{"path":"/root/theirs","uid":1000,"gid":1001},{"path":"/root/ours"}]'
    owners = harness.hook("owners", f"""#!/bin/sh\necho ran >> {harness.folder}/ran\necho '{{"files":{files},"state":"kept"}}'\n""")
    async with harness.boxes(hooks=[owners]) as boxes, boxes.box() as box:
        full = boxes.backend("namespaces").capabilities.ownership == "full"
        assert full or os.geteuid() != 0
        owner = "1000:1001" if full else "0:0"
        assert await read_output(box, "stat -c %u:%g /root/theirs /root/ours") == f"{owner}\n0:0\n"
        async with harness.boxes() as others:
            assert (await others.record(box.id)).hook_state == {"owners": "kept"}
        assert (harness.folder / "ran").read_text() == "ran\n"


@pytest.mark.req("hooks.rule.4-script")
async def test_a_script_has_five_minutes_by_default(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    call = BoxClient._call

    async def listens(control: BoxClient, verb: str, data: dict[str, Any], *more: Any) -> dict[str, Any]:
        asked.append((verb, data.get("init_script_timeout")))
        return await call(control, verb, data, *more)

    monkeypatch.setattr(BoxClient, "_call", listens)
    async with harness.boxes(limits=Limits()) as boxes, boxes.box(script=b"#!/bin/sh\n"):
        assert [time for verb, time in asked if verb == "init"] == [300 * 10**9]


@pytest.mark.req("hooks.rule.4-script")
def test_a_box_server_that_is_told_no_time_gives_a_script_its_own_of_five_minutes(tmp_path: Path) -> None:
    """The one that is asked here has less, or we should have to wait."""
    assert box_server.SCRIPT_TIME == 300 * 10**9
    hasty = "from serai.boxes.programs import box_server; box_server.SCRIPT_TIME = 300_000_000; main("
    with start_server(tmp_path, boot=BOOT.replace("main(", hasty)) as server:
        answer = server.ask("init", init_script=b64(b"#!/bin/sh\nexec sleep 1000\n"))
        assert answer["script_error"] == "init script did not finish within 300ms"


@pytest.mark.req("hooks.scenario.destroy-03", "hooks.scenario.destroy-06")
async def test_destroy_takes_the_id_or_the_generation_and_an_unknown_one_is_fine(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        one, _ = await asyncio.gather(boxes.create("one"), boxes.create("other"))
        await boxes.destroy(one.generation)
        await boxes.destroy(one.generation)
        await boxes.destroy("other")
        await boxes.destroy("nobody")
        assert await boxes.list() == []
        assert harness.left() == []


@pytest.mark.req("hooks.box.owned")
async def test_an_owned_box_ends_with_its_block_and_with_its_boxes(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        async with boxes.box() as box:
            assert box.id.startswith("box-")
            assert len(harness.tokens) == 1
        assert harness.tokens == []
        await boxes.create("left")
        assert len(harness.tokens) == 1
    assert (harness.tokens, harness.left()) == ([], [])
    with pytest.raises(Closed):
        await boxes.create("late")


# -- several ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.scenario.create-07", "hooks.naive.26", "hooks.scenario.create-05")
async def test_of_many_creates_of_one_id_one_wins_also_against_another_manager(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as one, harness.boxes(hooks=[harness.mint]) as other:
        made = await asyncio.gather(*(boxes.create("web") for boxes in (one, other) * 3), return_exceptions=True)
        assert sum(isinstance(box, Box) for box in made) == 1
        assert {type(error) for error in made if not isinstance(error, Box)} == {BoxRefused}
        assert len(harness.tokens) == 1
    assert harness.tokens == []


@pytest.mark.req("hooks.rule.3.3-parallel-create", "hooks.naive.25")
async def test_boxes_are_made_side_by_side(harness: Harness) -> None:
    """Each hook waits for the other's: one at a time they would wait for ever."""
    meet = harness.hook(
        "meet", "#!/bin/sh\n: > $MEET/$$\nwhile [ $(ls $MEET | wc -l) -lt 2 ]; do :; done\n", {"MEET": str(harness.tokens_folder)}
    )
    async with harness.boxes(hooks=[meet]) as boxes:
        made = await asyncio.gather(boxes.create("one"), boxes.create("other"))
        assert [box.id for box in made] == ["one", "other"]


@pytest.mark.req("hooks.rule.3.3-max-boxes")
async def test_more_boxes_than_allowed_are_refused_before_any_hook(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint], most=1) as boxes:
        await boxes.create("one")
        with pytest.raises(BoxRefused, match=r"box limit reached \(1 boxes already running\)"):
            await boxes.create("two")
        assert harness.events == ["box.create"]


@pytest.mark.req("hooks.naive.28")
async def test_an_id_of_one_character_is_good(harness: Harness) -> None:
    async with harness.boxes() as boxes, boxes.box("x") as box:
        assert await read_output(box, "hostname") == "x\n"


@pytest.mark.req("hooks.rule.3.3-hook-files-last", "hooks.path.13")
async def test_a_hooks_file_wins_over_the_callers_and_the_last_over_all(harness: Harness) -> None:
    again = harness.hook(
        "again", """#!/bin/sh\necho '{"files":[{"path":"/root/.both","content":"1"},{"path":"/root//./.both","content":"2"}]}'\n"""
    )
    given = [
        BoxFile(path=path, content=b"caller", mode=0o644, uid=0, gid=0) for path in ("/root/.token", "/root/.both", "/root/.own")
    ]
    async with harness.boxes(hooks=[harness.mint, again]) as boxes, boxes.box(files=given) as box:
        [token] = harness.tokens
        assert await read_output(box, "cat /root/.token /root/.both /root/.own") == f"secret-{token}2caller"


# -- halting ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req(
    "hooks.rule.3.5-pause", "hooks.naive.20", "hooks.scenario.verbs-02", "hooks.scenario.verbs-03", "hooks.rule.2.5-quiet-events"
)
async def test_pause_keeps_the_disk_and_resume_runs_no_script_and_no_hook(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", script=b"#!/bin/sh\necho run >> /root/runs\n", env={"KEPT": "yes"})
        await read_output(box, "echo data > /workspace/data; sleep 1000 > /dev/null 2>&1 &")
        await box.pause()
        assert [record.state for record in await boxes.list()] == ["paused"]
        with pytest.raises(BoxRefused, match='box "web" is paused; resume it before running commands'):
            await box.exec("true")
        with pytest.raises(BoxRefused, match="paused already"):
            await box.pause()
        await box.resume()
        assert [record.state for record in await boxes.list()] == ["running"]
        [token] = harness.tokens
        assert await read_output(
            box, "cat /workspace/data /root/runs /root/.token; echo $KEPT; ps x | grep -c '[s]leep 1000' || :"
        ) == (f"data\nrun\nsecret-{token}yes\n0\n")
        with pytest.raises(BoxRefused, match="not paused"):
            await box.resume()
        assert harness.events == ["box.create"]


@pytest.mark.req("hooks.rule.3.5-marker")
async def test_the_marker_of_a_pause_comes_first_and_goes_when_the_stop_fails(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.boxes() as boxes:
        box = await boxes.create("web")
        marker = Path(harness.home, box.generation, "paused")
        seen = []

        async def fails() -> None:
            seen.append(marker.exists())
            raise BoxFailed("cannot stop")

        with monkeypatch.context() as patched:
            patched.setattr(box.instance, "_stop", fails)
            with pytest.raises(BoxFailed, match="cannot stop"):
                await box.pause()
        assert seen == [True]
        assert not marker.exists()
        assert await read_output(box, "echo still here") == "still here\n"
        await box.pause()
        start = box.instance.start  # type: ignore[attr-defined]

        async def looks(holder: object) -> None:
            seen.append(marker.exists())
            await start(holder)

        monkeypatch.setattr(box.instance, "start", looks)
        await box.resume()
        assert seen == [True, True]
        assert not marker.exists()


@pytest.mark.req("hooks.scenario.backend-07")
async def test_a_paused_box_is_told_from_a_crashed_one_by_whoever_looks(harness: Harness) -> None:
    """Neither has a process; only what is paused comes back."""
    async with harness.boxes() as boxes, harness.boxes() as others:
        box = await boxes.create("web")

        async def states() -> list[str]:
            seen = [await look.backend("namespaces").list() for look in (boxes, others)]
            return [one.state for one in itertools.chain(*seen)]

        assert await states() == ["running", "running"]
        await box.pause()
        assert (find_processes(box.generation), await states()) == ([], ["paused", "paused"])
        await box.resume()
        boxes.disown(box.generation)  # or it would be ended at once
        kill_box_server(box.generation)
        async with asyncio.timeout(30):
            while find_processes(box.generation):
                await asyncio.sleep(0.01)
        assert await states() == ["exited", "exited"]
        await boxes.destroy("web")
        assert harness.left() == []


def format_tick_wait(count: int) -> str:
    """For a shell: wait for so many ticks and one more."""
    return f"until [ $(wc -l < /workspace/ticks) -gt {count} ]; do :; done"


async def test_freeze_is_honest(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        box = await boxes.create("web")
        if not boxes.backend("namespaces").capabilities.freeze:
            with pytest.raises(BoxRefused, match="cannot be frozen here"):
                await box.freeze()
            return
        ticks = ": > /workspace/ticks; while :; do echo >> /workspace/ticks; done > /dev/null 2>&1 &"
        await read_output(box, ticks)
        before = int(await read_output(box, f"{format_tick_wait(0)}; wc -l < /workspace/ticks"))
        await box.freeze()
        assert box.record.state == "frozen"
        with pytest.raises(BoxRefused, match="is frozen; thaw it"):
            await box.exec("true")
        await box.thaw()
        assert box.record.state == "running"
        await read_output(box, format_tick_wait(before))  # it goes on
        await box.freeze()  # and so it can end
