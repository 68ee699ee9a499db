"""Interceptors: who sees a call before and after, what their answers do, and what no answer means (spec piglet 5.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.dialects.piglet.messages import InterceptorAfterParams
from serai.host.guest import Guest, GuestState
from serai.host.trust import Trust
from serai.model.approvals import Deny
from serai.model.contributions import Interceptor, InterceptPoint, InterceptResult
from serai.model.events import ToolEnded
from serai.model.tools import TextBlock, ToolCall
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import Person, open_app
from tests.support.host import zot_guests
from tests.support.host.zot_guests import log_of, make, wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params
from tests.support.piglet_guests.guest_folder import Answer, interceptor, offer, write
from tests.support.piglet_guests.steps import crash, echo, result, say, throw, wait

pytestmark = ONE_LOOP
ANY: dict[str, Any] = {"type": "object"}
ECHO = offer([echo()], parameters=ANY)


def allow(**args: object) -> list[Any]:
    return [result({"allow": True, "args": args})]


# -- before


@pytest.mark.req("piglet.method.interceptor/before")
async def test_what_the_model_gets_depends_on_the_answer(tmp_path: Path) -> None:
    folder = write(tmp_path, "tools", tools={"look": ECHO}, journal=tmp_path / "tools.log")
    gate = {
        "rewrites": interceptor(before=allow(city="Thun"), priority=3),
        "blocks": interceptor(before=[result({"allow": True})], priority=2),
    }
    guard = write(tmp_path, "guard", interceptors=gate, journal=tmp_path / "guard.log")
    async with open_app(tmp_path, folder, guard) as app:
        await app.call_tool(ToolCall("look", {"city": "Bern", "Deep": {"K": 1}}))
    assert read_params(tmp_path / "guard.log", "interceptor/before") == [
        {"name": "rewrites", "toolName": "look", "args": {"city": "Bern", "Deep": {"K": 1}}},
        {"name": "blocks", "toolName": "look", "args": {"city": "Thun"}},
    ]
    assert read_params(tmp_path / "tools.log", "tool/execute")[0]["args"] == {"city": "Thun"}


@pytest.mark.req("piglet.edge.04")
@pytest.mark.req("piglet.method.interceptor/before")
@pytest.mark.parametrize(
    ("answer", "text", "is_error"),
    [
        ([result({"allow": False, "preview": "guard: not today"})], "guard: not today", False),
        ([result({"allow": False})], "blocked by interceptor: gate", False),
        ([throw("no rules loaded")], "interceptor gate before: interceptor before: no rules loaded", True),
    ],
    ids=["preview", "no preview", "an error"],
)
async def test_a_call_that_is_not_allowed_does_not_run(tmp_path: Path, answer: Answer, text: str, is_error: bool) -> None:
    folder = write(
        tmp_path, "guard", tools={"look": ECHO}, interceptors={"gate": interceptor(before=answer)}, journal=tmp_path / "journal"
    )
    person = Person()
    async with open_app(tmp_path, folder, answers=Answers([reply("", call("look"))], [reply("done")]), surface=person) as app:
        await app.submit("go")
        [told] = [message for message in conversation(app.session) if message.role == "tool"]
        direct = await app.call_tool(ToolCall("look", {}))
    assert ((text in direct.text) if is_error else (direct.text == text), direct.is_error) == (True, is_error)
    assert (text in texts([told])[0], told.is_error) == (True, is_error)
    assert [event.result.is_error for event in person.events if isinstance(event, ToolEnded)] == [is_error]
    assert read_messages(tmp_path / "journal", "tool/execute") == []
    assert read_messages(tmp_path / "journal", "interceptor/after") == []


@pytest.mark.req("piglet.edge.02")
async def test_an_answer_without_allow_blocks_and_null_args_change_nothing(tmp_path: Path) -> None:
    for name, answer in {"silent": {}, "null": None, "denies": {"args": {"city": "Thun"}}}.items():
        gate = {"gate": interceptor(before=[result(answer)])}
        folder = write(tmp_path / name, "guard", tools={"look": ECHO}, interceptors=gate, journal=tmp_path / name / "journal")
        async with zot_guests.open_host(tmp_path, folder) as host:
            found = await host.call_tool("look")
            assert (found.text, found.is_error) == ("blocked by interceptor: gate", False)
        assert read_messages(tmp_path / name / "journal", "tool/execute") == []
    gate = {"gate": interceptor(before=[result({"allow": True, "args": None})])}
    folder = write(tmp_path / "last", "guard", tools={"look": ECHO}, interceptors=gate, journal=tmp_path / "journal")
    async with zot_guests.open_host(tmp_path, folder) as host:
        await host.call_tool("look", {"city": "Bern"})
    assert read_params(tmp_path / "journal", "tool/execute")[0]["args"] == {"city": "Bern"}


@pytest.mark.req("piglet.edge.03")
@pytest.mark.parametrize(
    ("answer", "limit", "why"),
    [
        ([throw("no rules loaded")], 30.0, "interceptor gate before: interceptor before: no rules loaded"),
        ([wait()], 0.2, "limit intercept = 0.2"),
        ([result("yes")], 30.0, "its answer to interceptor/before cannot be read"),
        ([result({"allow": "yes"})], 30.0, "its answer to interceptor/before cannot be read"),
        ([crash()], 30.0, "extension guard closed (exit status 3"),
    ],
    ids=["an error", "no answer in time", "undecodable", "a wrong type", "connection lost"],
)
async def test_no_usable_answer_blocks_and_so_does_a_guest_that_is_down(
    tmp_path: Path, answer: Answer, limit: float, why: str
) -> None:
    tools = write(tmp_path, "tools", tools={"look": ECHO}, journal=tmp_path / "journal")
    guard = write(tmp_path, "guard", interceptors={"gate": interceptor(before=answer)})
    async with zot_guests.open_host(tmp_path, tools, guard, limits={**SLOW_RESTART, "intercept": limit}) as host:
        found = await host.call_tool("look")
        assert (found.is_error, found.code) == (True, "BLOCKED")
        assert found.text.startswith("tool_call refused: no answer from the interceptor (piglet:guard: ")
        assert why in found.text
        if answer == [crash()]:
            await wait_for_state(host, "guard", GuestState.BACKING_OFF)
            found = await host.call_tool("look")
            assert (found.is_error, found.code) == (True, "BLOCKED")
            assert "no answer from the interceptor (piglet:guard is backing off" in found.text
    assert read_messages(tmp_path / "journal", "tool/execute") == []


@pytest.mark.req("piglet.fix.15")
async def test_a_preview_is_of_its_own_call_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, "guard", tools={"look": ECHO}, interceptors={"gate": interceptor(before=[say("$why")])})
    async with zot_guests.open_host(tmp_path, folder) as host:
        found = [await host.call_tool("look", {"why": why}) for why in ("not today", "", "nor tomorrow", "")]
    blocked = "blocked by interceptor: gate"
    assert [one.text for one in found] == ["not today", blocked, "nor tomorrow", blocked]


# -- after


@pytest.mark.req("piglet.method.interceptor/after", "piglet.fix.14")
async def test_details_go_from_one_to_the_next_and_are_metadata_where_there_are_some(tmp_path: Path) -> None:
    """`edit` has details of its own, which the model never sees."""
    own = {"path": "a.txt", "diff": "@@ -1,1 +1,1 @@\n-ours\n+theirs", "files": 1, "hunks": 1, "added": 1, "removed": 1}
    after = {
        "first": interceptor(after=[result({"details": {**own, "checked": True}})], priority=3),
        "second": interceptor(after=[result({"details": {"content": "for nobody", "output": "nor this"}})], priority=2),
        "third": interceptor(after=[result({})], priority=1),
        "fourth": interceptor(after=[result({"details": [7]})]),
    }
    person = Person()
    folder = write(tmp_path, "guard", interceptors=after, journal=tmp_path / "journal")
    editing = call("edit", path="a.txt", old="ours", new="theirs")
    model = Answers([reply("", call("read", path="a.txt"))], [reply("", editing)], [reply("done")])
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        (tmp_path / "project" / "a.txt").write_text("ours\n")
        await app.submit("go")
        told = [message for message in conversation(app.session) if message.role == "tool"]
    asked = [one for one in read_params(tmp_path / "journal", "interceptor/after") if one["toolName"] == "edit"]
    assert asked[:3] == [
        {"name": "first", "toolName": "edit", "details": own},
        {"name": "second", "toolName": "edit", "details": {**own, "checked": True}},
        {"name": "third", "toolName": "edit", "details": {"content": "for nobody", "output": "nor this"}},
    ]
    [_, ended] = [event.result for event in person.events if isinstance(event, ToolEnded)]
    # The third has said nothing, which is null; then there are none, and the fourth is shown what the model would see.
    assert asked[3]["details"] == {"content": [{"type": "text", "text": ended.text}], "isError": False}
    assert ended.details == [7]
    assert texts(told)[1] == f"tool: {ended.text}"
    assert "for nobody" not in ended.text
    assert "nor this" not in ended.text
    assert msgspec.json.encode(InterceptorAfterParams("a", "b", None)) == b'{"name":"a","toolName":"b"}'


@pytest.mark.req("piglet.fix.14")
@pytest.mark.parametrize(
    ("details", "text", "kept"),
    [
        ({"content": [{"type": "text", "text": "shorter"}]}, "shorter", None),
        ({"content": [{"Type": "text", "Text": "capitals"}], "isError": False}, "capitals", None),
        ({"content": "a string"}, "a string", None),
        ({"output": "an output"}, "an output", None),
        ({"files": 3}, "long text", {"files": 3}),
        (None, "long text", None),
    ],
    ids=["list", "capitals", "content", "output", "metadata", "nothing"],
)
async def test_without_details_an_interceptor_sees_and_may_replace_what_the_model_sees(
    tmp_path: Path, details: Any, text: str, kept: Any
) -> None:
    folder = write(
        tmp_path,
        "guard",
        tools={"look": "long text"},
        interceptors={"short": interceptor(after=[result({"details": details})])},
        journal=tmp_path / "journal",
    )
    model = Answers([reply("", call("look"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        found = await app.call_tool(ToolCall("look", {}))
        assert (found.text, found.is_error, found.details) == (text, False, kept)
        await app.submit("go")
    shown = {"content": [{"type": "text", "text": "long text"}], "isError": False}
    assert read_params(tmp_path / "journal", "interceptor/after")[0] == {"name": "short", "toolName": "look", "details": shown}
    assert texts(model.requests[1].messages)[-1] == f"tool: {text}"


@pytest.mark.req("piglet.fix.14")
async def test_an_error_result_is_shown_as_one_and_stays_one(tmp_path: Path) -> None:
    answer = {"content": [{"type": "text", "text": "no"}, {"type": "image", "data": "aGk=", "mime": "image/png"}], "isError": True}
    folder = write(
        tmp_path,
        "guard",
        tools={"look": answer},
        interceptors={"short": interceptor(after=[result({"details": {"output": "not at all"}})])},
        journal=tmp_path / "journal",
    )
    async with zot_guests.open_host(tmp_path, folder) as host:
        found = await host.call_tool("look")
    assert (found.content[0], found.is_error, len(found.content)) == (TextBlock("not at all"), True, 2)
    assert read_params(tmp_path / "journal", "interceptor/after")[0]["details"]["isError"] is True


@pytest.mark.req("piglet.rule.interceptor-after")
async def test_after_interceptors_run_in_the_order_of_the_before_ones_and_one_that_fails_is_skipped(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        "guard",
        tools={"look": "long text", "broken": [throw("no")]},
        interceptors={
            "last": interceptor(after="$name", priority=1),
            "fails": interceptor(after=[throw("cannot look")], priority=2),
            "first": interceptor(after=[say("seen")], priority=3),
        },
        journal=tmp_path / "journal",
    )
    blocks = write(tmp_path, "blocks", interceptors={"blocks": interceptor(before=[result({"allow": False})], priority=-9)})
    async with zot_guests.open_host(tmp_path, folder) as host:
        assert (await host.call_tool("look")).text == "last"
        assert "intercept tool_result failed: interceptor fails after: interceptor after: cannot look" in log_of(host, "guard")
        assert (await host.call_tool("broken")).is_error
    names = [one["name"] for one in read_params(tmp_path / "journal", "interceptor/before")]
    after = read_params(tmp_path / "journal", "interceptor/after")
    assert names == ["first", "fails", "last"] * 2
    assert [one["name"] for one in after] == ["first", "fails", "last"]  # none when the tool failed hard
    assert after[2]["details"]["content"] == [{"type": "text", "text": "seen"}]
    async with zot_guests.open_host(tmp_path, folder, blocks) as host:
        assert (await host.call_tool("look")).text == "blocked by interceptor: blocks"
    assert len(read_params(tmp_path / "journal", "interceptor/after")) == 3  # none when it was blocked


# -- their order


@pytest.mark.req("piglet.rule.interceptor-chain")
async def test_arguments_go_from_one_to_the_next_then_to_the_policy_and_then_to_the_tool(tmp_path: Path) -> None:
    rewriting = {
        "second": interceptor(before=allow(command="echo third"), priority=1),
        "first": interceptor(before=allow(command="echo second"), priority=2),
    }
    folder = write(
        tmp_path, "guard", interceptors=rewriting, tools={"run": offer([echo()], parameters=ANY)}, journal=tmp_path / "journal"
    )
    person = Person(lambda request: Deny("seen"))
    async with open_app(tmp_path, folder, surface=person, mode="manual") as app:
        denied = await app.call_tool(ToolCall("run", {"command": "echo first"}))
        assert (denied.text, denied.is_error) == ("seen", True)
        [asked] = person.asked
        assert asked.call.arguments == {"command": "echo third"}  # type: ignore[union-attr]
    async with open_app(tmp_path, folder) as app:
        await app.call_tool(ToolCall("run", {"command": "echo first"}))
    before = [one["args"] for one in read_params(tmp_path / "journal", "interceptor/before")]
    assert before == [{"command": "echo first"}, {"command": "echo second"}] * 2
    assert [one["args"] for one in read_params(tmp_path / "journal", "tool/execute")] == [{"command": "echo third"}]


@pytest.mark.req("piglet.rule.order-interceptors")
async def test_interceptors_of_all_dialects_are_asked_by_priority_then_in_load_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """zot's have no number, which is 0. Those of one place by name, those that were given in that order."""
    zot = "remember(subscribe(intercept=['tool_call']), tools=())"
    user, project = tmp_path / "home" / "guests", tmp_path / "project" / ".serai" / "guests"
    write(user, "dd", interceptors={"dd": interceptor()})
    write(user, "cc", interceptors={"low": interceptor(priority=-1), "high": interceptor(priority=5), "usual": interceptor()})
    make(user, zot, name="aa")
    write(project, "bb", interceptors={"bb": interceptor(), "higher": interceptor(priority=6)})
    given = write(tmp_path / "given", "zz", interceptors={"zz": interceptor()}), make(tmp_path / "given", zot, name="mm")
    Trust.usual({"SERAI_HOME": str(tmp_path / "home")}).allow(tmp_path / "project")
    asked: list[str] = []
    intercept = Guest.intercept

    async def noting(guest: Guest, link: Interceptor, stage: InterceptPoint, subject: Any) -> InterceptResult:
        asked.append(f"{guest.id} {link.name}".strip())
        return await intercept(guest, link, stage, subject)

    monkeypatch.setattr(Guest, "intercept", noting)
    async with zot_guests.open_host(tmp_path, *given) as host:
        assert host.report.ok, host.report.to_lines()
        assert await host.intercept("tool_call", ToolCall("look", {})) is None
    names = [name.split()[0].partition(":")[2] for name in asked]
    assert names == ["bb", "cc", "zz", "mm", "bb", "aa", "cc", "dd", "cc"]
    assert [asked[place].split()[-1] for place in (0, 1, 4, 6, 8)] == ["higher", "high", "bb", "usual", "low"]
