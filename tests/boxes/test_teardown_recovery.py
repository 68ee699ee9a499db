"""Records and what is really there: what the backends see, and what the next start does for whoever is gone."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import pytest

from serai.boxes.box_records import BoxRecord, BoxStore
from serai.boxes.hooks import list_answer_places
from serai.dialects.hookproto.host_side import BoxFile
from serai.errors import BoxFailed, SeraiError
from tests.support.boxes.harness import LIMITS, Harness, read_output

# -- what the backends see --------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.scenario.sync-01", "hooks.scenario.sync-02", "hooks.naive.21")
async def test_a_box_that_vanished_becomes_a_tombstone_once_when_its_record_is_not_young(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        os.rename(
            Path(harness.home, box.generation, "about.json"), harness.folder / "about.json"
        )  # its backend does not know it now
        assert [record.lifecycle for record in await boxes.list()] == ["running"]
        await boxes.do(BoxStore.change, box.generation, created_at="2026-01-01T00:00:00.000000000Z")
        for _ in range(2):
            [record] = await boxes.list()
            assert (record.lifecycle, record.last_error) == ("terminated", "it is gone from its backend")
        assert harness.events == ["box.create", "box.destroy"]


@pytest.mark.req("hooks.scenario.sync-05", "hooks.rule.2.5-revived")
async def test_a_tombstone_whose_box_reappears_is_revived_and_its_hooks_run_again_at_its_end(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        token = harness.tokens
        await boxes.do(BoxStore.change, box.generation, lifecycle="terminated", hooks_done=["mint"])
        [record] = await boxes.list()
        assert (record.lifecycle, record.hooks_done, record.hook_state) == ("running", [], {"mint": token[0]})
        await boxes.destroy("web")
        assert harness.events == ["box.create", "box.destroy"]


@pytest.mark.req("hooks.scenario.sync-03", "hooks.scenario.sync-08", "hooks.rule.3.8-listing-failure")
async def test_a_listing_refreshes_what_is_known_and_a_failed_one_changes_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        old = "2026-01-01T00:00:00.000000000Z"
        await boxes.do(BoxStore.change, box.generation, observed_state="", observed_name="", observed_at=old, created_at=old)

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
async def test_a_box_without_a_record_is_told_and_left_alone(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    async with harness.boxes() as boxes:
        box = await boxes.create("web")
        row = box.record
        await boxes.create("other")
        await boxes.do(BoxStore.delete, box.generation)
        await boxes.list()
        assert "a box without a record, which is left alone: web" in caplog.text
        assert await read_output(box, "echo alive") == "alive\n"
        await boxes.do(BoxStore.reserve, row)


# -- who is gone ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.rule.2.3-hooks-done", "hooks.rule.2.4-intent-replay")
async def test_the_next_start_settles_what_a_dead_owner_left_but_tells_no_hook_twice(harness: Harness) -> None:
    told = harness.hook("again", f'#!/bin/sh\ncat >> {harness.folder}/second; echo \'{{"state":"s"}}\'\n')
    async with harness.boxes(hooks=[harness.mint, told]) as boxes:
        box = await boxes.create("web")
        boxes.disown(box.generation)  # as if we were gone
        await boxes.do(BoxStore.change, box.generation, owner="1:1:gone", hooks_done=["mint"])
        async with harness.boxes() as others:
            assert await others.list() == []
        assert harness.events == ["box.create"]
        assert (harness.folder / "second").read_text().count("box.destroy") == 1


@pytest.mark.req("hooks.rule.3.5-paused-safe")
async def test_a_paused_kept_box_is_left_alone_by_the_next_start(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", kept=True, ttl=3600)
        await box.pause()
        record = await boxes.record("web")
        assert (record.owner, record.expires_at) == ("", None)
        assert record.time_left is not None
        assert 3500 < record.time_left <= 3600
    async with harness.boxes() as boxes:
        assert [record.state for record in await boxes.list()] == ["paused"]
        box = await boxes.get("web")
        await box.resume()
        assert box.record.expires_at is not None
        assert 3500 < box.record.expires_at - time.time() <= 3600
        assert await read_output(box, "cat /root/.token") == f"secret-{harness.tokens[0]}"
        await boxes.destroy("web")
        assert (harness.tokens, harness.left()) == ([], [])


async def test_old_tombstones_are_forgotten_with_their_logs(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        box = await boxes.create("web")
        await boxes.teardown.end(box.record, "for the test")
        log = Path(harness.home, "logs", f"{box.generation}.log")
        assert log.exists()
    async with harness.boxes() as boxes:
        assert len(await boxes.list()) == 1
        await boxes.do(BoxStore.change, box.generation, observed_at="2026-01-01T00:00:00.000000000Z")
    async with harness.boxes(limits=LIMITS) as boxes:
        assert await boxes.list() == []
        assert not log.exists()


@pytest.mark.req("hooks.rule.2.3-orphan-state")
async def test_a_state_whose_hook_is_not_known_any_more_is_told_and_stays_on_the_record(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        await boxes.do(BoxStore.change, box.generation, hooks=())
        await boxes.teardown.end(box.record, "for the test")
        record = await boxes.record("web")
        assert "there is no hook mint any more" in caplog.text
        assert record.hook_state == {"mint": harness.tokens[0]}
        await boxes.destroy("web")
        assert await boxes.list() == []


@pytest.mark.req("hooks.naive.16", "hooks.path.09")
async def test_files_for_a_box_without_a_root_of_its_own_never_follow_a_link_out_of_it(harness: Harness) -> None:
    outside = harness.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("theirs")
    async with harness.boxes(backend="process") as boxes, boxes.box("web") as box:
        root = Path(harness.home, box.generation, "root")
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
                await box.instance.get_client().init([BoxFile(path=path, content=b"", mode=0o600, uid=0, gid=0)])
        assert (root / "root" / "file").read_text() == "ours"
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret", "theirs")]


@pytest.mark.req("hooks.rule.2.4-intent-replay")
@pytest.mark.parametrize("place", [0, 1], ids=["in memory", "beside the boxes"])
async def test_an_answer_is_found_wherever_the_dead_manager_put_it(harness: Harness, place: int) -> None:
    async with harness.boxes() as boxes:
        record = BoxRecord(
            token_hash="h", generation=secrets.token_hex(8), box_id="web", backend="namespaces", created_at="", owner="1:1:gone",
            hooks=[harness.mint],
        )  # fmt: skip
        await boxes.do(BoxStore.reserve, record)
        where = Path(f"{list_answer_places(boxes.home, record.generation)[place]}-0")
        where.parent.mkdir(mode=0o700, exist_ok=True)
        where.write_text('{"state":"minted"}')
        (harness.tokens_folder / "minted").touch()
    async with harness.boxes() as boxes:
        assert await boxes.list() == []
    assert (harness.tokens, where.exists()) == ([], False)
