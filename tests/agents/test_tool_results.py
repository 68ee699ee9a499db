"""A tool's result as a model is told of it."""

from __future__ import annotations

from serai.agents.resident import conversation
from serai.agents.tool_results import fit_for_model
from serai.model.provider import ModelMessage
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolCall, ToolResult

IMAGE = ImageBlock(b"x" * 1000, "image/png")
CUT = "\n[… {} characters left out …]\n"


def fit_blocks(*content: Block, most: int = 100) -> list[Block]:
    return list(fit_for_model(ToolResult(content), most).content)


def test_nothing_is_told_as_no_output() -> None:
    assert fit_blocks() == [TextBlock("(no output)")]
    assert fit_blocks(IMAGE) == [IMAGE]


def test_what_fits_stays_as_it_is_and_what_does_not_keeps_both_ends() -> None:
    assert fit_blocks(TextBlock("x" * 100)) == [TextBlock("x" * 100)]
    assert fit_blocks(TextBlock("a" * 60 + "b" * 61)) == [TextBlock("a" * 50 + CUT.format(21) + "b" * 50)]


def test_several_texts_share_the_room() -> None:
    first, second, short = fit_blocks(TextBlock("a" * 90), TextBlock("b" * 90), TextBlock("c"), most=120)
    assert first == TextBlock("a" * 20 + CUT.format(50) + "a" * 20)
    assert second == TextBlock("b" * 20 + CUT.format(50) + "b" * 20)
    assert short == TextBlock("c")


def test_images_do_not_count_as_text_nor_text_as_images() -> None:
    assert fit_blocks(TextBlock("x" * 100), IMAGE) == [TextBlock("x" * 100), IMAGE]
    big = ImageBlock(b"x" * (5 * 1024 * 1024), "image/png")
    assert fit_blocks(TextBlock("x" * 100), big) == [TextBlock("x" * 100), big]
    assert fit_blocks(big, IMAGE) == [
        TextBlock("[an image of 5242880 bytes was left out: all of them together are too long]"),
        TextBlock("[an image of 1000 bytes was left out: all of them together are too long]"),
    ]


def test_other_things_count_with_their_json() -> None:
    small, long = OtherBlock("video", {"a": 1}), OtherBlock("video", {"a": "x" * 200})
    assert fit_blocks(small) == [small]
    [block] = fit_blocks(long)
    assert isinstance(block, TextBlock)
    assert block.text.startswith("[video of 20")


def test_a_code_and_a_hint_are_told_once_before_all_else_and_are_not_cut_off() -> None:
    hint = "be quick, " * 10
    result = fit_for_model(ToolResult((TextBlock("x" * 300), TextBlock("more")), is_error=True, code="TIMEOUT", hint=hint), 100)
    first, second = result.content
    assert isinstance(first, TextBlock)
    assert first.text.startswith("[error:TIMEOUT] xxx")
    assert first.text.endswith(f"x\nhint: {hint}")
    assert second == TextBlock("more")
    assert fit_for_model(result, 1000) == result


def test_a_code_that_the_tool_has_told_itself_is_not_told_again() -> None:
    result = ToolResult.error("[error:TIMEOUT] too slow", code="TIMEOUT", hint="be quick")
    assert fit_for_model(result, 100) == result


# -- beside it: what a conversation is taken to be


def test_an_id_that_comes_twice_in_one_answer_is_owed_one_result() -> None:
    twice = ModelMessage("assistant", (), (ToolCall("t", {}, "a"), ToolCall("t", {}, "a")))
    assert conversation.repair_messages([twice]) == [twice, conversation.build_interrupted("a")]


def test_an_answer_that_says_nothing_goes_and_one_that_only_thinks_stays() -> None:
    thinks = ModelMessage("assistant", thinking="hm")
    assert conversation.repair_messages([conversation.build_user_message("go"), ModelMessage("assistant"), thinks]) == [
        conversation.build_user_message("go"),
        thinks,
    ]


def test_thinking_is_part_of_the_length() -> None:
    assert conversation.estimate_tokens([ModelMessage("assistant", thinking="x" * 400)]) == 104
