"""What people type and press, and the shapes in which questions arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serai.model.approvals import (
    NO_QUESTIONS,
    OPTIONS,
    QuestionItem,
    QuestionOption,
    format_questions,
    get_option_label,
    parse_approval_reply,
    parse_questions,
    parse_typed_answer,
)
from tests.support.json_values import JSON

COLOUR = QuestionItem("Which colour?", "Colour", (QuestionOption("Red", "warm"), QuestionOption("Blue", "cold")))
SIZES = QuestionItem(
    "Which sizes?", choices=(QuestionOption("S"), QuestionOption("M"), QuestionOption("Large, or larger")), several=True
)
NAME = QuestionItem("What is it called?")

# As Claude Code sends them (captured), and as they are sent when several may be chosen.
ASKED_COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    "multiSelect": False,
}
ASKED_SIZES = {"question": "Which sizes?", "options": ["S", "M", "Large, or larger"], "multiSelect": True}
BOTH = [ASKED_COLOUR, ASKED_SIZES]


# -- approvals --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.G6")
def test_the_options_of_an_approval_are_allow_deny_and_always() -> None:
    assert OPTIONS == {"allow": ("1", "y", "yes"), "deny": ("2", "n", "no", "0"), "always": ("3", "a", "always")}
    assert all(parse_approval_reply(word) == reply for reply, words in OPTIONS.items() for word in words)


@pytest.mark.req("agents.scenario.G5")
@pytest.mark.parametrize(
    ("text", "reply"),
    [
        (" Yes\n", "allow"),
        ("Y", "allow"),
        ("\tNO ", "deny"),
        ("0", "deny"),
        ("ALWAYS", "always"),
        ("", None),
        ("  ", None),
        ("yes please", None),
        ("nope", None),
        ("4", None),
        ("01", None),
        ("allow", None),  # the name of an option is none of its words
    ],
)
def test_a_reply_is_trimmed_and_lower_cased_and_whatever_else_is_invalid(text: str, reply: str | None) -> None:
    assert parse_approval_reply(text) == reply


@pytest.mark.req("agents.scenario.G5")
@given(st.text())
def test_no_other_text_is_a_yes_or_a_no(text: str) -> None:
    known = text.strip().lower() in {word for words in OPTIONS.values() for word in words}
    assert (parse_approval_reply(text) is not None) == known


# -- questions as they arrive -----------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.G1")
@pytest.mark.parametrize(
    "arguments",
    [
        {"questions": BOTH},
        {"questions": tuple(BOTH)},
        {"questions": json.dumps(BOTH)},
        {"questions": {"0": ASKED_COLOUR, "1": ASKED_SIZES}},
        {"questions": {"10": ASKED_SIZES, "9": ASKED_COLOUR}},
        {"questions": {2: ASKED_SIZES, 1: ASKED_COLOUR}},
        {"questions": BOTH, "answers": {}},
        BOTH,
        {"1": ASKED_COLOUR, "2": ASKED_SIZES},
        json.dumps({"questions": BOTH}),
        json.dumps({"questions": json.dumps(BOTH)}),
        {"questions": [ASKED_COLOUR, {**ASKED_SIZES, "options": json.dumps(ASKED_SIZES["options"]), "multiSelect": "true"}]},
        {"questions": [ASKED_COLOUR, {**ASKED_SIZES, "options": {"0": "S", "1": {"label": "M"}, "2": "Large, or larger"}}]},
    ],
)
def test_several_questions_are_the_same_in_whichever_shape_they_arrive(arguments: Any) -> None:
    assert parse_questions(arguments) == (COLOUR, SIZES)


@pytest.mark.req("agents.scenario.G1")
@pytest.mark.parametrize(
    "arguments",
    [{"questions": [ASKED_COLOUR]}, {"questions": ASKED_COLOUR}, ASKED_COLOUR, {"questions": json.dumps(ASKED_COLOUR)}],
)
def test_one_question_is_the_same_in_whichever_shape_it_arrives(arguments: Any) -> None:
    assert parse_questions(arguments) == (COLOUR,)


@pytest.mark.req("agents.scenario.G1")
@pytest.mark.parametrize(
    "arguments",
    [
        {"question": NAME.text},
        {"questions": NAME.text},
        {"questions": [NAME.text]},
        {"questions": [{"question": NAME.text}]},
        NAME.text,
    ],
)
def test_a_question_without_options_asks_for_a_text(arguments: Any) -> None:
    assert parse_questions(arguments) == (NAME,)


@pytest.mark.parametrize(
    "arguments",
    [
        None,
        {},
        [],
        "",
        " ",
        {"questions": None},
        {"questions": []},
        {"questions": {}},
        {"command": "ls"},
        {"questions": [None, {}, [], ""]},
    ],
)
def test_what_is_no_question_gives_none(arguments: Any) -> None:
    assert parse_questions(arguments) == ()


def test_what_is_odd_about_a_question_costs_that_alone() -> None:
    odd = {"question": "How many?", "options": [1, 2.5, True, None, {"description": "no label"}, ["list"]], "header": 7}
    assert parse_questions([odd]) == (
        QuestionItem("How many?", "7", (QuestionOption("1"), QuestionOption("2.5"), QuestionOption("true"))),
    )
    assert parse_questions([{"header": "Colour", "options": [{"label": "Red"}]}]) == (
        QuestionItem("Colour", "Colour", (QuestionOption("Red"),)),
    )
    assert parse_questions({"question": "[1] or [2]?"}) == (QuestionItem("[1] or [2]?"),)


@given(JSON | st.fixed_dictionaries({"questions": JSON}) | st.fixed_dictionaries({"question": JSON, "options": JSON}))
@example("[" * 100_000)
@example({"questions": "\ud800"})
@example({"questions": {"9" * 5000: "a", "²": "b"}})
def test_whatever_the_arguments_are_they_can_be_shown_and_answered(arguments: Any) -> None:
    items = parse_questions(arguments)
    assert format_questions(items)
    for item in items:
        assert item.text or item.choices
        assert [parse_typed_answer(item, str(number)) for number in range(1, len(item.choices) + 1)] == [
            [choice.label] if item.several else choice.label for choice in item.choices
        ]


# -- questions as they are shown and answered -------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.G3")
def test_the_text_of_questions_lists_their_options_by_number() -> None:
    assert format_questions([COLOUR, SIZES, NAME]).split("\n") == [
        "[Colour] Which colour?",
        "1. Red: warm",
        "2. Blue: cold",
        "",
        "Which sizes? (one or several, separated by commas)",
        "1. S",
        "2. M",
        "3. Large, or larger",
        "",
        "What is it called?",
    ]


@pytest.mark.req("agents.scenario.G3")
def test_a_request_without_questions_has_a_text_of_its_own() -> None:
    assert (
        format_questions(())
        == format_questions(parse_questions({"questions": []}))
        == NO_QUESTIONS
        == "There is no question to answer."
    )


@pytest.mark.req("agents.scenario.G4")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1", "Red"),
        (" 2\n", "Blue"),
        ("0", "0"),  # a typed number counts from 1
        ("3", "3"),
        ("-1", "-1"),
        ("9" * 5000, "9" * 5000),
        ("²", "²"),
        ("blue", "Blue"),
        (" RED ", "Red"),
        ("Reddish, I think", "Reddish, I think"),
        (" green ", " green "),
        ("", None),
        (" \n", None),
    ],
)
def test_a_typed_text_is_a_number_or_a_label_or_itself_and_blank_is_no_answer(text: str, answer: str | None) -> None:
    assert parse_typed_answer(COLOUR, text) == answer


@pytest.mark.req("agents.scenario.G4")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1", ["S"]),
        ("1,2", ["S", "M"]),
        ("m, 1", ["M", "S"]),
        ("1, s, S", ["S"]),
        ("2, huge", ["M", "huge"]),
        ("large, or larger", ["Large, or larger"]),
        ("1,,", ["S"]),
        (" , ", None),
        ("", None),
    ],
)
def test_where_several_may_be_chosen_commas_separate_them(text: str, answer: list[str] | None) -> None:
    assert parse_typed_answer(SIZES, text) == answer


def test_a_number_counts_options_before_it_is_a_label() -> None:
    """Else nobody could tell what "2" will do without reading all labels first."""
    item = QuestionItem("How many?", choices=(QuestionOption("2"), QuestionOption("4"), QuestionOption("8")))
    assert [parse_typed_answer(item, text) for text in ("2", "4", "8")] == ["4", "4", "8"]


@pytest.mark.req("agents.scenario.G4")
def test_a_button_s_index_counts_from_zero() -> None:
    assert [get_option_label(COLOUR, index) for index in (-1, 0, 1, 2)] == [None, "Red", "Blue", None]
    assert get_option_label(NAME, 0) is None
