"""A box's whole life, on real namespaces with real hooks."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import pytest

from serai.boxes import Box, settling
from serai.boxes.record import BoxRecord, token_hash
from serai.boxes.store import Store
from serai.dialects.hookproto.ours import Injection
from serai.errors import BadSettings, BoxFailed, BoxNotFound, BoxRefused, Closed, HookFailed, NotWritten, SeraiError
from tests.boxes.houses import LIMITS, House, kill_porter

FAIL = "#!/bin/sh\necho no luck >&2; exit 3\n"
SHOW = "#!/bin/sh\ncat /root/.token\necho made > /workspace/made\n"


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


async def text(box: Box, command: str) -> str:
    result = await box.exec(command)
    assert result.exit_code == 0, result
    return result.stdout.decode()


@pytest.mark.req(
    "hooks.scenario.create-01", "hooks.scenario.create-03", "hooks.scenario.create-11", "hooks.scenario.destroy-01",
    "hooks.scenario.destroy-02", "hooks.scenario.verbs-01", "hooks.rule.2.5-once-after", "hooks.rule.1.3-box-on-create",
    "hooks.rule.1.3-box-on-destroy", "hooks.rule.14-before-start", "hooks.rule.4-files-before-script", "hooks.rule.3.1-generation",
)  # fmt: skip
async def test_a_hook_mints_a_token_that_the_box_finds_and_revokes_it_at_the_end(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web", description="a box", script=SHOW.encode())
        [token] = house.tokens
        record = await boxes.record("web")
        assert (record.box_id, record.description, record.token_hash) == ("web", "a box", token_hash(box.token))
        assert (record.lifecycle, record.status, record.hook_state) == ("running", "ready", {"mint": token})
        assert (record.observed_name, record.observed_state) == (f"serai-{box.generation}", "running")
        assert len(bytes.fromhex(box.generation)) == 8
        assert await text(box, "cat /root/.token; stat -c '%a %u:%g' /root/.token; cat /workspace/made; hostname") == (
            f"secret-{token}600 0:0\nmade\nweb\n"
        )
        assert house.told == [{"event": "box.create", "box": {"box_id": "web", "description": "a box"}}]
        assert await box.destroy() == ""
        assert house.tokens == []
        assert house.told[1:] == [{"event": "box.destroy", "box": {"box_id": "web"}, "state": token}]
        assert await boxes.list() == []
        assert house.left() == []
        with pytest.raises(BoxNotFound, match=r'no box found with box ID "web" \(it may have expired'):
            await boxes.get("web")


@pytest.mark.req("hooks.scenario.destroy-03", "hooks.scenario.destroy-06")
async def test_destroy_takes_the_id_or_the_generation_and_an_unknown_one_is_fine(house: House) -> None:
    async with house.boxes() as boxes:
        one, _ = await asyncio.gather(boxes.create("one"), boxes.create("other"))
        await boxes.destroy(one.generation)
        await boxes.destroy(one.generation)
        await boxes.destroy("other")
        await boxes.destroy("nobody")
        assert await boxes.list() == []
        assert house.left() == []


@pytest.mark.req("hooks.box.owned")
async def test_an_owned_box_ends_with_its_block_and_with_its_boxes(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        async with boxes.box() as box:
            assert box.id.startswith("box-")
            assert len(house.tokens) == 1
        assert house.tokens == []
        await boxes.create("left")
        assert len(house.tokens) == 1
    assert (house.tokens, house.left()) == ([], [])
    with pytest.raises(Closed):
        await boxes.create("late")


# -- creates that fail ------------------------------------------------------------------------------------------------------------


@pytest.mark.req(
    "hooks.rule.1.2-create-failure",
    "hooks.rule.2.4-rollback-error",
    "hooks.rule.2.2-stop-at-failure",
    "hooks.rule.1.3-box-on-create",
)
async def test_a_failing_hook_fails_the_create_and_the_ones_before_are_undone(house: House) -> None:
    never = house.hook("never", f"#!/bin/sh\necho ran > {house.folder}/never-ran\n")
    async with house.boxes(hooks=[house.mint, house.hook("fails", FAIL), never]) as boxes:
        with pytest.raises(HookFailed, match=r"^hook .*/fails: exit status 3: no luck$"):
            await boxes.create("web", description="d")
        assert house.tokens == []
        about = {"box_id": "web", "description": "d"}  # a roll-back knows what it was to be
        assert [request["box"] for request in house.told] == [about, about]
        assert house.events == ["box.create", "box.destroy"]
        assert not (house.folder / "never-ran").exists()
        assert (await boxes.list(), house.left()) == ([], [])


@pytest.mark.req("hooks.scenario.create-04", "hooks.scenario.manager-02", "hooks.scenario.backend-06")
async def test_a_backend_that_cannot_provision_gives_the_states_back(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        kind = boxes.backend("namespaces").kind  # type: ignore[attr-defined]
        monkeypatch.setattr(type(kind), "prepare", lambda *_: ["/bin/false"])
        with pytest.raises(BoxFailed, match="ended without a word"):
            await boxes.create("web")
        assert house.events == ["box.create", "box.destroy"]
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.scenario.manager-01")
async def test_a_backend_that_cannot_be_listed_gets_no_box_and_no_hook_runs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:

        async def broken() -> None:
            raise BoxFailed("cannot list")

        monkeypatch.setattr(boxes.backend("namespaces"), "list", broken)
        with pytest.raises(BoxFailed, match="cannot list"):
            await boxes.create("web")
    assert house.told == []


@pytest.mark.req("hooks.scenario.manager-03")
async def test_a_porter_that_refuses_the_files_takes_the_box_down(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        bad = Injection(path="/proc/nowhere/at/all", content=b"", mode=0o600, uid=0, gid=0)
        with pytest.raises(Exception, match="/proc/nowhere"):
            await boxes.create("web", files=[bad])
        assert house.events == ["box.create", "box.destroy"]
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.3.3-persist-failure")
async def test_a_record_that_cannot_be_written_fails_the_create(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise NotWritten("disk full")

    async with house.boxes(hooks=[house.mint]) as boxes:
        monkeypatch.setattr(Store, "register", full)
        with pytest.raises(NotWritten, match="disk full"):
            await boxes.create("web")
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.2.4-token-failure")
async def test_without_a_token_no_hook_runs_and_nothing_is_made(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise OSError("no randomness")

    async with house.boxes(hooks=[house.mint]) as boxes:
        monkeypatch.setattr("serai.boxes.manager.new_token", none)
        with pytest.raises(OSError, match="no randomness"):
            await boxes.create("web")
        assert (house.told, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.naive.24")
async def test_a_cancelled_create_is_rolled_back_to_its_end(house: House) -> None:
    waits = house.hook("waits", f"#!/bin/sh\necho > {house.folder}/waiting\nexec cat /dev/zero > /dev/null\n")
    async with house.boxes(hooks=[house.mint, waits]) as boxes:
        task = asyncio.create_task(boxes.create("web"))
        while not (house.folder / "waiting").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # again, in the middle of the roll-back
        with pytest.raises(asyncio.CancelledError):
            await task
        assert house.events == ["box.create", "box.destroy"]
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.scenario.create-02", "hooks.naive.19", "hooks.rule.3.2-phase")
async def test_a_box_whose_init_script_failed_stays_and_tells_why(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web", script=b"#!/bin/sh\necho some output; exit 7\n")
        assert (box.record.status, box.record.lifecycle) == ("broken", "running")
        assert box.record.last_error == "init script failed: exit status 7\n\nsome output"
        assert box.record.to_json()["phase"] == "broken"
        assert await text(box, "echo here") == "here\n"
        assert house.events == ["box.create"]
        assert len(house.tokens) == 1


@pytest.mark.req("hooks.scenario.create-09", "hooks.rule.3.1-box-id")
async def test_a_bad_id_or_time_is_refused_before_anything_happens(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        for box_id, wishes in {"": {}, "Web": {}, "web": {"ttl": 0}}.items():
            with pytest.raises(BoxRefused):
                await boxes.create(box_id, **wishes)  # type: ignore[arg-type]
    assert house.told == []


async def test_two_hooks_of_one_name_are_refused_before_anything_happens(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        with pytest.raises(BadSettings, match="two hooks are called mint"):
            await boxes.create("web", hooks=[house.mint])
    assert house.told == []


@pytest.mark.req("hooks.rule.8-registry")
async def test_an_unknown_backend_is_refused_with_the_names_of_the_known(house: House) -> None:
    async with house.boxes() as boxes:
        with pytest.raises(BoxRefused, match="there is no backend 'vm'") as raised:
            await boxes.create("web", backend="vm")
    assert raised.value.hint == "there is namespaces, process"


# -- several ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.scenario.create-07", "hooks.naive.26", "hooks.scenario.create-05")
async def test_of_many_creates_of_one_id_one_wins_also_against_another_manager(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as one, house.boxes(hooks=[house.mint]) as other:
        made = await asyncio.gather(*(boxes.create("web") for boxes in (one, other) * 3), return_exceptions=True)
        assert sum(isinstance(box, Box) for box in made) == 1
        assert {type(error) for error in made if not isinstance(error, Box)} == {BoxRefused}
        assert len(house.tokens) == 1
    assert house.tokens == []


@pytest.mark.req("hooks.rule.3.3-parallel-create", "hooks.naive.25")
async def test_boxes_are_made_side_by_side(house: House) -> None:
    """Each hook waits for the other's: one at a time they would wait for ever."""
    meet = house.hook(
        "meet", "#!/bin/sh\n: > $MEET/$$\nwhile [ $(ls $MEET | wc -l) -lt 2 ]; do :; done\n", {"MEET": str(house.tokens_folder)}
    )
    async with house.boxes(hooks=[meet]) as boxes:
        made = await asyncio.gather(boxes.create("one"), boxes.create("other"))
        assert [box.id for box in made] == ["one", "other"]


@pytest.mark.req("hooks.rule.3.3-max-boxes")
async def test_more_boxes_than_allowed_are_refused_before_any_hook(house: House) -> None:
    async with house.boxes(hooks=[house.mint], most=1) as boxes:
        await boxes.create("one")
        with pytest.raises(BoxRefused, match=r"box limit reached \(1 boxes already running\)"):
            await boxes.create("two")
        assert house.events == ["box.create"]


@pytest.mark.req("hooks.naive.28")
async def test_an_id_of_one_character_is_good(house: House) -> None:
    async with house.boxes() as boxes, boxes.box("x") as box:
        assert await text(box, "hostname") == "x\n"


@pytest.mark.req("hooks.rule.3.3-hook-files-last", "hooks.path.13")
async def test_a_hooks_file_wins_over_the_callers_and_the_last_over_all(house: House) -> None:
    again = house.hook(
        "again", """#!/bin/sh\necho '{"files":[{"path":"/root/.both","content":"1"},{"path":"/root//./.both","content":"2"}]}'\n"""
    )
    given = [
        Injection(path=path, content=b"caller", mode=0o644, uid=0, gid=0) for path in ("/root/.token", "/root/.both", "/root/.own")
    ]
    async with house.boxes(hooks=[house.mint, again]) as boxes, boxes.box(files=given) as box:
        [token] = house.tokens
        assert await text(box, "cat /root/.token /root/.both /root/.own") == f"secret-{token}2caller"


# -- halting ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req(
    "hooks.rule.3.5-pause", "hooks.naive.20", "hooks.scenario.verbs-02", "hooks.scenario.verbs-03", "hooks.rule.2.5-quiet-events"
)
async def test_pause_keeps_the_disk_and_resume_runs_no_script_and_no_hook(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web", script=b"#!/bin/sh\necho run >> /root/runs\n", env={"KEPT": "yes"})
        await text(box, "echo data > /workspace/data; sleep 1000 > /dev/null 2>&1 &")
        await box.pause()
        assert [record.state for record in await boxes.list()] == ["paused"]
        with pytest.raises(BoxRefused, match='box "web" is paused; resume it before running commands'):
            await box.exec("true")
        with pytest.raises(BoxRefused, match="paused already"):
            await box.pause()
        await box.resume()
        assert [record.state for record in await boxes.list()] == ["running"]
        [token] = house.tokens
        assert await text(box, "cat /workspace/data /root/runs /root/.token; echo $KEPT; ps x | grep -c '[s]leep 1000' || :") == (
            f"data\nrun\nsecret-{token}yes\n0\n"
        )
        with pytest.raises(BoxRefused, match="not paused"):
            await box.resume()
        assert house.events == ["box.create"]


@pytest.mark.req("hooks.rule.3.5-marker", "hooks.scenario.backend-07")
async def test_the_marker_of_a_pause_comes_first_and_goes_when_the_stop_fails(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.boxes() as boxes:
        box = await boxes.create("web")
        marker = Path(house.home, box.generation, "paused")
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
        assert await text(box, "echo still here") == "still here\n"
        await box.pause()
        start = box.instance.start  # type: ignore[attr-defined]

        async def looks(holder: object) -> None:
            seen.append(marker.exists())
            await start(holder)

        monkeypatch.setattr(box.instance, "start", looks)
        await box.resume()
        assert seen == [True, True]
        assert not marker.exists()


async def test_freeze_is_honest(house: House) -> None:
    async with house.boxes() as boxes:
        box = await boxes.create("web")
        if not boxes.backend("namespaces").capabilities.freeze:
            with pytest.raises(BoxRefused, match="cannot be frozen here"):
                await box.freeze()
            return
        ticks = "while :; do echo >> /workspace/ticks; done > /dev/null 2>&1 &"
        await text(box, ticks)
        await box.freeze()
        assert box.record.state == "frozen"
        with pytest.raises(BoxRefused, match="is frozen; thaw it"):
            await box.exec("true")
        await box.thaw()
        assert box.record.state == "running"
        assert await text(box, "wc -l < /workspace/ticks") > "0"
        await box.freeze()  # and so it can end


# -- ends -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.naive.23", "hooks.rule.2.3-best-effort", "hooks.naive.31")
async def test_a_failing_destroy_hook_does_not_keep_the_box(house: House, caplog: pytest.LogCaptureFixture) -> None:
    fails = house.hook("fails", '#!/bin/sh\ngrep -q create && { echo \'{"state":"very-secret-state"}\'; exit 0; }\nexit 5\n')
    with caplog.at_level(logging.DEBUG):
        async with house.boxes(hooks=[fails, house.mint]) as boxes:
            box = await boxes.create("web")
            assert (await box.destroy()).endswith("/fails: exit status 5")
            assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])
    assert "exit status 5" in caplog.text
    assert "very-secret-state" not in caplog.text


@pytest.mark.req("hooks.scenario.manager-05")
async def test_an_error_of_the_backends_destroy_is_told_and_the_record_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")

        def stuck(*_: object) -> None:
            raise OSError("disk is busy")

        with monkeypatch.context() as patched:
            patched.setattr(type(boxes.backend("namespaces").kind), "release", stuck)  # type: ignore[attr-defined]
            with pytest.raises(BoxFailed, match="disk is busy"):
                await box.destroy()
        assert [record.box_id for record in await boxes.list()] == ["web"]
        assert house.events == ["box.create"]
        await boxes.destroy("web")
        assert (house.tokens, house.left()) == ([], [])


@pytest.mark.req("hooks.scenario.manager-04")
async def test_an_error_of_the_backends_find_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.boxes() as boxes, house.boxes() as others:
        await boxes.create("web")

        async def broken(name: str) -> None:
            raise BoxFailed("cannot look")

        monkeypatch.setattr(others.backend("namespaces"), "find", broken)
        with pytest.raises(BoxFailed, match="cannot look"):
            await others.get("web")


async def test_destroy_by_many_at_once_runs_the_hooks_once(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")
        await asyncio.gather(*(box.destroy() for _ in range(5)), boxes.destroy("web"))
        assert house.events == ["box.create", "box.destroy"]


async def test_an_owned_box_is_not_taken_from_its_living_owner(house: House) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, house.home, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"there\n"
    async with house.boxes() as boxes:
        box = await boxes.get("web")
        assert await text(box, "echo from outside") == "from outside\n"
        with pytest.raises(BoxRefused, match=f"belongs to the running process {process.pid} and ends with it"):
            await boxes.destroy("web")
        with pytest.raises(BoxRefused, match=f"belongs to the running process {process.pid}"):
            await boxes.pause("web")
        process.stdin.close()
        assert await process.wait() == 0
        assert await boxes.list() == []


@pytest.mark.req("hooks.box.ttl")
async def test_a_time_to_live_ends_a_box_and_leaves_a_tombstone(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        await boxes.create("web", ttl=0.2)
        while (record := (await boxes.list())[0]).lifecycle != "terminated":
            await asyncio.sleep(0.02)
        assert (record.last_error, record.state, house.tokens) == ("its time to live is over", "terminated", [])
        with pytest.raises(BoxRefused, match=r'box "web" is terminated \(it no longer exists\): its time to live is over'):
            await boxes.get("web")
        assert house.left() == []


@pytest.mark.req("hooks.scenario.destroy-07", "hooks.naive.22", "hooks.rule.2.5-once-after")
async def test_a_box_that_died_is_a_tombstone_and_destroying_that_runs_no_hook(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")
        kill_porter(box.generation)
        while (await boxes.record("web")).lifecycle != "terminated":
            await asyncio.sleep(0.01)
        assert house.events == ["box.create", "box.destroy"]
        assert house.tokens == []
        await boxes.destroy("web")
        await boxes.destroy("web")
        assert house.events == ["box.create", "box.destroy"]
        assert await boxes.list() == []
        await boxes.create("web")  # its id is free again


# -- what the backends see --------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.scenario.sync-01", "hooks.scenario.sync-02", "hooks.naive.21", "hooks.scenario.destroy-05")
async def test_a_box_that_vanished_becomes_a_tombstone_once_when_its_record_is_not_young(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")
        os.rename(Path(house.home, box.generation, "about.json"), house.folder / "about.json")  # its backend does not know it now
        assert [record.lifecycle for record in await boxes.list()] == ["running"]
        await boxes.do(Store.change, box.generation, created_at="2026-01-01T00:00:00.000000000Z")
        for _ in range(2):
            [record] = await boxes.list()
            assert (record.lifecycle, record.last_error) == ("terminated", "it is gone from its backend")
        assert house.events == ["box.create", "box.destroy"]


@pytest.mark.req("hooks.scenario.sync-05", "hooks.rule.2.5-revived")
async def test_a_tombstone_whose_box_reappears_is_revived_and_its_hooks_run_again_at_its_end(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")
        token = house.tokens
        await boxes.do(Store.change, box.generation, lifecycle="terminated", hooks_done=["mint"])
        [record] = await boxes.list()
        assert (record.lifecycle, record.hooks_done, record.hook_state) == ("running", [], {"mint": token[0]})
        await boxes.destroy("web")
        assert house.events == ["box.create", "box.destroy"]


@pytest.mark.req("hooks.scenario.sync-03", "hooks.scenario.sync-08", "hooks.rule.3.8-listing-failure")
async def test_a_listing_refreshes_what_is_known_and_a_failed_one_changes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")
        old = "2026-01-01T00:00:00.000000000Z"
        await boxes.do(Store.change, box.generation, observed_state="", observed_name="", observed_at=old, created_at=old)

        async def broken() -> None:
            raise BoxFailed("not now")

        with monkeypatch.context() as patched:
            patched.setattr(boxes.backend("namespaces"), "list", broken)
            [record] = await boxes.list()
        assert (record.lifecycle, record.observed_at) == ("running", old)
        [record] = await boxes.list()
        assert (record.observed_state, record.observed_name) == ("running", f"serai-{box.generation}")
        assert record.observed_at != old


@pytest.mark.req("hooks.rule.3.8-unknown-boxes")
async def test_a_box_without_a_record_is_told_and_left_alone(house: House, caplog: pytest.LogCaptureFixture) -> None:
    async with house.boxes() as boxes:
        box = await boxes.create("web")
        row = box.record
        await boxes.create("other")
        await boxes.do(Store.delete, box.generation)
        await boxes.list()
        assert "a box without a record, which is left alone: web" in caplog.text
        assert await text(box, "echo alive") == "alive\n"
        await boxes.do(Store.reserve, row)


# -- who is gone ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.rule.2.3-hooks-done", "hooks.rule.2.4-intent-replay")
async def test_the_next_start_settles_what_a_dead_owner_left_but_tells_no_hook_twice(house: House) -> None:
    told = house.hook("again", f'#!/bin/sh\ncat >> {house.folder}/second; echo \'{{"state":"s"}}\'\n')
    async with house.boxes(hooks=[house.mint, told]) as boxes:
        box = await boxes.create("web")
        boxes.disown(box.generation)  # as if we were gone
        await boxes.do(Store.change, box.generation, owner="1:1:gone", hooks_done=["mint"])
        async with house.boxes() as others:
            assert await others.list() == []
        assert house.events == ["box.create"]
        assert (house.folder / "second").read_text().count("box.destroy") == 1


@pytest.mark.req("hooks.rule.3.5-paused-safe")
async def test_a_paused_kept_box_is_left_alone_by_the_next_start(house: House) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web", kept=True, ttl=3600)
        await box.pause()
        record = await boxes.record("web")
        assert (record.owner, record.expires_at) == ("", None)
        assert record.time_left is not None
        assert 3500 < record.time_left <= 3600
    async with house.boxes() as boxes:
        assert [record.state for record in await boxes.list()] == ["paused"]
        box = await boxes.get("web")
        await box.resume()
        assert box.record.expires_at is not None
        assert 3500 < box.record.expires_at - time.time() <= 3600
        assert await text(box, "cat /root/.token") == f"secret-{house.tokens[0]}"
        await boxes.destroy("web")
        assert (house.tokens, house.left()) == ([], [])


async def test_old_tombstones_are_forgotten_with_their_logs(house: House) -> None:
    async with house.boxes() as boxes:
        box = await boxes.create("web")
        await boxes.end(box.record, "for the test")
        log = Path(house.home, "logs", f"{box.generation}.log")
        assert log.exists()
    async with house.boxes() as boxes:
        assert len(await boxes.list()) == 1
        await boxes.do(Store.change, box.generation, observed_at="2026-01-01T00:00:00.000000000Z")
    async with house.boxes(limits=LIMITS) as boxes:
        assert await boxes.list() == []
        assert not log.exists()


@pytest.mark.req("hooks.rule.2.3-orphan-state")
async def test_a_state_whose_hook_is_not_known_any_more_is_told_and_stays_on_the_record(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with house.boxes(hooks=[house.mint]) as boxes:
        box = await boxes.create("web")
        await boxes.do(Store.change, box.generation, hooks=())
        await boxes.end(box.record, "for the test")
        record = await boxes.record("web")
        assert "there is no hook mint any more" in caplog.text
        assert record.hook_state == {"mint": house.tokens[0]}
        await boxes.destroy("web")
        assert await boxes.list() == []


@pytest.mark.req("hooks.naive.16", "hooks.path.09")
async def test_files_for_a_box_without_a_root_of_its_own_never_follow_a_link_out_of_it(house: House) -> None:
    outside = house.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("theirs")
    async with house.boxes(backend="process") as boxes, boxes.box("web") as box:
        root = Path(house.home, box.generation, "root")
        (root / "root" / "folder").symlink_to(outside)
        (root / "root" / "file").symlink_to(outside / "secret")
        for path in ("/root/folder/secret", "/root/folder/new", "/root/file"):
            with pytest.raises(SeraiError):
                await box.control.get(path)
        with pytest.raises(SeraiError):
            await box.control.put("/root/folder/secret", b"ours")
        await box.control.put("/root/file", b"ours")  # which takes the link's place
        for path in ("/root/folder/new", "/root/file/new"):
            with pytest.raises(SeraiError):
                await box.instance.control().init([Injection(path=path, content=b"", mode=0o600, uid=0, gid=0)])
        assert (root / "root" / "file").read_text() == "ours"
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret", "theirs")]


@pytest.mark.req("hooks.rule.2.4-intent-replay")
@pytest.mark.parametrize("place", [0, 1], ids=["in memory", "beside the boxes"])
async def test_an_answer_is_found_wherever_the_dead_manager_put_it(house: House, place: int) -> None:
    async with house.boxes() as boxes:
        record = BoxRecord(
            token_hash="h", generation="0123456789abcdef", box_id="web", backend="namespaces", created_at="", owner="1:1:gone",
            hooks=[house.mint],
        )  # fmt: skip
        await boxes.do(Store.reserve, record)
        where = Path(f"{settling._places(boxes, record)[place]}-0")
        where.parent.mkdir(mode=0o700, exist_ok=True)
        where.write_text('{"state":"minted"}')
        (house.tokens_folder / "minted").touch()
    async with house.boxes() as boxes:
        assert await boxes.list() == []
    assert (house.tokens, where.exists()) == ([], False)
