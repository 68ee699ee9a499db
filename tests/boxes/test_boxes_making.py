"""Creates that fail: whatever goes wrong on the way, the caller hears of it and nothing of the box is left."""

from __future__ import annotations

import asyncio

import pytest

from serai.boxes.box_records import BoxStore
from serai.dialects.hookproto.host_side import BoxFile
from serai.errors import BadSettings, BoxFailed, BoxRefused, HookFailed, NotWritten, SeraiError
from tests.boxes.houses import House, text

pytestmark = pytest.mark.loops

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
        with pytest.raises(SeraiError, match="/proc/nowhere"):
            await boxes.create("web", files=[BAD])
        assert house.events == ["box.create", "box.destroy"]
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.3.3-persist-failure")
async def test_a_record_that_cannot_be_written_fails_the_create(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise NotWritten("disk full")

    async with house.boxes(hooks=[house.mint]) as boxes:
        monkeypatch.setattr(BoxStore, "register", full)
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
async def test_a_cancelled_create_is_rolled_back_to_its_end_also_when_it_is_cancelled_again(house: House) -> None:
    """The second time a destroy hook is just running; it ends when the test lets it."""
    there, go = house.folder / "there", house.folder / "go"
    slow = house.hook("slow", SLOW.format(there=there, go=go))
    waits = house.hook("waits", f"#!/bin/sh\n: > {there}\nexec sleep 1000\n")
    async with house.boxes(hooks=[slow, house.mint, waits]) as boxes:
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
        assert house.events == ["box.create", "box.destroy"]
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.2.4-rollback-error")
async def test_a_roll_back_whose_hook_fails_changes_nothing_about_the_error(house: House) -> None:
    async with house.boxes(hooks=[house.hook("spoiler", SPOILER), house.mint, house.hook("fails", FAIL)]) as boxes:
        with pytest.raises(HookFailed, match=r"^hook .*/fails: exit status 3: no luck$"):
            await boxes.create("web")
        assert (house.tokens, await boxes.list(), house.left()) == ([], [], [])


@pytest.mark.req("hooks.rule.2.4-rollback-error")
async def test_a_roll_back_that_fails_changes_nothing_about_the_error_and_is_made_up_for(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stuck(*_: object) -> None:
        raise OSError("disk is busy")

    async with house.boxes(hooks=[house.mint]) as boxes:
        with monkeypatch.context() as patched:
            patched.setattr(type(boxes.backend("namespaces").kind), "release", stuck)  # type: ignore[attr-defined]
            with pytest.raises(SeraiError, match="/proc/nowhere"):
                await boxes.create("web", files=[BAD])
        assert "the roll-back of its create failed, the next start tries again" in caplog.text
        assert "disk is busy" in caplog.text
        assert [record.lifecycle for record in await boxes.list()] == ["creating"]
        await boxes.destroy("web")
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
