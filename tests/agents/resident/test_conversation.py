"""The parts of the resident that are values in, values out: the conversation, the system prompt, the tools, the money."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.resident import conversation
from serai.agents.resident.run_context import DEFAULT, PromptParts, ToolSet, build_system_prompt, is_small_model
from serai.model.contributions import PromptSection
from serai.model.events import Usage
from serai.model.provider import Cost, Model, ModelMessage
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolCall, ToolSpec
from tests.support.agents.conversations import is_whole
from tests.support.agents.scripted_models import Box, echo

# -- the conversation


def answer(text: str, ids: list[str]) -> ModelMessage:
    return ModelMessage("assistant", (TextBlock(text),) if text else (), tuple(ToolCall("t", {}, one) for one in ids))


IDS = st.sampled_from("abc")
MESSAGES = st.lists(
    st.one_of(
        st.builds(conversation.build_user_message, st.text(max_size=3)),
        st.builds(answer, st.text(max_size=3), st.lists(IDS, max_size=3, unique=True)),
        st.builds(lambda one: ModelMessage("tool", (TextBlock("r"),), call_id=one), IDS),
    ),
    max_size=12,
)


@pytest.mark.req("piglet.rule.loop-interrupted")
@given(MESSAGES)
def test_whatever_a_conversation_looks_like_it_is_whole_after_the_repair(messages: list[ModelMessage]) -> None:
    repaired = conversation.repair_messages(messages)
    assert is_whole(repaired)
    assert conversation.repair_messages(repaired) == repaired
    if is_whole(messages) and all(m.content or m.calls for m in messages if m.role == "assistant"):
        assert repaired == messages


@given(MESSAGES, st.integers(0, 12))
def test_a_conversation_that_is_cut_stays_whole_and_keeps_its_first_message_and_its_newest(
    messages: list[ModelMessage], most: int
) -> None:
    whole = conversation.repair_messages(messages)
    cut = conversation.cap_messages(whole, most)
    assert is_whole(cut)
    if len(whole) <= max(most, 4):
        assert cut == whole
    else:
        first = conversation.repair_messages(whole[:1])
        assert cut[: len(first)] == first
        newest = cut[len(first) :]
        assert newest == whole[len(whole) - len(newest) :]
        assert len(newest) < max(most, 4) or newest[0].calls
        assert newest


@pytest.mark.req("piglet.rule.loop-interrupted")
def test_a_call_without_a_result_gets_one_that_says_so_right_behind_its_message() -> None:
    asked = ModelMessage("assistant", (), (ToolCall("bash", {}, "a"), ToolCall("bash", {}, "b")))
    messages = [
        conversation.build_user_message("go"),
        asked,
        ModelMessage("tool", (TextBlock("ok"),), call_id="b"),
        conversation.build_user_message("next"),
    ]
    repaired = conversation.repair_messages(messages)
    assert [message.call_id for message in repaired] == ["", "", "b", "a", ""]
    assert repaired[3].is_error
    assert repaired[3].content == (
        TextBlock("[error:TOOL_INTERRUPTED] tool execution did not complete before session was interrupted; result unavailable"),
    )


def test_tokens_are_guessed_from_all_that_a_message_says() -> None:
    assert conversation.estimate_tokens([conversation.build_user_message("x" * 400)]) == 104
    assert conversation.estimate_tokens([conversation.build_user_message("", [ImageBlock(b"x" * 9000, "image/png")])]) == 1504
    assert (
        conversation.estimate_tokens([ModelMessage("assistant", (), (ToolCall("bash", {"command": "y" * 385}),))]) == 4 + 404 // 4
    )
    assert conversation.estimate_tokens([ModelMessage("user", (OtherBlock("video", {"z": 1}),))]) > 4


# -- the system prompt


@pytest.mark.req("piglet.rule.prompt-order")
def test_the_parts_of_the_system_prompt_come_in_their_order() -> None:
    parts = PromptParts(
        base="Be good.\n",
        sections=(
            PromptSection("Late", "last words", 90),
            PromptSection("Early", "first words\n", 10),
            PromptSection("Moved", "moved words", 50),
            PromptSection("Beside", "in the order given", 10),
        ),
        order={"Moved": 5},
        guidelines={"alpha": ("never twice",)},
    )
    tools = [ToolSpec("zeta", hint="only when needed"), ToolSpec("mute"), ToolSpec("alpha", hint="often")]
    deferred = [ToolSpec("rare", "Seldom used."), ToolSpec("odd", "Odd.")]
    assert build_system_prompt(parts, tools, deferred, "For now.") == (
        "Be good.\n\n"
        "# Moved\n\nmoved words\n\n# Early\n\nfirst words\n\n# Beside\n\nin the order given\n\n# Late\n\nlast words\n\n"
        "# Tool Usage Notes\n\n## alpha — often\n\n- never twice\n\n## zeta — only when needed\n\n"
        "# Available Tools\n\n- **odd**: Odd.\n- **rare**: Seldom used.\n\n"
        "For now."
    )


@pytest.mark.req("piglet.rule.prompt-order")
def test_a_part_that_is_empty_leaves_no_trace() -> None:
    assert build_system_prompt(PromptParts(), []) == DEFAULT
    assert build_system_prompt(PromptParts(base=" "), []) == ""


# -- the tools


@pytest.mark.req("piglet.rule.tool-set")
def test_the_model_is_offered_all_tools_but_the_filtered_by_name() -> None:
    box = Box(zeta=echo, alpha=echo, middle=echo)
    tools = ToolSet(box)
    assert [tool.name for tool in tools.list_offered()] == ["alpha", "middle", "zeta"]
    tools.restrict(["zeta", "nonsense"])
    assert [tool.name for tool in tools.list_specs(compact=False)] == ["zeta"]
    assert tools.find("alpha") is None
    assert [tool.name for tool in box.list()] == ["zeta", "alpha", "middle"]  # whoever else looks sees all of them


@pytest.mark.req("piglet.fix.24")
def test_a_filter_lasts_until_it_is_taken_away() -> None:
    tools = ToolSet(Box(a=echo, b=echo))
    tools.restrict({"a"})
    assert tools.filter == frozenset({"a"})
    tools.activate("b")
    assert [tool.name for tool in tools.list_offered()] == ["a"]
    tools.restrict([])
    assert tools.list_offered() == []
    tools.restrict(None)
    assert [tool.name for tool in tools.list_offered()] == ["a", "b"]


@pytest.mark.req("piglet.rule.tool-deferred")
def test_only_a_small_model_is_told_less_of_a_deferred_tool_until_it_is_activated() -> None:
    spec = ToolSpec("rare", "Seldom used.", {"type": "object", "properties": {"a": {}}}, deferred=True)
    tools = ToolSet(Box(rare=(spec, echo), usual=echo))
    full = msgspec.structs.replace(spec, deferred=False)
    assert tools.list_specs(compact=False)[0] == full
    assert tools.list_deferred(compact=False) == []
    assert tools.list_specs(compact=True)[0] == msgspec.structs.replace(spec, schema={"type": "object"})
    assert tools.list_deferred(compact=True) == [spec]
    tools.activate("rare")
    assert tools.list_specs(compact=True)[0] == full
    assert tools.list_deferred(compact=True) == []


@pytest.mark.parametrize(
    ("url", "small"),
    [("", False), ("https://api.example.com/v1", False), ("http://127.0.0.1:11434/v1", True), ("http://localhost:1/v1", True)],
)
def test_a_model_that_this_machine_serves_is_a_small_one(url: str, small: bool) -> None:
    assert is_small_model(Model("m", base_url=url)) is small


# -- the money


def test_a_cost_is_told_where_the_prices_are_known() -> None:
    usage = Usage(1_000_000, 100_000, 500_000, 200_000)
    assert conversation.with_cost(Model("m", cost=Cost(3.0, 15.0, 0.3, 3.75)), usage).cost_usd == pytest.approx(
        3 + 1.5 + 0.15 + 0.75
    )
    assert conversation.with_cost(Model("m"), usage).cost_usd is None
    told = Usage(1, 1, cost_usd=7.0)
    assert conversation.with_cost(Model("m", cost=Cost(3.0)), told) is told


def test_usages_add_up_and_an_unknown_cost_adds_nothing() -> None:
    assert conversation.add_usage(Usage(1, 2, 3, 4), Usage(10, 20, 30, 40)) == Usage(11, 22, 33, 44)
    assert conversation.add_usage(Usage(cost_usd=1.0), Usage()).cost_usd == 1.0
    assert conversation.add_usage(Usage(cost_usd=1.0), Usage(cost_usd=2.0)).cost_usd == 3.0
