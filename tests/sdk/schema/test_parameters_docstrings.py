"""What a docstring gives: the description of a tool and those of its parameters, in each style."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.sdk.schema.parameters import parse_docstring

GOOGLE = """The current weather in a city,
    as the nearest station has it.

    Knows every city of Europe.

    Args:
        city (str): name of the city,
            as people there write it
        days: how many days: today is one

        *more (list[tuple[int, str]], optional): what else
    Returns:
        A sentence.

    Raises:
        ValueError: never
    """

NUMPY = """
    The current weather in a city,
    as the nearest station has it.

    Knows every city of Europe.

    Parameters
    ----------
    city : str
        name of the city,
        as people there write it
    days, more : int, optional
        how many days: today is one

    Returns
    -------
    str
        A sentence.
    """

SPHINX = """The current weather in a city,
    as the nearest station has it.

    Knows every city of Europe.

    :param str city: name of the city,
        as people there write it
    :type city: str
    :param days: how many days: today is one
    :param more:
    :returns: A sentence.
    :raises ValueError: never
    :rtype: str
    """


@pytest.mark.req("sdk.schema.docstrings")
@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_gives_the_description_and_the_parameters_and_leaves_out_the_rest(text: str) -> None:
    description, parameters = parse_docstring(text)
    assert description == "The current weather in a city, as the nearest station has it.\n\nKnows every city of Europe."
    assert parameters["city"] == "name of the city, as people there write it"
    assert parameters["days"] == "how many days: today is one"
    assert list(parameters) == ["city", "days", "more"]


def test_a_parameter_with_a_type_in_brackets_and_stars_is_known_by_its_name() -> None:
    assert parse_docstring(GOOGLE).parameters["more"] == "what else"


@pytest.mark.parametrize("title", ["Args", "Arguments", "Parameters", "Params", "Keyword Args"])
def test_a_section_of_parameters_has_many_titles(title: str) -> None:
    assert parse_docstring(f"Does.\n\n{title}:\n  city: which\n").parameters == {"city": "which"}


def test_a_description_after_the_section_is_kept() -> None:
    text = """Does.

    Args:
        city: which

    Note that it rains.

    Example:
        weather("Bern")
    """
    assert parse_docstring(text).description == 'Does.\n\nNote that it rains.\n\nExample:\n    weather("Bern")'


def test_other_sections_in_numpys_style_are_kept() -> None:
    text = "Does.\n\nReturns\n-------\nstr\n\nNotes\n-----\nIt rains.\n"
    assert parse_docstring(text).description == "Does.\n\nNotes\n-----\nIt rains."


def test_lists_examples_code_and_tables_keep_their_lines() -> None:
    text = "Does\nthis:\n- one\n- two\n  more\n1. first\n>>> does()\n5\n| a | b |\n```\nx\n\n\ny\n```\nand\nthat"
    kept = "Does this:\n- one\n- two\n  more\n1. first\n>>> does()\n5\n| a | b |\n```\nx\n\n\ny\n```\nand that"
    assert parse_docstring(text).description == kept


def test_words_that_only_look_like_a_section_are_text() -> None:
    assert parse_docstring("Returns:\nthe weather").description == "Returns: the weather"
    assert parse_docstring("Parameters are many").description == "Parameters are many"
    assert parse_docstring(":smile: it rains").description == ":smile: it rains"
    assert parse_docstring("Args:").description == "Args:"


@pytest.mark.parametrize("text", [None, "", "   \n \n"])
def test_no_docstring_gives_nothing(text: str | None) -> None:
    assert parse_docstring(text) == ("", {})


def test_paragraphs_stay_apart_by_one_empty_line() -> None:
    assert parse_docstring("One.\n\n\n\n   Two.\n").description == "One.\n\nTwo."


LINES = [
    "Args:",
    "Parameters",
    "-----",
    "Returns:",
    "  city: x",
    "city : str",
    ":param x: y",
    ":returns:",
    "",
    "  ",
    "```",
    "- a",
    "words",
]


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=8)).map("\n".join))
def test_any_text_is_read_and_what_is_no_section_loses_no_word(text: str) -> None:
    description, parameters = parse_docstring(text)
    assert all(isinstance(note, str) for note in parameters.values())
    assert description == description.strip()
    if not any(line.strip() in text for line in LINES if line.strip() and line not in ("- a", "words", "```")):
        assert description.split() == text.split()
