"""A recorded wire, replayed, gives what the live one gave."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from serai.dialects.claude.messages import HostContent
from serai.dialects.zot.host_side import HostSide
from serai.dialects.zot.messages import ContentBlock, HelloAck
from serai.dialects.zot.peer_side import PeerSide
from serai.errors import NoRecording, SeraiError
from serai.limits import Limits
from serai.record import Recorder, Recording, export_recording, replay
from serai.record.recording import DIALECTS, describe, make_side
from serai.wire import JsonRpcPeer, PlainSpawner
from serai.wire.jsonrpc import JsonRpcConnection, Request
from serai.wire.stream import Oversize
from tests.support.recordings import open_folder, open_recording, record_peer

PRELUDE = [
    '{"jsonrpc":"2.0","id":"a","method":"host/ask","params":{"x":1}}',
    '{"jsonrpc":"2.0","method":"notify/something","params":[1,2]}',
    '{"jsonrpc":"2.0","id":"b","method":"host/other"}',
    '{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"b"}}',
    '{"jsonrpc":"2.0","id":"a","method":"host/ask"}',
    "no frame at all",
    '{"jsonrpc":"2.0","id":1,"result":"not yet asked"}',
]
SCENES: list[tuple[str, dict[str, Any], float]] = [
    ("none", {"prelude": PRELUDE}, 15),
    ("banner", {}, 15),
    ("twice", {}, 15),
    ("stranger", {}, 15),
    ("trickle", {"bytes": 7}, 15),
    ("dies", {"after": 2}, 15),
    ("half", {"after": 1}, 15),
    ("bad-utf8", {}, 15),
    ("huge", {"bytes": 300_000}, 15),
    ("silent", {"after": 2}, 0.05),
    ("slow", {"seconds": 0.1}, 0.05),
    ("none", {"reply": '{"jsonrpc":"2.0","id":$id,"error":{"code":-3,"message":"no","data":[1]}}'}, 15),
]


class Overheard:
    """What a live connection says, in order."""

    def __init__(self, connection: JsonRpcConnection) -> None:
        self.events: list[dict[str, Any]] = []
        for name in ("receive", "oversize", "lose"):
            setattr(connection, name, self._listening(getattr(connection, name)))

    def _listening(self, method: Any) -> Any:
        def listen(*arguments: Any) -> Any:
            events = method(*arguments)
            self.events += map(describe, events)
            return events

        return listen


async def converse(rpc: JsonRpcPeer, timeout: float) -> None:
    """Calls one by one, a bunch at once, and one that is given up."""
    outcomes = [rpc.call("one", {"n": n}, timeout=timeout) for n in range(3)]
    for outcome in outcomes[:1]:
        await asyncio.gather(outcome, return_exceptions=True)
    await asyncio.gather(*outcomes[1:], return_exceptions=True)
    given_up = asyncio.ensure_future(rpc.call("never mind", timeout=timeout))
    await asyncio.sleep(0)
    given_up.cancel()
    for n in range(2):
        try:
            await rpc.call("more", {"n": n}, timeout=timeout)
        except SeraiError:
            pass


@pytest.mark.req("record.replay.same")
@pytest.mark.parametrize(
    ("fault", "options", "timeout"), SCENES, ids=[f"{number}-{scene[0]}" for number, scene in enumerate(SCENES)]
)
async def test_a_replay_gives_the_same_events(
    tmp_path: Path, spawner: PlainSpawner, fault: str, options: dict[str, Any], timeout: float
) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with record_peer(recorder, spawner, fault, **options) as rpc:
            live = Overheard(rpc.connection)
            await converse(rpc, timeout)
    with open_recording(folder) as recording:
        replayed = [describe(event) for _, event in replay(recording, 1) if not isinstance(event, Oversize)]
    assert replayed == live.events
    assert replayed


@pytest.mark.req("record.replay.same", "record.export.one-file")
async def test_an_export_replays_as_the_recording_does(tmp_path: Path, spawner: PlainSpawner) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with record_peer(recorder, spawner, "stranger") as rpc:
            await converse(rpc, 15)
    with open_recording(folder) as recording:
        export_recording(recording, tmp_path / "bug.rec")
        original = [describe(event) for _, event in replay(recording, 1)]
    with Recording.open(tmp_path / "bug.rec") as recording:
        assert [describe(event) for _, event in replay(recording, 1)] == original


@pytest.mark.req("record.replay.either-side")
async def test_the_peers_side_sees_what_we_sent(tmp_path: Path, spawner: PlainSpawner) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with record_peer(recorder, spawner, prelude=PRELUDE[:1]) as rpc:
            await rpc.call("one", {"n": 1}, timeout=15)
            rpc.notify("two")
            await rpc.call("three", timeout=15)
    with open_recording(folder) as recording:
        events = [event for _, event in replay(recording, 1, view="theirs")]
    summary = [(event.method if isinstance(event, Request) else type(event).__name__) for event in events]
    assert summary.count("Failure") == 1  # our refusal of its host/ask, which nobody served
    assert [word for word in summary if word != "Failure"] == ["one", "Notification", "three"]


@pytest.mark.req("record.replay.same")
def test_a_skipped_frame_ends_the_call_it_answered(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        tap = recorder.open_tap("a", kind="guest", dialect="jsonrpc")
        for number in (1, 2):
            tap.frames("sent", monotonic(), b'{"jsonrpc":"2.0","id":%d,"method":"m"}\n' % number)
        tap.skipped(monotonic(), Oversize(size=999, head=b'{"jsonrpc":"2.0","id":2,"result":"xxx', limit=99))
    with open_recording(folder) as recording:
        frame, call = (describe(event) for _, event in replay(recording, 1))
    assert frame["event"] == "Oversize"
    assert call == {"event": "Call", "id": 2, "what": "m"}


@pytest.mark.req("record.replay.same")
def test_only_that_wire_is_replayed_and_what_is_missing_is_told(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder, limits=Limits().but(record_memory=3000, record_batch=60.0)) as recorder:
        mine, other = (recorder.open_tap(who, kind="guest", dialect="jsonrpc") for who in ("mine", "other"))
        for tap in (mine, other):
            tap.frames("sent", monotonic(), b'{"id":1,"method":"m"}\n')
            tap.skipped(monotonic(), Oversize(size=999, head=b'{"id":9,"result":"xxx', limit=99))
            tap.frames("received", monotonic(), b'{"id":1,"result":1}\n')
            tap.frames("sent", monotonic(), b'{"id":2,"method":"waits"}\n')
        mine.frames("received", monotonic(), b'{"method":"told","params":"%s"}\n' % (b"x" * 5000))
        other.end()
    with open_recording(folder) as recording:
        ours = [describe(event)["event"] for _, event in replay(recording, 1)]
        theirs = [describe(event)["event"] for _, event in replay(recording, 1, view="theirs")]
    assert ours == ["Oversize", "Answer", "Dropped"]  # no end on record: the call that waits is not given up
    assert theirs == ["Request", "Request", "Dropped"]


def record_zot_talk(recorder: Recorder) -> tuple[list[Any], list[Any]]:
    """A guest of the dialect zot and the host, with all they say on record; what each made of the other."""
    tap = recorder.open_tap("zot:tides", kind="guest", dialect="zot")
    ours, theirs = HostSide(), PeerSide()
    heard: list[Any] = []
    asked: list[Any] = []

    def say(frame: bytes | None) -> None:
        assert frame is not None
        tap.frames("received", monotonic(), frame)
        heard.extend(ours.receive(frame))

    def tell(frame: bytes) -> None:
        tap.frames("sent", monotonic(), frame)
        asked.extend(theirs.receive(frame))

    say(theirs.hello("tides", "1") + theirs.register_tool("t") + theirs.subscribe(["turn_end"], ["tool_call"]))
    tell(ours.welcome(HelloAck(cwd="/w"), now=0.0))
    say(theirs.ready() + b"a stray print\n")
    call, frame = ours.call_tool("t", {"a": [1]}, now=0.0, timeout=60.0)
    tell(frame)
    tell(ours.invoke_command("c", "", now=0.0, timeout=30.0)[1] + ours.intercept_turn_start(1, now=0.0, timeout=5.0)[1])
    say(theirs.answer_tool(call.id, [ContentBlock("text", "HW")]))
    say(b'{"type":"tool_result","id":"%s"}\n' % call.id.encode())
    heard.extend(ours.lose())
    asked.extend(theirs.lose())
    tap.end()
    return heard, asked


@pytest.mark.req("record.replay.same", "record.replay.either-side")
def test_a_wire_of_zot_replays_from_either_side(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        heard, asked = record_zot_talk(recorder)
    with open_recording(folder) as recording:
        ours = [describe(event) for _, event in replay(recording, 1)]
        theirs = [describe(event) for _, event in replay(recording, 1, view="theirs")]
    assert ours == [describe(event) for event in heard]
    assert theirs == [describe(event) for event in asked]
    assert [event["event"] for event in ours] == [
        "Hello", "ToolOffered", "Subscribed", "Ready", "Malformed", "Answered", "Stray", "Call", "Call",
    ]  # fmt: skip
    assert [event["event"] for event in theirs] == [
        "Welcomed", "ToolCalled", "CommandInvoked", "Intercepted", "CommandInvoked", "Intercepted",
    ]  # fmt: skip
    assert json.dumps([ours, theirs])  # plain data, all of it
    assert ours[5]["frame"]["content"] == [{"event": "ContentBlock", "type": "text", "text": "HW", "mime_type": "", "data": ""}]


def test_a_dialect_nobody_speaks_here_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoRecording, match="'klingon'") as raised:
        make_side("klingon")
    assert "jsonrpc" in raised.value.hint


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("view", ["ours", "theirs"])
def test_every_dialect_in_the_table_can_be_made(dialect: str, view: Any) -> None:
    assert make_side(dialect, view).receive(b"") == []


def test_taking_up_what_was_said_earlier() -> None:
    """The parts of `JsonRpcConnection.note_sent` one by one."""
    side = JsonRpcConnection()
    side.note_sent(b'{"method":"$/cancelRequest","params":[1]}\n{"method":"$/cancelRequest"}\n', 0.0)
    side.note_sent(
        b'{"id":5,"method":"m"}\n{"method":"told"}\n{"method":"$/cancelRequest","params":{"id":9}}\nrubbish\n{"id":"x","method":"y"}\n',
        0.0,
    )
    [answer] = side.receive(b'{"id":5,"result":1}\n')
    assert describe(answer)["call"] == {"event": "Call", "id": 5, "what": "m"}
    _, frame = side.request("next", {}, now=0, timeout=None)
    assert json.loads(frame)["id"] == 6
    [request] = side.receive(b'{"id":"q","method":"ask"}\n')
    assert isinstance(request, Request)
    side.note_sent(b'{"id":"q","result":1}\n', 0.0)
    assert side.answer(request, 2) is None  # answered already


def test_what_replay_prints_of_a_prompt_has_its_name_for_good() -> None:
    assert describe(HostContent(role="user", content="x")) == {"event": "Said", "role": "user", "content": "x"}
