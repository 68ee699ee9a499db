"""The stand-in piglet guests and the stand-in host, each by the other: both SDKs, both transports, and what can go wrong."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serai.testing import piglet_host
from serai.testing.guest_process import Misbehaved
from serai.testing.piglet_host.host import PigletHost, Transport, build_argv
from serai.testing.piglet_host.messages import ANSWERS, LATER, LONGEST, NOTIFICATIONS, REGISTER, REQUESTS, HostError, extract_texts
from tests.support import piglet_guests
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import (
    FAULTS,
    ask,
    crash,
    delta,
    echo,
    fail,
    fault,
    hear,
    note,
    publish,
    relay,
    result,
    say,
    seen,
    subscribe,
    tell,
    throw,
    wait,
    where,
)
from tests.support.processes import lives

BOTH = pytest.mark.parametrize("transport", ["fd", "stdio"])


@contextmanager
def run_host(
    place: Path, *, transport: Transport = "fd", strict: bool = True, answers: Any = None, **behaviour: Any
) -> Iterator[PigletHost]:
    folder = write(place, "weather", **behaviour)
    with PigletHost(folder, transport=transport, strict=strict, answers=answers) as host:
        yield host


# -- on their own -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.standin.independent")
def test_they_import_nothing_else_of_serai() -> None:
    own = ("serai.testing.piglet_", "serai.testing.zot_host", "serai.testing.guest_process", "tests.support.piglet_guests")
    allowed = {*sys.stdlib_module_names, "yaml"}
    for package in (piglet_guests, piglet_host):
        for module in Path(package.__file__ or "").parent.rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not [name for name in names if name.split(".")[0] not in allowed and not name.startswith(own)], module


def test_the_program_of_a_guest_needs_the_standard_library_only(tmp_path: Path) -> None:
    told = "import sys; sys.path.insert(0, sys.argv[1]); import tests.support.piglet_guests.programs.go_sdk; print(*sys.modules)"
    source = Path(piglet_guests.__file__ or "").parents[3]
    ran = subprocess.run([sys.executable, "-SE", "-c", told, source], capture_output=True, text=True, check=True, timeout=30)
    own = {"tests", "__main__"}
    assert [name for name in ran.stdout.split() if name.split(".")[0] not in {*sys.stdlib_module_names, *own}] == []


def test_the_host_has_an_answer_to_each_of_the_52_requests() -> None:
    assert len(REQUESTS) == 52
    assert ANSWERS.keys() == REQUESTS.keys()
    assert len(REGISTER) == 10
    assert len(NOTIFICATIONS) == 10 + 11 + 2  # registrations, notices, provider/delta and $/cancelRequest


# -- ten kinds --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.standin.guests")
@BOTH
def test_a_go_guest_has_all_ten_kinds(tmp_path: Path, transport: Transport) -> None:
    with run_host(
        tmp_path,
        transport=transport,
        tools={"weather": "$city: 16 degrees", "odd": offer(promptHint="never", deferred=True)},
        commands={"forecast": offer("3 stations", immediate=True)},
        sections={"Units": "Use metric."},
        interceptors={"guard": interceptor(before="not today", after="shorter", priority=2000)},
        handlers={"meter": offer("a turn", events=["EventTurnEnd"]), "all": [say("anything")]},
        shortcuts={"ctrl+g": "refreshed"},
        hooks={"clock": "It is noon.", "place": "In Bern."},
        transformers={"alias": "show $input"},
        compactor=offer("Summary.", threshold=50000),
        providers={"acme": [delta("Hel"), say("lo")]},
    ) as host:
        assert host.about == {"name": "weather", "version": "1.0"}
        assert {message["method"] for message in host.seen if "method" in message} == set(REGISTER)
        assert host.execute_tool("weather", {"city": "Bern"})["content"] == [
            {"Type": "text", "Text": "Bern: 16 degrees", "Data": "", "Mime": ""}
        ]
        assert host.execute_command("forecast", "Bern") == {}
        assert host.hear("showMessage") == {"text": "3 stations"}
        assert host.before("guard", "bash", {}) == {"allow": False, "preview": "not today"}
        assert host.after("guard", "bash", {"a": 1}) == {"details": {"content": [{"type": "text", "text": "shorter"}]}}
        assert host.dispatch("EventTurnEnd")["action"]["payload"] == {"message": "a turn"}
        assert host.dispatch("EventRetry")["action"]["payload"] == {"message": "anything"}
        assert host.shortcut("ctrl+g")["action"]["payload"] == {"message": "refreshed"}
        assert host.on_message("hi") == {"injection": "It is noon.\nIn Bern."}
        assert host.transform("!s") == {"output": "show !s", "handled": False}
        assert host.compact([{"type": "user", "data": {"content": "hi"}}])["messages"][0]["data"] == {"content": "Summary."}
        deltas, answered = host.stream()
        assert [each["delta"] for each in deltas] == ["Hel", "lo"]
        assert answered["message"]["content"] == [{"text": "Hello"}]
        assert host.shutdown() == 0


@pytest.mark.req("piglet.standin.guests")
def test_what_an_interceptor_is_not_asked_about_it_allows(tmp_path: Path) -> None:
    with run_host(
        tmp_path, interceptors={"a": interceptor(before={"allow": True, "args": {"n": 1}}), "b": interceptor(before="no")}
    ) as host:
        assert host.before("nobody", "bash", {}) == {"allow": True}
        assert host.before("a", "bash", {}) == {"allow": True, "args": {"n": 1}}
        assert host.before("", "bash", {}) == {"allow": False, "preview": "no"}  # an empty name runs all
        assert host.after("nobody", "bash", {"files": 1}) == {"details": {"files": 1}}
        assert host.end() == 0


@pytest.mark.req("piglet.standin.guests")
def test_a_typescript_guest_is_on_stdio_and_registers_late(tmp_path: Path) -> None:
    with run_host(
        tmp_path,
        transport="stdio",
        sdk="typescript",
        tools={"weather": "$city: 16 degrees", "bad": [throw("thrown")]},
        commands=["later"],
        sections={"Units": "Use metric."},
        late=["later"],
    ) as host:
        assert host.execute_tool("weather", {"city": "Bern"})["content"] == [{"type": "text", "text": "Bern: 16 degrees"}]
        assert "later" in host.commands
        assert host.seen.index({"jsonrpc": "2.0", "id": 1, "result": host.about}) < len(host.seen) - 2
        with pytest.raises(HostError, match="Unknown method: shortcut/handle"):
            host.shortcut("ctrl+g")
        with pytest.raises(HostError, match="thrown") as thrown:
            host.execute_tool("bad")
        assert thrown.value.code == -32603
        assert host.shutdown() == 0


@pytest.mark.req("piglet.standin.guests")
def test_a_typescript_guest_ends_under_a_host_that_has_fd_3_and_4_only(tmp_path: Path) -> None:
    with pytest.raises(Misbehaved, match="ended without answer to initialize, exit status 0"), run_host(tmp_path, sdk="typescript"):
        pass


def test_a_typescript_guest_has_three_kinds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no hooks; it has: commands, sections, tools"):
        write(tmp_path, "weather", sdk="typescript", hooks=["clock"])


# -- errors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.standin.guests")
def test_a_go_guest_refuses_as_the_sdk_does(tmp_path: Path) -> None:
    with run_host(
        tmp_path, tools={"no": [fail("no station", code="FILE_NOT_FOUND", hint="try a town")], "odd": {"content": 7}}
    ) as host:
        for method, params, code, message in (
            ("tool/execute", {"callId": "", "name": "x", "args": None}, -32602, "unknown tool: x"),
            ("command/execute", {"name": "x", "args": ""}, -32602, "unknown command: x"),
            ("tool/execute", {"name": 7}, -32600, "invalid params: "),
            ("tool/execute", None, -32600, "invalid params: "),
            ("dance", None, -32601, "unknown method: dance"),
        ):
            with pytest.raises(HostError, match=message) as refused:
                host.call(method, params)
            assert refused.value.code == code
        failed = host.execute_tool("no")
        assert (failed["isError"], failed["errorCode"], failed["errorHint"]) == (True, "FILE_NOT_FOUND", "try a town")
        with pytest.raises(Misbehaved, match="content is of a wrong type: a list of blocks is wanted"):
            host.execute_tool("odd")


# -- host services ----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.standin.guests")
@BOTH
def test_a_tool_asks_the_host_whatever_its_arguments_name(tmp_path: Path, transport: Transport) -> None:
    with run_host(
        tmp_path, transport=transport, strict=False, tools={"host": [relay()], "own": "mine"}, commands={"host": [relay()]}
    ) as host:
        for method in REQUESTS:
            answered = json.loads(host.tool_text("host", {"method": method, "params": {}}))
            assert answered.keys() <= {"result", "error"}, method
        assert json.loads(host.tool_text("host", {"method": "host/executeTool", "params": {"name": "own", "args": {}}})) == {
            "result": {"content": [{"Type": "text", "Text": "mine", "Data": "", "Mime": ""}]}
        }
        assert json.loads(host.tool_text("host", {"method": "host/dance"}))["error"]["code"] == -32601
        host.execute_command("host", json.dumps({"method": "host/config.get", "params": {"keys": ["agent.maxTurns", "no"]}}))
        assert json.loads(host.hear("showMessage")["text"]) == {"result": {"values": {"agent.maxTurns": 30}}}


def test_answers_are_what_the_test_says(tmp_path: Path) -> None:
    answers = {
        "host/chat": lambda params: {"text": params["messages"][0]["content"][::-1], "usage": {"input": 1, "output": 1}},
        "host/sessions": HostError(-32603, "sessions: no"),
        "host/askUser": LATER,
    }
    chat = ask("host/chat", {"messages": [{"role": "user", "content": "abc"}]})
    asking = ask("host/askUser", {"prompt": "?", "choices": ["yes"]})
    with run_host(tmp_path, answers=answers, tools={"all": [chat, ask("host/sessions", {}), asking]}) as host:
        call = host.ask("tool/execute", {"callId": "", "name": "all", "args": None})
        host.reply(host.hear_request("host/askUser"), {"selected": "yes", "cancelled": False})
        said = [json.loads(text) for text in extract_texts(host.answer(call)["result"])]
        assert said[0]["result"]["text"] == "cba"
        assert said[1] == {"error": {"code": -32603, "message": "sessions: no"}}
        assert said[2] == {"result": {"selected": "yes", "cancelled": False}}


def test_events_of_a_topic_go_to_every_subscription_before_the_answer(tmp_path: Path) -> None:
    steps = [subscribe("alert"), subscribe("alert"), publish("alert", {"n": 1}), publish("other", 2), hear("alert", 2)]
    with run_host(tmp_path, tools={"bus": steps}) as host:
        events = [json.loads(text) for text in extract_texts(host.execute_tool("bus"))]
        assert [event["data"] for event in events] == [{"n": 1}, {"n": 1}]
        assert events[0]["subscriptionId"] != events[1]["subscriptionId"]


@pytest.mark.req("piglet.standin.guests")
def test_a_channel_holds_64_events_and_drops_the_rest(tmp_path: Path) -> None:
    with run_host(
        tmp_path, tools={"sub": [subscribe("t")], "take": [hear("t", 64)], "more": [seen("eventBus/event", 71), hear("t")]}
    ) as host:
        host.execute_tool("sub")
        for number in range(70):
            host.publish("t", number)
        taken = [json.loads(text)["data"] for text in extract_texts(host.execute_tool("take"))]
        host.publish("t", "after")
        assert taken == list(range(64))
        assert json.loads(extract_texts(host.execute_tool("more"))[1])["data"] == "after"


def test_notifications_and_what_it_was_told(tmp_path: Path) -> None:
    widget = {"key": "wx", "placement": "above-input", "content": "Bern 7°"}
    with run_host(
        tmp_path,
        at_init=[tell("log", {"level": "info", "message": "early"})],
        commands={"x": [tell("setWidget", widget), tell("abort"), echo()]},
    ) as host:
        assert host.hear("log")["message"] == "early"
        assert host.seen[0]["method"] == "log"
        host.execute_command("x", "a b")
        assert (host.hear("setWidget"), host.hear("abort")) == (widget, {})
        assert json.loads(host.hear("showMessage")["text"]) == {"name": "x", "args": "a b"}


# -- cancelling and waiting -------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.standin.guests")
@BOTH
def test_requests_run_side_by_side_and_are_cancelled(tmp_path: Path, transport: Transport) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    tools = {"slow": [note(begun), wait(go), say("done")], "quick": "quick", "ever": [wait()]}
    with run_host(tmp_path, transport=transport, tools=tools) as host:
        slow, ever = (host.ask("tool/execute", {"callId": "", "name": name, "args": None}) for name in ("slow", "ever"))
        assert host.tool_text("quick") == "quick"
        host.cancel(ever)
        assert extract_texts(host.answer(ever)["result"]) == ["cancelled"]
        go.touch()
        assert extract_texts(host.answer(slow)["result"]) == ["done"]
        assert begun.read_text() == str(host.process.pid)
        host.cancel(slow)  # already answered
        assert host.end() == 0


@pytest.mark.req("piglet.standin.guests")
def test_a_guest_takes_its_own_requests_back(tmp_path: Path) -> None:
    go = tmp_path / "go"
    tools = {"mine": [ask("host/waitForIdle", cancel_when=go)], "yours": [ask("host/waitForIdle"), say("over")]}
    with run_host(tmp_path, answers={"host/waitForIdle": LATER}, tools=tools) as host:
        call = host.ask("tool/execute", {"callId": "", "name": "mine", "args": None})
        open = host.hear_request("host/waitForIdle")
        go.touch()
        host.hear_cancel(open["id"])
        host.reply(open, error=HostError(-32603, "wait for idle cancelled: context canceled"))
        assert "context canceled" in host.answer(call)["result"]["content"][0]["Text"]
        call = host.ask("tool/execute", {"callId": "", "name": "yours", "args": None})
        open = host.hear_request("host/waitForIdle")
        host.cancel(call)  # the handler's context ends, and with it what it asks
        host.hear_cancel(open["id"])
        assert extract_texts(host.answer(call)["result"])[1] == "over"


# -- where and how it runs --------------------------------------------------------------------------------------------------------


@BOTH
def test_it_runs_in_its_folder_with_its_wire_where_it_belongs(tmp_path: Path, transport: Transport) -> None:
    with run_host(tmp_path, transport=transport, tools={"where": [fault("stderr", text="on stderr"), where()]}) as host:
        told = json.loads(host.tool_text("where"))
        assert Path(told["folder"]) == host.folder
        assert (told["fd"], told["environ"].get("PIGLET_FD")) == ((True, "1") if transport == "fd" else (False, None))
        assert (told["cwd"], told["configDir"]) == (str(host.folder), str(host.folder))
        assert host.stderr == "on stderr"


def test_what_it_prints_beside_its_wire_is_kept_apart(tmp_path: Path) -> None:
    with run_host(tmp_path, tools={"loud": [fault("stdout"), fault("stderr"), say("done")]}) as host:
        assert host.tool_text("loud") == "done"
        assert len(host.printed) > 4_000_000
        assert len(host.stderr) > 4_000_000


def test_runtimes(tmp_path: Path) -> None:
    for runtime, argv in {
        "bun": ["bun", "run", "/x/a.ts"],
        "node": ["node", "/x/a.ts"],
        "deno": ["deno", "run", "--allow-all", "/x/a.ts"],
        "python": ["python3", "/x/a.ts"],
        "/bin/tool": ["/bin/tool", "/x/a.ts"],
        "ruby": ["/x/ruby", "/x/a.ts"],
    }.items():
        assert build_argv(Path("/x"), {"name": "x", "runtime": runtime, "entry": "a.ts"}) == argv
    assert build_argv(Path("/x"), {"runtime": "./bin"}) == ["/x/./bin"]
    folder = write(tmp_path, "weather", runtime="python", entry="src/main.py", tools={"weather": "fog"})
    with pytest.raises(Misbehaved, match="behaviour.json"), PigletHost(folder):
        pass  # its behaviour lies beside the manifest, so the entry has to


@pytest.mark.parametrize("runtime", ["python", sys.executable])
def test_it_is_started_by_an_interpreter_too(tmp_path: Path, runtime: str) -> None:
    with run_host(tmp_path, runtime=runtime, entry="main.py", tools={"weather": "fog"}) as host:
        assert host.tool_text("weather") == "fog"


def test_its_journal_has_all_that_was_said(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with run_host(tmp_path, journal=journal, tools={"weather": "fog"}) as host:
        host.tool_text("weather")
        assert host.stop() in (0, None)
        host.process.wait(30)
    said = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [each["in"].get("method") for each in said if "in" in each] == ["initialize", "tool/execute", "shutdown"]
    assert said[-1] == {"in": {"jsonrpc": "2.0", "method": "shutdown"}}


def test_a_guest_that_is_written_again_is_another(tmp_path: Path) -> None:
    for text in ("fog", "sun"):
        with run_host(tmp_path, tools={"weather": text}) as host:
            assert host.tool_text("weather") == text


# -- what goes wrong --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.standin.strict")
@pytest.mark.parametrize(
    ("behaviour", "complaint"),
    [
        ({"at_start": [crash(7)]}, "(?s)ended without answer to initialize, exit status 7.*told to crash"),
        ({"at_start": [crash(signal=9)]}, "exit status -9"),
        ({"initialize": [throw("no luck")]}, "initialize weather: no luck"),
        ({"initialize": [crash()]}, "ended without answer to initialize, exit status 3"),
        ({"at_init": [fault("long-line")]}, f"a line of {LONGEST + 1} bytes"),
        ({"at_init": [fault("prose")]}, "(?s)JSON-RPC only.*a log line, no message"),
        ({"at_init": [fault("batch")]}, "JSON-RPC only"),
        ({"at_init": [fault("stranger", ids=[999999])]}, "an answer to 999999, which nobody asked for"),
        ({"at_init": [fault("empty-name")]}, "register/tool needs name"),
        ({"at_init": [fault("bad-registration")]}, "register/tool has to be an object"),
        ({"at_init": [fault("float-id")]}, "the id 1.5 is no integer"),
        ({"at_init": [fault("raw", line='{"jsonrpc":"2.0","method":"dance"}')]}, "no notification of the protocol: dance"),
        ({"at_init": [tell("notify", {"message": "x", "level": "loud"})]}, "there is no level 'loud'"),
        ({"handlers": {"a": offer(events=["EventMoon"])}}, "there is no event EventMoon"),
    ],
)
def test_a_strict_host_sees_what_goes_wrong_at_the_start(tmp_path: Path, behaviour: Any, complaint: str) -> None:
    with pytest.raises(Misbehaved, match=complaint), run_host(tmp_path, **behaviour):
        pass


def test_the_longest_line_is_read(tmp_path: Path) -> None:
    with run_host(tmp_path, at_init=[fault("long-line", bytes=LONGEST)]) as host:
        assert len(host.hear("log")["message"]) > 4_000_000


@pytest.mark.req("piglet.standin.strict")
@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (crash(4), "ended without answer to tool/execute, exit status 4"),
        (fault("twice"), "answered 2 twice"),
        (result(None), "the result of tool/execute has to be an object"),
        (result({"content": [{"type": "image", "data": "_", "mime": "image/png"}]}), "not base64"),
    ],
)
def test_a_strict_host_sees_what_goes_wrong_in_a_call(tmp_path: Path, step: Any, complaint: str) -> None:
    with run_host(tmp_path, tools={"x": [step]}) as host, pytest.raises(Misbehaved, match=complaint):
        host.execute_tool("x")
        host.hear("log")  # which never comes; a second answer does


def test_a_string_id_is_asked_under_and_the_answer_is_told(tmp_path: Path) -> None:
    with run_host(tmp_path, strict=False, tools={"x": [fault("string-id")]}) as host:
        call = host.ask("tool/execute", {"callId": "", "name": "x", "args": None})
        while not host.flaws:
            host._handle_line(host._read_line("request"))
        host.send(id="seven", result={"path": "/p"})
        assert json.loads(extract_texts(host.answer(call)["result"])[0]) == {
            "jsonrpc": "2.0",
            "id": "seven",
            "result": {"path": "/p"},
        }


@pytest.mark.req("piglet.standin.guests")
def test_a_guest_that_closes_its_wire_lives_on(tmp_path: Path) -> None:
    with run_host(tmp_path, tools={"x": [fault("close-wire"), wait()]}) as host:
        host.ask("tool/execute", {"callId": "", "name": "x", "args": None})
        while (host.process.read_line(30)) is not None:
            pass
        assert host.process.status is None
        assert host.process.silenced


@pytest.mark.req("piglet.standin.strict")
def test_a_grandchild_that_holds_the_wire_is_ended_with_the_guest(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    with run_host(tmp_path, tools={"x": [fault("holder", pid_file=str(number))]}) as host:
        with pytest.raises(Misbehaved, match="ended without answer"):
            host.execute_tool("x")
        pid = int(number.read_text())
        assert lives(pid)
    assert not lives(pid)


@pytest.mark.req("piglet.standin.strict")
def test_a_stubborn_guest_is_killed(tmp_path: Path) -> None:
    with run_host(tmp_path, at_init=[fault("stubborn")]) as host:
        os.kill(host.process.pid, 15)
        assert host.stop() is None
        pid = host.process.pid
    assert not lives(pid)


def test_a_guest_ends_at_sigterm(tmp_path: Path) -> None:
    with run_host(tmp_path) as host:
        os.kill(host.process.pid, 15)
        assert host.wait() == -15


def test_a_guest_ends_at_a_sigterm_that_another_of_its_threads_gets(tmp_path: Path) -> None:
    """The system chooses which one, and one that has just gone to sleep must hear of it."""
    with run_host(tmp_path, tools={"wait": [tell("showMessage", {"text": "begun"}), wait()]}) as host:
        host.ask("tool/execute", {"callId": "", "name": "wait", "args": {}})
        host.hear("showMessage")
        pid = host.process.pid
        working = next(thread for thread in map(int, reversed(os.listdir(f"/proc/{pid}/task"))) if thread != pid)
        assert ctypes.CDLL(None).tgkill(pid, working, 15) == 0
        assert host.wait() == -15


@pytest.mark.req("piglet.standin.guests")
def test_a_line_of_the_host_that_is_too_long_ends_a_guest(tmp_path: Path) -> None:
    with run_host(tmp_path) as host:
        with pytest.raises(ValueError, match="nobody reads more"):
            host.notify("eventBus/event", {"topic": "x" * LONGEST})
        host.write(b"x" * (LONGEST + 1) + b"\n")
        assert host.wait() == 1


def test_every_fault_is_known_and_its_options_are_checked(tmp_path: Path) -> None:
    from tests.support.piglet_guests.programs import faults

    assert faults.FAULTS.keys() == FAULTS.keys()
    with pytest.raises(ValueError, match="no fault 'dance'; there are: crash"):
        fault("dance")
    with pytest.raises(ValueError, match="'crash' has no option when; it has: code, signal"):
        fault("crash", when=1)


def test_a_message_longer_than_a_pipe_goes_both_ways_at_once(tmp_path: Path) -> None:
    """Spec piglet 10.31: whoever writes must not keep the other from reading."""
    with run_host(tmp_path, tools={"echo": "$text"}) as host:
        text = "x" * (1 << 20)
        calls = [host.ask("tool/execute", {"callId": "", "name": "echo", "args": {"text": text}}) for _ in range(4)]
        assert [extract_texts(host.answer(call)["result"]) for call in calls] == [[text]] * 4
