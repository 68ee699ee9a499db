"""What a guest can do wrong: it hurts itself alone, nothing hangs, nothing is left, and there is one cause (design rule 9)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.errors import LimitHit, OversizeFrame
from serai.host.guest import GuestState
from serai.model.actions import Display
from serai.model.approvals import Answer, Question
from serai.model.tools import ToolCall
from tests.support.app import apps
from tests.support.app.apps import Person
from tests.support.host.zot_guests import log_of, wait_for_state
from tests.support.piglet.journals import ONE_LOOP, wait_for_note
from tests.support.piglet.raw_guests import child_of, notices, write_bare_guest
from tests.support.piglet_guests.guest_folder import offer, write
from tests.support.piglet_guests.steps import Step, ask, crash, fault, note, relay, say, tell, wait

pytestmark = ONE_LOOP

FRAME = 4 * 1024 * 1024
SHORT = {"exit_grace": 0.1, "drain_grace": 0.1, "stop_polite": 0.05, "stop_term": 0.05}


@pytest.fixture(autouse=True)
def _no_exception_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    told = [record for record in caplog.get_records("call") if record.exc_info or record.levelno >= logging.ERROR]
    assert not told, [record.getMessage() for record in told]


@asynccontextmanager
async def open_app(tmp_path: Path, folder: Path, person: Person | None = None, **limits: float) -> AsyncIterator[App]:
    """An app with this guest and another, which is served before and after."""
    other = write(tmp_path, "other", tools={"other": "here"})
    async with apps.open_app(tmp_path, folder, other, surface=person or Person(), limits={**apps.PATIENT, **limits}) as app:
        assert await run(app, "other") == "here"
        yield app
        assert await run(app, "other") == "here"
        assert app.host.guest("other").generation == 1


async def run(app: App, tool: str, **arguments: Any) -> str:
    return (await asyncio.wait_for(app.call_tool(ToolCall(tool, arguments)), 60)).text


# -- what it survives


PRINTED = '{"jsonrpc":"2.0","method":"register/command","params":{"name":"printed"}}\n'

HARMLESS: dict[str, list[Step]] = {
    "prose": [fault("prose"), fault("prose", text=""), fault("prose", text="\r")],
    "not JSON": [fault("raw", line='{"jsonrpc":"2.0","id":'), fault("raw", line="\\xff{]"), fault("raw", line="}{")],
    "scalars": [fault("raw", line=text) for text in ("7", '"text"', "null", "true", "[]")],
    "batch": [fault("batch")],
    "fraction as id": [fault("float-id"), fault("raw", line='{"id":true,"method":"host/extensionsDir"}')],
    "no version": [
        fault("raw", line='{"method":"log","params":{"message":"hi"}}'),
        fault("raw", line='{"jsonrpc":7,"method":"x"}'),
    ],
    "unknown words": [tell("unheard/of", {"a": 1}), tell("register/unheardOf", {"name": "x"}), tell("initialize", {})],
    "bad params": [tell("notify", [1]), tell("setWidget", "x"), tell("log", {"message": {}}), tell("provider/delta", 7)],
    "empty names": [fault("empty-name")],
    "bad registrations": [fault("bad-registration")],
    "strange answers": [fault("stranger")],
    "answers twice": [fault("twice")],
    "prints": [fault("stdout", text=PRINTED), fault("stdout", bytes=1 << 20), fault("stderr")],
}


@pytest.mark.req("piglet.rule.framing-noise", "piglet.rule.envelope-shapes", "piglet.rule.envelope-version")
@pytest.mark.parametrize("steps", HARMLESS.values(), ids=HARMLESS)
async def test_what_is_no_message_changes_nothing(tmp_path: Path, steps: list[Step]) -> None:
    """In the handshake, in the middle of a call and afterwards."""
    folder = write(tmp_path, "odd", at_start=steps[:], at_init=steps[:], tools={"odd": [*steps, say("fine")]}, after_init=steps[:])
    if steps[0].get("fault") == "twice":
        folder = write(tmp_path, "odd", tools={"odd": [say("fine"), *steps]})
    async with open_app(tmp_path, folder) as app:
        for _ in range(3):
            assert await run(app, "odd") == "fine"
        guest = app.host.guest("odd")
        assert (guest.state, guest.generation, guest.error) == (GuestState.READY, 1, None)
        assert [tool.name for tool in guest.contributions.tools] == ["odd"]
        assert not guest.contributions.commands


@pytest.mark.req("piglet.rule.envelope-ids")
async def test_a_string_id_is_echoed_and_an_array_of_requests_is_not_answered(tmp_path: Path) -> None:
    steps = [fault("batch"), fault("string-id", id="seven"), fault("string-id", id="0"), fault("string-id", id='\u00fc "quoted"')]
    async with open_app(tmp_path, write(tmp_path, "odd", tools={"odd": steps}, journal=tmp_path / "journal")) as app:
        answers = [json.loads(line) for line in (await run(app, "odd")).splitlines()]
        assert [answer["id"] for answer in answers] == ["seven", "0", '\u00fc "quoted"']
        assert all("path" in answer["result"] for answer in answers)
    assert '"id": 4242' not in (tmp_path / "journal").read_text()


@pytest.mark.req("piglet.rule.framing-lines")
async def test_the_last_line_counts_without_its_end_and_lines_may_end_as_on_other_machines(tmp_path: Path) -> None:
    body = """
first = next(lines(3))
os.write(4, b"\\r\\n\\n  \\n" + json.dumps(tool("look")).encode() + b"\\r\\n")
say(4, hello())
for m in lines(3):
    if "id" in m:
        os.write(4, json.dumps(answer(m["id"], "the last word")).encode())
        os._exit(0)
"""
    async with open_app(tmp_path, write_bare_guest(tmp_path, body), restart_wait=60.0, restart_wait_most=60.0) as app:
        assert await run(app, "look") == "the last word"
        await wait_for_state(app.host, "bare", GuestState.BACKING_OFF)


# -- long lines (FIX-3)


@pytest.mark.req("piglet.fix.03")
async def test_a_long_line_without_an_id_fails_all_that_is_under_way_and_the_stream_goes_on(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    tools = {
        "long": [fault("long-line", bytes=FRAME + 1), say("after it")],
        "slow": [note(begun), wait()],
        "fits": [fault("long-line", bytes=FRAME - 1), say("fits")],
        "look": "fog",
    }
    tools["anonymous"] = [fault("raw", line='{"params":0,"x":"' + "x" * FRAME + '"}'), say("after it")]
    body = json.dumps({"result": "x" * FRAME})
    tools["nobody"] = [fault("raw", line=body), say("after it")]
    async with open_app(tmp_path, write(tmp_path, "long", tools=tools)) as app:
        slow = asyncio.create_task(app.host.call_tool("slow"))
        await wait_for_note(begun)
        ended = await app.host.call_tool("nobody")
        for result in (ended, await slow):
            assert (result.is_error, result.code) == (True, "BAD_ANSWER")
            assert f"had {len(body) + 1} bytes (limit frame = {FRAME})" in result.text
        assert await run(app, "long") == "after it"  # a notification ends nobody's call
        assert await run(app, "anonymous") == "after it"
        assert await run(app, "fits") == "fits"
        assert await run(app, "look") == "fog"
        guest = app.host.guest("long")
        assert (guest.state, guest.generation) == (GuestState.READY, 1)
        assert f"a frame of {FRAME + 2} bytes was skipped; the limit is {FRAME}" in log_of(app.host, "long")


@pytest.mark.req("piglet.fix.03")
async def test_a_long_answer_fails_its_own_call_alone(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    tools = {"long": [say("x" * FRAME)], "slow": [note(begun), wait(go), say("done")]}
    async with open_app(tmp_path, write(tmp_path, "long", tools=tools)) as app:
        running: Any = app.host.guest("long").running
        slow = asyncio.create_task(app.host.call_tool("slow"))
        await wait_for_note(begun)
        with pytest.raises(OversizeFrame) as raised:
            await running.call_tool(ToolCall("long", {}))
        assert raised.value.limit == LimitHit("frame", FRAME)
        assert not slow.done()
        go.touch()
        assert (await slow).text == "done"


@pytest.mark.req("piglet.rule.framing-send-limit")
async def test_what_is_too_long_to_send_is_the_callers_error_and_a_long_request_is_refused(tmp_path: Path) -> None:
    tools = {
        "look": offer("$text", parameters={"type": "object"}),
        "asks": [ask("host/publish", {"topic": "t", "data": "x" * FRAME}), say("went on")],
    }
    async with open_app(tmp_path, write(tmp_path, "long", tools=tools)) as app:
        result = await app.host.call_tool("look", {"text": "x" * FRAME})
        assert (result.is_error, result.code) == (True, "INVALID_ARGS")
        assert f"limit send = {FRAME}" in result.text
        assert await run(app, "look", text="short") == "short"
        refused, _, last = (await run(app, "asks")).partition("\n")
        assert (json.loads(refused)["error"]["code"], last) == (-32600, "went on")
        assert app.host.guest("long").generation == 1


# -- what it does not


DEADLY: dict[str, list[Step]] = {
    "crash": [crash()],
    "killed": [crash(signal=9)],
    "closes its end": [fault("stubborn"), fault("close-wire")],
    "leaves its wire to somebody": [fault("holder")],
}


@pytest.mark.parametrize("steps", DEADLY.values(), ids=DEADLY)
async def test_an_end_in_the_middle_of_a_call_has_one_cause_and_the_guest_is_back(tmp_path: Path, steps: list[Step]) -> None:
    begun, person = tmp_path / "begun", Person()
    folder = write(tmp_path, "odd", tools={"odd": steps, "slow": [note(begun), wait()], "look": "fog"})
    async with open_app(tmp_path, folder, person, **SHORT) as app:
        slow = asyncio.create_task(app.host.call_tool("slow"))
        await wait_for_note(begun)
        child = child_of(app.host, "odd")
        for result in (await asyncio.wait_for(app.host.call_tool("odd"), 60), await asyncio.wait_for(slow, 60)):
            assert (result.is_error, result.code) == (True, "TOOL_UNAVAILABLE")
            assert result.text.count("extension odd closed") == 1
        await wait_for_state(app.host, "odd", GuestState.READY)
        assert await run(app, "look") == "fog"
        assert notices(person) == [("warn", "odd crashed, restarting...")]
        assert (await asyncio.wait_for(child.exited, 30)) is not None


async def test_a_loop_of_crashes_ends_with_one_word(tmp_path: Path) -> None:
    person, starts, go = Person(), tmp_path / "starts", tmp_path / "go"
    body = f"""
with open({str(starts)!r}, "a") as file: file.write("x")
next(lines(3))
say(4, tool("look"), hello())
while not os.path.exists({str(go)!r}): time.sleep(0.002)
os._exit(1)
"""
    async with open_app(tmp_path, write_bare_guest(tmp_path, body), person) as app:
        go.touch()
        await wait_for_state(app.host, "bare", GuestState.GONE)
        assert len(starts.read_text()) == 6
        assert notices(person) == [
            ("warn", "bare crashed, restarting..."),
            ("error", "bare crashed and could not be restarted"),
        ]
        [row] = app.host.report.failed
        assert "crashed too often and is not started again (exit status 1; limit restarts = 5)" in row.why


# -- what looks like a deadlock


@pytest.mark.parametrize("there", [True, False])
async def test_a_picker_asked_for_in_a_command_hangs_nobody(tmp_path: Path, there: bool) -> None:
    """Whether somebody is there who chooses, or not."""
    picker = {"title": "Where?", "items": [{"id": "b", "label": "Bern"}, {"id": "z", "label": "Zug"}]}
    asked: list[Question] = []

    class Chooser(Person):
        @property
        def interactive(self) -> bool:  # type: ignore[override]
            return there

        async def ask(self, request: Any) -> Any:
            asked.append(request)
            return Answer({})

    person = Chooser()
    async with open_app(tmp_path, write(tmp_path, "odd", commands={"pick": [ask("host/showPicker", picker)]}), person) as app:
        outcome = await asyncio.wait_for(app.host.run_command("pick"), 60)
        assert outcome.error == ""
        assert [json.loads(one.text) for one in person.actions if isinstance(one, Display)] == [{"result": {"selected": ""}}]
        assert len(asked) == (1 if there else 0)


async def test_a_tool_that_has_the_host_call_it_again_comes_to_an_end(tmp_path: Path) -> None:
    """Once is fine (spec piglet 10.5); without an end it is stopped, and says why."""
    tools = {
        "look": "fog",
        "once": [ask("host/executeTool", {"name": "look", "args": {}})],
        "ever": [ask("host/executeTool", {"name": "ever", "args": {}})],
        "host": offer([relay()], parameters={"type": "object"}),
    }
    async with open_app(tmp_path, write(tmp_path, "odd", tools=tools)) as app:
        assert json.loads(await run(app, "once"))["result"]["content"][0]["text"] == "fog"
        text = await run(app, "ever")
        inner: Any = json.loads(text)
        while isinstance(inner, dict) and "result" in inner and inner["result"]["content"][0]["text"].startswith("{"):
            inner = json.loads(inner["result"]["content"][0]["text"])
        assert "error" in inner or inner["result"]["isError"], text[-500:]
        assert await run(app, "look") == "fog"
