"""What may happen to a box while somebody else is at it, gives up, or is stopped: nobody loses a box, a disk or a state over it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serai.boxes import Box, Boxes, hooks, ownership
from serai.boxes.backends.local import LocalInstance
from serai.boxes.box_client import BoxClient
from serai.boxes.box_records import BoxRecord, BoxStore
from serai.errors import BoxFailed, BoxNotFound, BoxRefused, Closed, HookFailed, NotWritten, SeraiError
from serai.wire import process_tree
from serai.wire.plain_process import PlainSpawner
from tests.support.boxes.harness import LIMITS, Harness

SLOW = """\
#!/bin/sh
request=$(cat)
case $request in
*'"box.create"'*) : > "$HERE/creating"; echo begin >> "$HERE/log"; read _ < "$HERE/go"; echo '{"state":"s"}' ;;
*) echo destroy >> "$HERE/log" ;;
esac
"""


async def is_alive(boxes: Boxes, box: Box) -> bool:
    return (await (await boxes.get(box.generation)).exec("cat /workspace/data")).stdout == b"data\n"


async def create_kept_box(boxes: Boxes, **wishes: float) -> Box:
    box = await boxes.create("web", kept=True, **wishes)  # type: ignore[arg-type]
    await box.exec("echo data > /workspace/data")
    return box


async def wait_until_async(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await done():
            await asyncio.sleep(0.01)


# -- a keeper and whoever talks to it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", b"\0", b"\0\0\0\5nonsense", b"\0\0\0\2[]", b"\xff\xff\xff\xff", b"\0\0\x40\0" + b"[" * 16384]
)
async def test_whatever_is_sent_to_a_keeper_does_its_box_no_harm(harness: Harness, sent: bytes) -> None:
    async with harness.boxes() as boxes:
        box = await create_kept_box(boxes)
        with socket.socket(socket.AF_UNIX) as connection:
            at = os.open(Path(harness.home, box.generation), os.O_PATH)
            connection.connect(f"/proc/self/fd/{at}/keeper.sock")
            os.close(at)
            connection.sendall(sent)
        assert await ownership.ask_keeper(os.path.join(harness.home, box.generation), "state", timeout=20) is not None
        with pytest.raises(SeraiError, match="unknown verb"):
            await ownership.ask_keeper(os.path.join(harness.home, box.generation), "nonsense", timeout=20)
        assert await is_alive(boxes, box)
        await box.destroy()


async def test_a_time_to_live_of_months_is_good(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        box = await create_kept_box(boxes, ttl=90 * 86400.0)
        assert await ownership.ask_keeper(os.path.join(harness.home, box.generation), "state", timeout=20) is not None
        await box.destroy()


async def test_a_stop_that_was_asked_of_a_stopped_keeper_is_forgotten_with_whoever_asked(harness: Harness) -> None:
    async with harness.boxes(limits=LIMITS.but(box_stop=0.05)) as boxes:
        box = await create_kept_box(boxes)
        pid = process_tree.parse_identity_pid(box.record.owner)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(BoxFailed, match="the keeper did not answer `pause`"):
            await box.pause()
        os.kill(pid, signal.SIGCONT)
        assert await ownership.ask_keeper(os.path.join(harness.home, box.generation), "state", timeout=20) is not None
        assert await is_alive(boxes, box)
    async with harness.boxes() as boxes:
        await boxes.destroy("web")


# -- pause and resume -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.rule.3.5-paused-safe")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "owned"])
async def test_a_pause_goes_on_to_its_end_when_its_caller_gives_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    begun, go, stop = asyncio.Event(), asyncio.Event(), LocalInstance._stop

    async def held_up(instance: LocalInstance) -> None:
        begun.set()
        await go.wait()
        await stop(instance)

    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", kept=keep, ttl=3600)
        await box.exec("echo data > /workspace/data")
        with monkeypatch.context() as patched:
            patched.setattr(LocalInstance, "_stop", held_up)
            pausing = asyncio.create_task(box.pause())
            await begun.wait()
            pausing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pausing
            go.set()
            await wait_until_async(lambda: _has_no_expiry(boxes, box))
        async with harness.boxes() as others:
            assert [record.state for record in await others.list()] == ["paused"]
        await boxes.resume("web")
        assert await is_alive(boxes, box)
        assert harness.events == ["box.create"]
        await boxes.destroy("web")


async def _has_no_expiry(boxes: Boxes, box: Box) -> bool:
    return (await boxes.record(box.generation)).expires_at is None


@pytest.mark.req("hooks.rule.3.5-paused-safe", "hooks.rule.3.5-marker")
@pytest.mark.parametrize("how", ["too slow", "init fails", "record fails"])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "owned"])
async def test_a_resume_that_fails_leaves_the_box_paused(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, keep: bool, how: str
) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", kept=keep)
        await box.exec("echo data > /workspace/data")
        await box.pause()

        async def broken(*_: object, **__: object) -> None:
            raise BoxFailed("not now")

        def full(*_: object, **__: object) -> None:
            raise NotWritten("disk full")

        with monkeypatch.context() as patched:
            if how == "too slow":
                boxes.limits = boxes.limits.but(box_start=0.001)
            elif how == "init fails":
                patched.setattr(BoxClient, "init", broken)
            else:
                patched.setattr(BoxStore, "register", full)
            with pytest.raises(SeraiError):
                await boxes.resume("web")
        boxes.limits = LIMITS
        async with harness.boxes() as others:
            assert [record.state for record in await others.list()] == ["paused"]
        await boxes.resume("web")
        assert await is_alive(boxes, box)
        assert harness.events == ["box.create"]
        await boxes.destroy("web")


async def test_while_a_box_is_resumed_it_is_nobody_elses(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    init = BoxClient.init
    seen: list[str] = []

    async def meanwhile(self: BoxClient, *arguments: object, **named: object) -> object:
        async with harness.boxes() as others:  # settles what has no owner
            seen.extend(record.state for record in await others.list())
            with pytest.raises(BoxRefused, match="being resumed or destroyed by somebody else"):
                await others.resume("web")
        return await init(self, *arguments, **named)  # type: ignore[arg-type]

    async with harness.boxes() as boxes:
        box = await create_kept_box(boxes)
        await box.pause()
        monkeypatch.setattr(BoxClient, "init", meanwhile)
        await box.resume()
        assert seen == ["paused"]
        assert await is_alive(boxes, box)
        await box.destroy()


async def test_of_two_resumes_one_wins(harness: Harness) -> None:
    async with harness.boxes() as one, harness.boxes() as other:
        box = await create_kept_box(one)
        await box.pause()
        results = await asyncio.gather(one.resume("web"), other.resume("web"), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["BoxRecord", "BoxRefused"]
        assert await is_alive(one, box)
        await one.destroy("web")
        assert harness.left() == []


async def test_a_box_that_another_process_resumed_is_paused_through_its_new_keeper(harness: Harness) -> None:
    async with harness.boxes() as one, harness.boxes() as other:
        box = await create_kept_box(one)
        await one.pause("web")
        await other.resume("web")
        await one.pause("web")
        await wait_until_async(lambda: _has_state(one, box, "paused"))
        await other.resume("web")
        assert await is_alive(one, box)
        await one.destroy("web")


async def _has_state(boxes: Boxes, box: Box, state: str) -> bool:
    await boxes.list()
    return (await boxes.record(box.generation)).state == state


async def test_the_time_to_live_is_known_when_the_pauser_dies_over_the_rest(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object, **__: object) -> None:
        raise RuntimeError("dead")

    async with harness.boxes() as boxes:
        box = await create_kept_box(boxes, ttl=3600.0)
        with monkeypatch.context() as patched:
            patched.setattr(LocalInstance, "_stop", dies)
            pausing = asyncio.ensure_future(boxes.pause("web"))
            with pytest.raises(RuntimeError, match="dead"):
                await pausing
        record = await boxes.record("web")
        assert record.time_left is not None
        assert record.time_left > 3500
        await box.destroy()


# -- ends -------------------------------------------------------------------------------------------------------------------------


async def test_a_box_id_may_not_be_another_boxes_generation(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        box = await boxes.create("web")
        with pytest.raises(BoxRefused, match="is the generation of another box"):
            await boxes.create(box.generation)


async def test_destroy_during_a_create_of_ours_gives_it_up_and_leaves_nothing(harness: Harness) -> None:
    os.mkfifo(harness.folder / "go")
    slow = harness.hook("slow", SLOW, {"HERE": str(harness.folder)})
    async with harness.boxes(hooks=[harness.mint, slow]) as boxes:
        making = asyncio.create_task(boxes.create("web"))
        while not (harness.folder / "creating").exists():
            await asyncio.sleep(0.01)
        await boxes.destroy("web")
        with pytest.raises(BoxRefused, match='box "web" was destroyed while it was being made'):
            await making
        assert (harness.tokens, await boxes.list(), harness.left()) == ([], [], [])


async def test_closing_during_a_create_gives_it_up_and_leaves_nothing(harness: Harness) -> None:
    os.mkfifo(harness.folder / "go")
    slow = harness.hook("slow", SLOW, {"HERE": str(harness.folder)})
    async with harness.boxes(hooks=[harness.mint, slow]) as boxes:
        making = asyncio.create_task(boxes.create("web"))
        while not (harness.folder / "creating").exists():
            await asyncio.sleep(0.01)
    with pytest.raises((BoxRefused, asyncio.CancelledError)):
        await making
    assert (harness.tokens, harness.left()) == ([], [])
    async with harness.boxes() as boxes:
        assert await boxes.list() == []


async def test_a_box_that_another_process_is_making_is_not_destroyed_under_it(harness: Harness) -> None:
    os.mkfifo(harness.folder / "go")
    slow = harness.hook("slow", SLOW, {"HERE": str(harness.folder)})
    async with harness.boxes(hooks=[slow]) as boxes, harness.boxes() as others:
        making = asyncio.create_task(boxes.create("web"))
        while not (harness.folder / "creating").exists():
            await asyncio.sleep(0.01)
        with pytest.raises(BoxRefused, match=f"is being created by the process {os.getpid()}"):
            await others.destroy("web")
        with pytest.raises(BoxRefused, match="still being created"):
            await others.get("web")
        (harness.folder / "go").write_text("\n")
        assert (await making).id == "web"


@pytest.mark.req("hooks.rule.2.5-once-after")
async def test_two_that_destroy_a_paused_box_tell_its_hooks_once(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as one, harness.boxes() as other:
        await (await create_kept_box(one)).pause()
        await asyncio.gather(one.destroy("web"), other.destroy("web"), other.list())
        assert harness.events == ["box.create", "box.destroy"]
        assert (harness.left(), await one.list()) == ([], [])


async def test_two_managers_of_one_process_do_not_take_each_others_boxes(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as one, harness.boxes() as other:
        box = await one.create("web")
        with pytest.raises(BoxRefused, match="belongs to the running process"):
            await other.destroy("web")
        assert (await box.exec("true")).exit_code == 0
    assert harness.events == ["box.create", "box.destroy"]


async def test_a_kept_create_that_fails_tells_its_hooks_once(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint], limits=LIMITS.but(box_start=0.001)) as boxes:
        with pytest.raises(BoxFailed, match="did not start in time"):
            await boxes.create("web", kept=True)
        assert harness.events == ["box.create", "box.destroy"]
    async with harness.boxes() as boxes:
        assert await boxes.list() == []
    assert (harness.tokens, harness.left(), harness.events) == ([], [], ["box.create", "box.destroy"])


async def test_a_box_without_a_record_is_destroyed_by_its_id_or_generation(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        for name in ("id", "generation"):
            box = await create_kept_box(boxes)
            os.kill(process_tree.parse_identity_pid(box.record.owner), 0)
            await boxes.do(BoxStore.delete, box.generation)
            await boxes.destroy("web" if name == "id" else box.generation)
            assert harness.left() == []


async def test_a_destroy_hook_that_the_machine_will_not_start_is_still_to_be_told(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from errno import EMFILE

    from serai.errors import SpawnFailed

    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web")
        with monkeypatch.context() as patched:

            async def none_left(*_: object) -> None:
                raise SpawnFailed("too many open files", errno=EMFILE)

            patched.setattr(PlainSpawner, "spawn", none_left)
            with pytest.raises(BoxFailed, match="its hook mint could not be run"):
                await box.destroy()
        assert (len(harness.tokens), [record.hooks_done for record in await boxes.list()]) == (1, [[]])
        await box.destroy()
        assert (harness.tokens, await boxes.list()) == ([], [])


async def test_a_record_that_cannot_be_read_keeps_its_own_box_only(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        bad, good = await boxes.create("bad"), await boxes.create("good")
        await boxes.do(_write_raw, bad.generation, "hook_state", "{broken")
        assert {record.box_id for record in await boxes.list()} == {"bad", "good"}
        assert (await good.exec("true")).exit_code == 0
        await good.destroy()
        with pytest.raises(NotWritten, match="is not ended without its hooks"):
            await bad.destroy()
        await boxes.do(_write_raw, bad.generation, "hook_state", f'{{"mint":"{harness.tokens[0]}"}}')


def _write_raw(store: BoxStore, generation: str, column: str, text: str) -> None:
    store._db.rows.execute(f"UPDATE boxes SET {column} = ? WHERE instance_id = ?", [text, generation])


async def test_a_change_of_a_record_that_is_gone_is_told(harness: Harness) -> None:
    async with harness.boxes() as boxes:
        with pytest.raises(BoxNotFound):
            await boxes.do(BoxStore.change, "0" * 16, owner="")


async def test_after_closing_everything_says_so_and_a_cancelled_close_goes_on(harness: Harness) -> None:
    boxes = harness.boxes(hooks=[harness.mint])
    with pytest.raises(Closed):
        await boxes.list()
    await boxes.open()
    box = await boxes.create("web")
    closing = asyncio.create_task(boxes.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await boxes.close()
    assert (harness.tokens, harness.left()) == ([], [])
    for call in (boxes.list, lambda: boxes.create("other"), lambda: boxes.get("web"), lambda: boxes.pause("web")):
        with pytest.raises(Closed):
            await call()
    assert await box.destroy() == ""


@pytest.mark.slow
async def test_many_kept_boxes_leave_nothing_in_a_manager_that_lives_on(harness: Harness) -> None:
    async with harness.boxes() as boxes:

        async def live_and_die() -> None:
            box = await boxes.create("web", kept=True)
            await asyncio.gather(box.exec("true"), box.exec("true"))
            await box.destroy()

        await live_and_die()
        await wait_until_async(lambda: _is_settled(boxes))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            await live_and_die()

        async def as_before() -> bool:
            return len(os.listdir("/proc/self/fd")) <= before

        await wait_until_async(as_before)  # the keepers end a moment after they have answered


async def _is_settled(boxes: Boxes) -> bool:
    return not await boxes.list() and not process_tree.walk_children([os.getpid()]) & _find_keepers()


def _find_keepers() -> set[int]:
    def is_keeper(pid: str) -> bool:
        try:
            return b"programs.keeper" in Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            return False

    return {int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_keeper(pid)}


def test_owners_are_told_apart() -> None:
    one, other = ownership.make_manager_name(), ownership.make_manager_name()
    assert one != other
    assert all(map(process_tree.is_alive, (one, other, process_tree.get_own_identity())))
    assert all(map(ownership.is_here, (one, other, process_tree.get_own_identity())))
    assert ownership.is_manager(one)
    assert not ownership.is_manager(process_tree.get_own_identity())
    assert process_tree.parse_identity_pid(one) == os.getpid()
    gone = process_tree.get_own_identity().replace(":", ":9", 1)
    assert not process_tree.is_alive(gone)
    assert not process_tree.is_alive("")


# -- where answers lie ------------------------------------------------------------------------------------------------------------


async def test_an_answer_that_had_no_room_is_a_failure_and_not_an_empty_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that does not look whether it could write ends well and has said nothing: its state would never be known."""
    real = os.fstatvfs

    def full(descriptor: int) -> os.statvfs_result:
        fields = list(real(descriptor))
        fields[2], fields[4] = max(fields[2], 1), 0
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "fstatvfs", full)
    silent = harness.hook("silent", "#!/bin/sh\n")
    async with harness.boxes(hooks=[harness.mint, silent]) as boxes:
        with pytest.raises(HookFailed, match="silent: there was no room for its answer"):
            await boxes.create("web")
        assert (harness.tokens, harness.events) == ([], ["box.create", "box.destroy"])


@pytest.mark.parametrize("trouble", ["a link", "others may look", "nearly full", "none"])
async def test_answers_are_in_memory_only_where_that_is_ours_alone_and_has_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    memory = harness.folder / "memory"
    record = BoxRecord(token_hash="", generation="0" * 16, box_id="web", backend="", created_at="")
    boxes = harness.boxes(limits=LIMITS.but(hook_max_output=1 << 60) if trouble == "nearly full" else LIMITS)
    beside = os.path.join(harness.home, "answers", record.generation)
    monkeypatch.setattr(hooks, "list_answer_places", lambda *_: (str(memory / "x"), beside))
    if trouble == "a link":
        memory.symlink_to(harness.tokens_folder)
    elif trouble == "others may look":
        memory.mkdir()
        memory.chmod(0o755)
    assert hooks.choose_answer_place(boxes.home, record.generation, boxes.limits) == (
        str(memory / "x") if trouble == "none" else beside
    )
    await boxes.close()
