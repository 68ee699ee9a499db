"""Every method `host/*` over the wire: that all are answered, with which codes, in which order, and during the handshake."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serai.dialects.piglet.methods import METHODS
from serai.model.approvals import Answer
from tests.support.agents.scripted_models import Answers, reply
from tests.support.app.apps import Person
from tests.support.piglet.journals import ONE_LOOP, wait_for_note
from tests.support.piglet.service_clients import Json, error_of, open_client, read_ids, read_journal
from tests.support.piglet_guests.guest_folder import offer, write
from tests.support.piglet_guests.steps import ask, fault, note, seen, subscribe, wait

pytestmark = ONE_LOOP

HOST = {method.removeprefix("host/") for method in METHODS if method.startswith("host/")}
PICK = {"title": "City", "items": [{"id": "b", "label": "Bern"}]}
ASK = {"prompt": "Send?", "choices": ["yes", "no"]}
CHAT = {"messages": [{"role": "user", "content": ">> say Hello"}]}

# What may be asked at any time, also before there is a session, and its parameters.
ALWAYS: dict[str, Json] = {
    "listTools": {},
    "toolDefs": {},
    "executeTool": {"name": "read", "args": {"path": "a.txt"}},
    "setToolFilter": {"names": None},
    "config.get": {"keys": ["agent.maxTurns"]},
    "config.readExtension": {"name": "weather"},
    "auth.getKey": {"provider": "acme"},
    "chat": CHAT,
    "agent.run": {"task": ">> say Hello"},
    "availableModels": {},
    "switchModel": {"modelId": "parrot/parrot"},
    "syncModels": {},
    "writeModels": {"overrides": {"parrot/parrot": {"maxTokens": 9}}},
    "cancelBackground": {},
    "isBackgroundRunning": {},
    "waitForIdle": {},
    "toggleStepMode": {},
    "abort": {},
    "hasCompactor": {},
    "showPicker": PICK,
    "askUser": ASK,
    "subscribe": {"topic": "weather:alert"},
    "publish": {"topic": "weather:alert", "data": {"level": 2}},
    "commands": {},
    "shortcuts": {},
    "promptSections": {},
    "extInfos": {},
    "extensionsDir": {},
    "undoSnapshots": {},
}
# What belongs to a session or an agent.
BOUND: dict[str, Json] = {
    "conversationMessages": {},
    "llmSnapshot": {},
    "setConversationMessages": {"messages": [{"type": "user", "data": {"content": "fresh"}}]},
    "lastAssistantText": {},
    "sessionStats": {},
    "sessions": {},
    "setSessionTitle": {"title": "Trip"},
    "sessionTitle": {},
    "appendSessionEntry": {"kind": "ext:weather:seen", "data": {"n": 1}},
    "appendCustomMessage": {"role": "assistant", "content": "Noted."},
    "sessionEntryInfos": {},
    "sessionFullTree": {},
    "runBackground": {"prompt": ">> say Hello"},
    "triggerCompact": {},
    "resetSessionLeaf": {},
    "forkSession": {},
}
PERSON = [Answer({"City": "Bern"}), Answer({"Send?": "no"})]
# What a request cannot do without.
REQUIRED = {
    "executeTool": "name",
    "activateTool": "name",
    "config.readExtension": "name",
    "auth.getKey": "provider",
    "chat": "messages",
    "agent.run": "task",
    "loadSession": "path",
    "setSessionTitle": "title",
    "appendSessionEntry": "kind",
    "appendCustomMessage": "role",
    "setLabel": "targetId",
    "branchSession": "entryId",
    "branchSessionWithSummary": "entryId",
    "runBackground": "prompt",
    "publish": "topic",
    "subscribe": "topic",
    "undoRestore": "path",
}


def raws(journal: Path) -> dict[Any, Json]:
    """All answers that came, by id."""
    return {line["in"]["id"]: line["in"] for line in read_journal(journal) if "in" in line and "method" not in line["in"]}


@pytest.mark.req("piglet.fix.28")
async def test_each_of_the_fifty_two_methods_is_answered(tmp_path: Path) -> None:
    offers = {"compactor": "short", "tools": {"forecast": offer("fog", deferred=True)}}
    async with open_client(tmp_path, person=Person(*PERSON), offers=offers) as host:
        file = tmp_path / "project" / "a.txt"
        file.write_text("before")
        await host("executeTool", name="write", args={"path": "a.txt", "content": "after"})
        await host.app.submit(">> say Hello")
        [user] = [entry["id"] for entry in (await host("sessionEntryInfos"))["entries"] if entry["type"] == "user"]
        [session] = (await host("sessions"))["sessions"]
        now: dict[str, Json] = {
            "activateTool": {"name": "forecast"},
            "undoRestore": {"path": str(file)},
            "setLabel": {"targetId": user, "label": "good"},
            "branchSession": {"entryId": user},
            "branchSessionWithSummary": {"entryId": user, "summary": "A failed"},
        }
        after: dict[str, Json] = {"loadSession": {"path": session["path"]}, "requestQuit": {}}
        every = {**now, **ALWAYS, **BOUND, **after}
        assert set(every) == HOST
        assert len(every) == 52
        for method, params in every.items():
            answer = await host.raw(f"host/{method}", params)
            assert set(answer) == {"result"}, (method, answer)
            assert isinstance(answer["result"], dict), method


# -- codes


@pytest.mark.req("piglet.rule.error-codes")
async def test_what_goes_wrong_has_its_code(tmp_path: Path) -> None:
    async with open_client(tmp_path) as host:
        for method in ("host/zap", "zap", "Host/listTools", "tool/execute", "register/tool", "notify", "eventBus/event"):
            assert error_of(await host.raw(method, {})) == (-32601, f"method not found: {method}")
        undecodable: list[tuple[str, Any]] = [
            ("listTools", {"filter": 7}),
            ("executeTool", {"name": "read", "args": "a.txt"}),
            ("chat", {"messages": "hi"}),
            ("chat", {"messages": [7]}),
            ("agent.run", {"task": "t", "maxTurns": "three"}),
            ("setToolFilter", {"names": [7]}),
            ("writeModels", {"overrides": {"parrot/parrot": {"maxTokens": -1}}}),
            ("config.get", {"keys": "defaultModel"}),
            ("publish", [1, 2]),
            ("listTools", "all"),
        ]
        for method, params in undecodable:
            code, why = error_of(await host.raw(f"host/{method}", params))
            assert (code, why.startswith("invalid params: ")) == (-32602, True), (method, why)
        absent: dict[str, tuple[Json, str]] = {
            "executeTool": ({"name": "zap"}, "unknown tool: zap"),
            "activateTool": ({"name": "zap"}, "tool not found or not deferred: zap"),
            "undoRestore": ({"path": "/zap"}, "no snapshot for path: /zap"),
        }
        for method, (params, why) in absent.items():
            assert await host.fails(method, **params) == (-32604, why)
        other: dict[str, tuple[Json, str]] = {
            "setLabel": ({"targetId": "zap", "label": "x"}, "set label: entry zap not found"),
            "chat": ({**CHAT, "model": "zap"}, "resolve provider: unknown model: zap"),
            "switchModel": ({"modelId": "zap"}, "switch model: unknown model: zap"),
            "triggerCompact": ({}, "no compactor registered"),
            "runBackground": ({"prompt": " "}, "run background: the prompt is empty"),
        }
        for method, (params, why) in other.items():
            assert await host.fails(method, **params) == (-32603, why)
        host.app.runtime.services.groups.pop("guests")  # what the host itself does wrong
        assert (await host.fails("commands"))[0] == -32603


@pytest.mark.req("piglet.fix.05")
async def test_absent_and_null_parameters_are_empty_ones(tmp_path: Path) -> None:
    methods = [*sorted(HOST - {"requestQuit"}), "requestQuit"]
    nulls = "\n".join(
        json.dumps({"jsonrpc": "2.0", "id": 7000 + place, "method": f"host/{method}", "params": None})
        for place, method in enumerate(methods)
    )
    done = [ask("host/extensionsDir"), ask("host/waitForIdle")]
    offers = {"commands": {"nulls": [fault("raw", line=nulls), *done]}, "compactor": "short"}
    async with open_client(tmp_path, offers=offers) as host:
        answers = {method: await host.raw(f"host/{method}") for method in methods}
        await host.run("nulls")
        async with asyncio.timeout(30.0):
            while len(found := {id: one for id, one in raws(host.journal).items() if id >= 7000}) < len(methods):
                await asyncio.sleep(0.002)
    for given in (answers, {method: found[7000 + place] for place, method in enumerate(methods)}):
        for method, answer in given.items():
            if method in REQUIRED:
                missing = f"invalid params: Object missing required field `{REQUIRED[method]}`"
                assert answer["error"] == {"code": -32602, "message": missing}, method
            elif method == "askUser":
                assert answer["error"] == {"code": -32602, "message": "askUser: choices must not be empty"}
            elif method == "switchModel":
                assert answer["error"]["message"] == "modelId is required"
            else:  # what all fifty at once do to each other is another matter
                assert "result" in answer or answer["error"]["code"] == -32603, (method, answer)
    assert [method for method, answer in answers.items() if "error" in answer] == [
        method for method in methods if method in {*REQUIRED, "askUser", "switchModel"}
    ]


@pytest.mark.req("piglet.edge.14")
async def test_an_integral_float_is_an_integer_and_no_id(tmp_path: Path) -> None:
    offers = {"commands": {"odd": [fault("float-id", id=4242.0), fault("float-id", id=1.5), ask("host/extensionsDir")]}}
    async with open_client(tmp_path, offers=offers) as host:
        task = "\n".join(f'>> say {step}\n>> call find {{"pattern": "x"}}' for step in range(4))
        assert (await host("agent.run", task=task, maxTurns=2.0))["turns"] == 2
        assert (await host("chat", **CHAT, maxTokens=4242.0))["text"] == "Hello"
        await host("writeModels", overrides={"parrot/parrot": {"contextWindow": 16000.0}})
        assert error_of(await host.raw("host/chat", {**CHAT, "maxTokens": 30.5}))[0] == -32602
        [answer] = await host.run("odd")
        assert "result" in answer  # the wire goes on
        assert not {4242, 1.5} & set(raws(host.journal))  # nobody answers those


# -- order


@pytest.mark.req("piglet.fix.06")
async def test_a_slow_request_holds_nobody_up_and_all_begin_in_the_order_of_arrival(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    titles = [f"title {number}" for number in range(50)]
    many = "\n".join(
        json.dumps({"jsonrpc": "2.0", "id": 7000 + place, "method": "host/setSessionTitle", "params": {"title": title}})
        for place, title in enumerate(titles)
    )
    offers = {
        "tools": {"slow": [note(begun), wait(go)]},
        "commands": {"many": [fault("raw", line=many), ask("host/sessionTitle")]},
    }
    async with open_client(tmp_path, offers=offers) as host, asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(host.aside("executeTool", name="slow", args={}))
        await wait_for_note(begun)
        for _ in range(3):
            assert await host("isBackgroundRunning") == {"running": False}
        assert await host.run("many") == [{"result": {"title": titles[-1]}}]  # begun behind all others
        found = [one for one in raws(host.journal).values() if isinstance(one["id"], int) and one["id"] >= 7000]
        assert ([one["id"] for one in found], [one["result"] for one in found]) == ([7000 + n for n in range(50)], [{}] * 50)
        stored = [entry["data"].get("title") for entry in host.entries() if entry["type"] == "meta"]
        assert stored[-50:] == titles
        assert not slow.done()
        go.touch()
        assert await slow == {"result": {"content": []}}


# -- the handshake


@pytest.mark.req("piglet.fix.09")
async def test_services_work_before_the_guest_has_answered_initialize(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("hello")
    early = {**ALWAYS, "conversationMessages": {}, "sessions": {}, "sessionTitle": {}, "sessionEntryInfos": {}, "sessionStats": {}}
    steps = [ask(f"host/{method}", params) for method, params in early.items()]
    steps.append(ask("host/runBackground", {"prompt": "look"}))
    async with open_client(tmp_path, offers={"at_init": steps}, person=Person(*PERSON)) as host:
        assert await host("hasCompactor") == {"present": False}
        wire = read_journal(host.journal)
        end = next(place for place, line in enumerate(wire) if "result" in line.get("out", {}))
        assert wire[end]["out"]["id"] == 1  # its answer to initialize
        answers = {line["in"]["id"]: line["in"] for line in wire[:end] if "in" in line and "method" not in line["in"]}
        by_method = {method: answers[read_ids(host.journal, f"host/{method}")[0]] for method in early}
        assert {method: answer["error"] for method, answer in by_method.items() if "error" in answer} == {}
        assert "hello" in by_method["executeTool"]["result"]["content"][0]["text"]
        assert by_method["chat"]["result"]["text"] == by_method["agent.run"]["result"]["text"] == "Hello"
        assert by_method["showPicker"]["result"] == {"selected": "b"}
        assert by_method["askUser"]["result"] == {"selected": "no", "cancelled": False}
        assert "read" in [tool["name"] for tool in by_method["toolDefs"]["result"]["tools"]]
        assert [one["name"] for one in by_method["extInfos"]["result"]["extensions"]] == ["serai", "weather"]
        [event] = [line["in"] for line in wire[:end] if line.get("in", {}).get("method") == "eventBus/event"]
        assert event["params"]["subscriptionId"] == by_method["subscribe"]["result"]["subscriptionId"]
        assert answers[read_ids(host.journal, "host/runBackground")[0]]["error"]["message"] == "run background: agent not ready"


# -- the bus


@pytest.mark.req("piglet.method.host/publish")
@pytest.mark.req("piglet.method.host/subscribe")
async def test_what_is_published_comes_to_each_subscription_before_the_answer(tmp_path: Path) -> None:
    others = {"listen": [subscribe("weather:alert")], "heard": [seen("eventBus/event", 1)]}
    heard: list[Any] = []
    async with open_client(tmp_path, others=[write(tmp_path, "other", tools=others)]) as host:
        first = (await host("subscribe", topic="weather:alert"))["subscriptionId"]
        await host.app.host.call_tool("listen")
        host.app.runtime.bus.subscribe("test", "weather:alert", lambda _topic, _data: heard.append(len(raws(host.journal))))
        second = (await host("subscribe", topic="weather:alert"))["subscriptionId"]
        third = (await host("subscribe", topic="weather:*"))["subscriptionId"]
        assert all(type(id) is int for id in (first, second, third))
        assert len({first, second, third}) == 3
        for topic in ("weather:alert:more", "weather", "Weather:alert"):  # the exact one
            assert await host("publish", topic=topic, data=1) == {}
        assert await host("publish", topic="weather:alert", data={"level": 2}) == {}
        assert await host("publish", topic="weather:alert") == {}
        wire = read_journal(host.journal)
        events = [
            (place, line["in"]["params"]) for place, line in enumerate(wire) if line.get("in", {}).get("method") == "eventBus/event"
        ]
        assert [event for _, event in events] == [
            {"topic": "weather:alert", "subscriptionId": id, "data": data}
            for data in ({"level": 2}, None)
            for id in (first, second)
        ]
        answered = {line["in"]["id"]: place for place, line in enumerate(wire) if "result" in line.get("in", {})}
        begun = {line["out"]["id"]: place for place, line in enumerate(wire) if line.get("out", {}).get("method") == "host/publish"}
        for (before, after), id in zip((events[:2], events[2:]), read_ids(host.journal, "host/publish")[-2:], strict=True):
            assert begun[id] < before[0] < after[0] < answered[id]
        told = json.loads((await host.app.host.call_tool("heard")).text)
        assert [event["data"] for event in told] == [{"level": 2}, None]
        assert len(heard) == 2
        for method in ("unsubscribe", "bus.unsubscribe"):
            assert (await host.fails(method, subscriptionId=first))[0] == -32601


# -- what is too long


@pytest.mark.req("piglet.rule.framing-send-limit")
async def test_what_is_too_long_is_not_sent_and_whoever_wants_it_is_told(tmp_path: Path) -> None:
    most = 4 * 1024 * 1024
    async with open_client(tmp_path, offers={"tools": {"size": "taken"}}, answers=Answers([reply("Hello")])) as host:
        running = host.app.host.guest("weather").running
        await host.app.submit("x" * most)
        code, why = await host.fails("conversationMessages")
        assert (code, why.startswith("the result has "), why.endswith(" bytes: too long to send")) == (-32603, True, True)
        assert await host("sessionTitle") == {"title": ""}  # the wire goes on
        refused = await host.app.host.call_tool("size", {"text": "x" * most})
        assert refused.is_error
        assert "limit send = 4194304" in refused.text
        assert (await host.app.host.call_tool("size", {"text": "x" * (most - 1000)})).text == "taken"
        assert host.app.host.guest("weather").running is running
        assert not [line for line in host.journal.read_text().splitlines() if len(line) > most + 100]
