"""How a guest's life begins and ends: initialize, what counts of its answer and of what it registers, shutdown."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.dialects.piglet.messages import InitializeParams
from serai.errors import ExitStatus
from serai.host.guest import GuestState
from serai.model.actions import Notice
from serai.model.contributions import Contributions
from tests.support.agents.scripted_models import Answers, call, reply
from tests.support.app import apps
from tests.support.app.apps import Person
from tests.support.host.zot_guests import log_of, open_host, wait_until
from tests.support.piglet.journals import ONE_LOOP, read_messages, read_params, wait_for_note
from tests.support.piglet_guests.guest_folder import Answer, interceptor, offer, write
from tests.support.piglet_guests.steps import fault, note, result, tell, throw, wait

pytestmark = ONE_LOOP


@pytest.mark.req("piglet.method.initialize")
async def test_the_first_request_says_where_it_is_and_its_answer_ends_the_registrations(tmp_path: Path) -> None:
    journal, go = tmp_path / "journal", tmp_path / "go"
    later = {"name": "later", "description": "comes late"}
    folder = write(tmp_path, "weather", tools=["early"], after_init=[wait(go), tell("register/tool", later)], journal=journal)
    async with open_host(tmp_path, folder) as host:
        assert read_messages(journal) == [
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "5",
                    "cwd": str(tmp_path / "project"),
                    "configDir": str(tmp_path / "home" / "extensions" / "weather"),
                },
            }
        ]
        assert host.guest("weather").state is GuestState.READY
        assert [tool.name for tool in host.tools] == ["early"]  # the batch is whole, nobody waits for more
        go.touch()
        await wait_until(host, lambda: len(host.tools) == 2)
    assert msgspec.json.encode(InitializeParams("5", "/app", "")) == b'{"protocolVersion":"5","cwd":"/app"}'


@pytest.mark.req("piglet.method.shutdown")
async def test_it_is_told_once_and_then_its_input_ends(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with open_host(tmp_path, write(tmp_path, "weather", tools=["look"], journal=journal)) as host:
        guest: Any = host.guest("weather").running
        assert guest is not None
        await host.call_tool("look")
        assert read_messages(journal, "shutdown") == []
    await host.close()
    assert read_messages(journal, "shutdown") == [{"jsonrpc": "2.0", "method": "shutdown"}]
    assert read_messages(journal)[-1]["method"] == "shutdown"
    # It ignores the word and ends with its input (spec piglet 5.10), so that was closed: nobody had to signal.
    assert guest._child.exited.result() == ExitStatus(code=0)


@pytest.mark.req("piglet.fix.08")
async def test_a_guest_that_refuses_is_not_loaded_and_the_report_says_why(tmp_path: Path) -> None:
    refusing = write(tmp_path, "weather", tools=["weather"], initialize=[throw("no licence for this machine")])
    person = Person()
    async with apps.open_app(tmp_path, refusing, write(tmp_path, "other", tools=["look"]), surface=person) as app:
        row = next(row for row in app.host.report.guests if row.id == "piglet:weather")
        assert row.state == GuestState.GONE
        assert "initialize weather: no licence for this machine" in row.why
        assert {"weather", "look"} & {tool.name for tool in app.host.tools} == {"look"}
        [told] = [one.text for one in person.actions if isinstance(one, Notice) and "no licence" in one.text]
        assert told.startswith("extension load: ")


@pytest.mark.req("piglet.rule.handshake-name")
@pytest.mark.parametrize(
    ("answer", "remark"),
    [
        ({"name": "somebody", "version": "9"}, "it calls itself somebody 9; weather 1.0 of its manifest counts"),
        (None, "its answer to initialize says nothing, and is taken"),
        ([result("weather 1.0")], "its answer to initialize is none, and is taken: "),
        ([result({"name": 7})], "its answer to initialize is none, and is taken: "),
        ([fault("raw", line='{"jsonrpc":"2.0","id":1}'), wait()], "its answer to initialize says nothing, and is taken"),
    ],
    ids=["another name", "null", "a text", "a number", "missing"],
)
async def test_the_manifests_name_counts_whatever_it_answers(tmp_path: Path, answer: Answer, remark: str) -> None:
    async with open_host(tmp_path, write(tmp_path, "weather", tools={"look": "fine"}, initialize=answer)) as host:
        assert list(host.guests) == ["piglet:weather"]
        assert (await host.call_tool("look")).text == "fine"
        assert host.table.tools["look"].owner.id == "piglet:weather"
        assert (host.report.guests[0].id, host.report.guests[0].version) == ("piglet:weather", "1.0")
        assert remark in log_of(host, "weather")


def list_kinds(offered: Contributions) -> set[str]:
    """The kinds of which there are some."""
    return {field for field in offered.__struct_fields__ if getattr(offered, field)}


# -- registrations ----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.fix.10", "piglet.edge.16")
async def test_an_empty_name_is_rejected_alone_and_told(tmp_path: Path) -> None:
    kinds = {
        "register/tool": {"name": ""},
        "register/command": {"name": "  "},
        "register/promptSection": {"title": "", "content": "nothing"},
        "register/interceptor": {"name": ""},
        "register/eventHandler": {"name": ""},
        "register/shortcut": {"key": ""},
        "register/messageHook": {"name": ""},
        "register/inputTransformer": {"name": ""},
        "register/compactor": {"name": ""},
    }
    empty = [tell(method, given) for method, given in kinds.items()]
    folder = write(tmp_path, "weather", at_init=empty, tools={"look": "fine"}, commands=["go"], sections={"Units": ""})
    person = Person()
    async with apps.open_app(tmp_path, folder, surface=person) as app:
        host = app.host
        offered = host.guest("weather").contributions
        assert ([tool.name for tool in offered.tools], [one.name for one in offered.commands]) == (["look"], ["go"])
        assert [section.title for section in offered.prompt_sections] == ["Units"]
        assert list_kinds(offered) == {"tools", "commands", "prompt_sections"}
        assert (await host.call_tool("look")).text == "fine"
        for method, given in kinds.items():
            why = f"its {method} is not taken: its {next(iter(given))} is empty"
            assert Notice(f"piglet:weather: {why}", "warn", "serai") in person.actions
            assert why in log_of(host, "weather")


@pytest.mark.req("piglet.rule.register-undecodable")
async def test_what_cannot_be_decoded_is_ignored_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, "weather", at_init=[fault("bad-registration")], tools={"look": "fine"}, commands=["go"])
    async with open_host(tmp_path, folder) as host:
        offered = host.guest("weather").contributions
        assert ([tool.name for tool in offered.tools], [one.name for one in offered.commands]) == (["look"], ["go"])
        assert list_kinds(offered) == {"tools", "commands"}
        assert (await host.call_tool("look")).text == "fine"
        assert host.guest("weather").state is GuestState.READY


@pytest.mark.req("piglet.edge.39")
async def test_a_provider_may_be_the_very_first_line(tmp_path: Path) -> None:
    first = [tell("register/provider", {"api": "acme"})]
    async with open_host(
        tmp_path, write(tmp_path, "weather", at_start=first, tools=["look"], journal=tmp_path / "journal")
    ) as host:
        assert host.provider("acme") is not None
        assert [tool.name for tool in host.tools] == ["look"]
    async with open_host(tmp_path, write(tmp_path / "second", "other", at_init=first)) as host:
        assert host.provider("acme") is not None


@pytest.mark.req("piglet.edge.40")
@pytest.mark.parametrize("when", ["at_start", "at_init"])
async def test_a_log_before_the_answer_reaches_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str) -> None:
    early: dict[str, Any] = {when: [tell("log", {"level": "warn", "message": "the cache is old"})]}
    failing = write(tmp_path, "mute", initialize=[throw("no")], **early)
    with caplog.at_level(logging.DEBUG, "serai"):
        async with open_host(tmp_path, write(tmp_path, "weather", **early), failing) as host:
            assert "warn: the cache is old" in log_of(host, "weather")
    told = [(record.levelname, record.getMessage()) for record in caplog.records if "the cache is old" in record.getMessage()]
    assert sorted(told) == [("WARNING", "ext=mute the cache is old"), ("WARNING", "ext=weather the cache is old")]


LATE: dict[str, dict[str, object]] = {
    "register/tool": {"name": "late", "description": "", "parameters": {"type": "object"}},
    "register/command": {"name": "tardy"},
    "register/promptSection": {"title": "Late", "content": "Be late."},
    "register/interceptor": {"name": "late"},
    "register/eventHandler": {"name": "late", "events": ["EventTurnStart"]},
    "register/shortcut": {"key": "ctrl+l"},
    "register/messageHook": {"name": "late"},
    "register/inputTransformer": {"name": "late"},
    "register/compactor": {"name": "late", "threshold": 7},
    "register/provider": {"api": "late"},
}


@pytest.mark.req("piglet.rule.register-late")
async def test_what_is_registered_after_the_answer_counts_at_once(tmp_path: Path) -> None:
    go, done, journal = tmp_path / "go", tmp_path / "done", tmp_path / "journal"
    steps = [wait(go), *(tell(method, given) for method, given in LATE.items()), note(done)]
    model = Answers([reply("", call("look"))], [reply("done")])
    folder = write(tmp_path, "weather", tools={"look": "fine"}, after_init=steps, journal=journal)
    async with apps.open_app(tmp_path, folder, answers=model) as app:
        host = app.host
        assert "late" not in host.table.tools
        go.touch()
        await wait_for_note(done)
        await wait_until(host, lambda: host.provider("late") is not None)  # the last of them
        offered = host.guest("weather").contributions
        assert [len(getattr(offered, field)) for field in offered.__struct_fields__ if getattr(offered, field)] == [2] + [1] * 9
        assert (host.table.compactor or (None, None))[1] == offered.compactors[0]
        assert [one.key for one in host.shortcuts] == ["ctrl+l"]
        assert [one.name for one in host.commands] == ["tardy"]
        await app.submit("hello")
    assert {"late", "look"} <= {tool.name for tool in model.requests[0].tools}
    assert "# Late\n\nBe late." in model.requests[0].system
    methods = [message["method"] for message in read_messages(journal)]
    asked = ["inputTransformer/transform", "messageHook/onMessage", "event/dispatch", "interceptor/before", "tool/execute"]
    assert [method for method in asked if method in methods] == asked
    assert {one["type"] for one in read_params(journal, "event/dispatch")} == {"EventTurnStart"}


@pytest.mark.req("piglet.rule.register-repeat")
async def test_of_a_name_that_comes_twice_the_last_counts_or_both_do(tmp_path: Path) -> None:
    twice = [
        tell("register/tool", {"name": "look", "description": "old"}),
        tell("register/command", {"name": "go", "description": "old"}),
        tell("register/shortcut", {"key": "ctrl+g", "description": "old"}),
        tell("register/compactor", {"name": "digest", "threshold": 1}),
        tell("register/promptSection", {"title": "Units", "content": "old"}),
        tell("register/interceptor", {"name": "guard", "priority": 5}),
        tell("register/eventHandler", {"name": "meter", "events": ["EventRetry"]}),
        tell("register/messageHook", {"name": "clock"}),
        tell("register/inputTransformer", {"name": "alias"}),
        tell("register/provider", {"api": "acme"}),
    ]
    folder = write(
        tmp_path,
        "weather",
        at_init=twice,
        tools={"look": offer("fine", description="new")},
        commands={"go": offer(description="new")},
        shortcuts={"ctrl+g": offer(description="new")},
        compactor=offer(name="summary", threshold=2),
        sections={"Units": "new"},
        interceptors={"guard": interceptor()},
        handlers={"meter": offer(events=["EventRetry"])},
        hooks=["clock"],
        transformers=["alias"],
        providers=["acme"],
    )
    async with open_host(tmp_path, folder) as host:
        offered = host.guest("weather").contributions
        assert [tool.description for tool in offered.tools] == ["new"]
        assert [command.description for command in offered.commands] == ["new"]
        assert [shortcut.description for shortcut in offered.shortcuts] == ["new"]
        assert [(one.name, one.threshold) for one in offered.compactors] == [("summary", 2)]
        assert [section.content for section in offered.prompt_sections] == ["old", "new"]
        assert [one.priority for one in offered.interceptors] == [5, 0]
        appended = offered.event_handlers, offered.message_hooks, offered.input_transformers, offered.providers
        assert [len(some) for some in appended] == [2, 2, 2, 2]
        assert [section.content for section in host.texts.list_sections()] == ["old", "new"]
