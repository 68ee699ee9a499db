"""Creates that fail: whatever goes wrong on the way, the caller hears of it and nothing of the box is left."""

from __future__ import annotations

import asyncio

import pytest

from serai.boxes.box_records import BoxStore
from serai.dialects.hookproto.host_side import BoxFile
from serai.errors import BadSettings, BoxFailed, BoxRefused, HookFailed, NotWritten, SeraiError
from tests.support.boxes.harness import Harness, read_output

FAIL = "#!/bin/sh\necho no luck >&2; exit 3\n"
# It succeeds when a box is made and fails when that is undone.
SPOILER = """#!/bin/sh
grep -q box.create || exit 5
echo '{"state":"s"}'
"""
# When a box ends it tells that it is there, and stays until it may go.
SLOW = """#!/bin/sh
grep -q box.create && exec echo '{{"state":"s"}}'
: > {there}
while [ ! -e {go} ]; do sleep 0.01; done
"""
BAD = BoxFile(path="/proc/nowhere/at/all", content=b"", mode=0o600, uid=0, gid=0)


@pytest.mark.req(
    "hooks.rule.1.2-create-failure",
    "hooks.rule.2.2-stop-at-failure",
    "hooks.rule.1.3-box-on-create",
)
async def test_a_failing_hook_fails_the_create_and_the_ones_before_are_undone(harness: Harness) -> None:
    never = harness.hook("never", f"#!/bin/sh\necho ran > {harness.folder}/never-ran\n")
    async with harness.boxes(hooks=[harness.mint, harness.hook("fails", FAIL), never]) as boxes:
        with pytest.raises(HookFailed, match=r"^hook .*/fails: exit status 3: no luck$"):
            await boxes.create("web", description="d")
        assert harness.tokens == []
        about = {"box_id": "web", "description": "d"}  # a roll-back knows what it was to be
        assert [request["box"] for request in harness.told] == [about, about]
        assert harness.events == ["box.create", "box.destroy"]
        assert not (harness.folder / "never-ran").exists()
        assert (await boxes.list(), harness.left()) == ([], [])


@pytest.mark.req("hooks.scenario.create-04", "hooks.scenario.manager-02", "hooks.scenario.backend-06")
async def test_a_backend_that_cannot_provision_gives_the_states_back(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        kind = boxes.backend("namespaces").kind  # type: ignore[attr-defined]
        monkeypatch.setattr(type(kind), "prepare", lambda *_: ["/bin/false"])
        with pytest.raises(BoxFailed, match="ended without a word"):
            await boxes.create("web")
        assert harness.events == ["box.create", "box.destroy"]
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.scenario.manager-01")
async def test_a_backend_that_cannot_be_listed_gets_no_box_and_no_hook_runs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:

        async def broken() -> None:
            raise BoxFailed("cannot list")

        monkeypatch.setattr(boxes.backend("namespaces"), "list", broken)
        with pytest.raises(BoxFailed, match="cannot list"):
            await boxes.create("web")
    assert harness.told == []


@pytest.mark.req("hooks.scenario.manager-03")
async def test_a_box_server_that_refuses_the_files_takes_the_box_down(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        with pytest.raises(SeraiError, match="/proc/nowhere"):
            await boxes.create("web", files=[BAD])
        assert harness.events == ["box.create", "box.destroy"]
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.3.3-persist-failure")
async def test_a_record_that_cannot_be_written_fails_the_create(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise NotWritten("disk full")

    async with harness.boxes(hooks=[harness.mint]) as boxes:
        monkeypatch.setattr(BoxStore, "register", full)
        with pytest.raises(NotWritten, match="disk full"):
            await boxes.create("web")
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.2.4-token-failure")
async def test_without_a_token_no_hook_runs_and_nothing_is_made(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise OSError("no randomness")

    async with harness.boxes(hooks=[harness.mint]) as boxes:
        monkeypatch.setattr("serai.boxes.manager.make_token", none)
        with pytest.raises(OSError, match="no randomness"):
            await boxes.create("web")
        assert (harness.told, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.naive.24")
async def test_a_cancelled_create_is_rolled_back_to_its_end_also_when_it_is_cancelled_again(harness: Harness) -> None:
    """The second time a destroy hook is just running; it ends when the test lets it."""
    there, go = harness.folder / "there", harness.folder / "go"
    slow = harness.hook("slow", SLOW.format(there=there, go=go))
    waits = harness.hook("waits", f"#!/bin/sh\n: > {there}\nexec sleep 1000\n")
    async with harness.boxes(hooks=[slow, harness.mint, waits]) as boxes:
        task = asyncio.create_task(boxes.create("web"))
        try:
            for _ in range(2):
                async with asyncio.timeout(30):
                    while not there.exists():
                        await asyncio.sleep(0.01)
                there.unlink()
                task.cancel()
            for _ in range(100):
                await asyncio.sleep(0)  # as often as it could take for a cancelled create to end
            assert not task.done()
        finally:
            go.touch()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert harness.events == ["box.create", "box.destroy"]
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.2.4-rollback-error")
async def test_a_roll_back_whose_hook_fails_changes_nothing_about_the_error(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.hook("spoiler", SPOILER), harness.mint, harness.hook("fails", FAIL)]) as boxes:
        with pytest.raises(HookFailed, match=r"^hook .*/fails: exit status 3: no luck$"):
            await boxes.create("web")
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.2.4-rollback-error")
async def test_a_roll_back_that_fails_changes_nothing_about_the_error_and_is_made_up_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stuck(*_: object) -> None:
        raise OSError("disk is busy")

    async with harness.boxes(hooks=[harness.mint]) as boxes:
        with monkeypatch.context() as patched:
            patched.setattr(type(boxes.backend("namespaces").kind), "release", stuck)  # type: ignore[attr-defined]
            with pytest.raises(SeraiError, match="/proc/nowhere"):
                await boxes.create("web", files=[BAD])
        assert "the roll-back of its create failed, the next start tries again" in caplog.text
        assert "disk is busy" in caplog.text
        assert [record.lifecycle for record in await boxes.list()] == ["creating"]
        await boxes.destroy("web")
        assert harness.events == ["box.create", "box.destroy"]
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


@pytest.mark.req("hooks.scenario.create-02", "hooks.naive.19", "hooks.rule.3.2-phase")
async def test_a_box_whose_init_script_failed_stays_and_tells_why(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", script=b"#!/bin/sh\necho some output; exit 7\n")
        assert (box.record.status, box.record.lifecycle) == ("broken", "running")
        assert box.record.last_error == "init script failed: exit status 7\n\nsome output"
        assert box.record.to_json()["phase"] == "broken"
        assert await read_output(box, "echo here") == "here\n"
        assert harness.events == ["box.create"]
        assert len(harness.tokens) == 1


@pytest.mark.req("hooks.scenario.create-09", "hooks.rule.3.1-box-id")
async def test_a_bad_id_or_time_is_refused_before_anything_happens(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        for box_id, wishes in {"": {}, "Web": {}, "web": {"ttl": 0}}.items():
            with pytest.raises(BoxRefused):
                await boxes.create(box_id, **wishes)  # type: ignore[arg-type]
    assert harness.told == []


async def test_two_hooks_of_one_name_are_refused_before_anything_happens(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        with pytest.raises(BadSettings, match="two hooks are called mint"):
            await boxes.create("web", hooks=[harness.mint])
    assert harness.told == []


@pytest.mark.req("hooks.rule.8-registry")
async def test_an_unknown_backend_is_refused_with_the_names_of_the_known(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        with pytest.raises(BoxRefused, match="there is no backend 'vm'") as raised:
            await boxes.create("web", backend="vm")
    assert raised.value.hint == "there is namespaces, process"
