"""The script language that parrot and the fakes share."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.models.parrot import (
    Call,
    Cut,
    Fail,
    Hang,
    Malformed,
    ModelScript,
    ModelStep,
    Repeat,
    Say,
    ScriptedAnswer,
    ScriptMessage,
    Stop,
    Think,
    Wait,
    build_usual_step,
    choose_answer,
    parse,
    split_pieces,
    strip_script,
)

DIRECTIVES = [
    (">> say hello there", Say("hello there")),
    (">> say word ", Say("word ")),
    ('>> say "two\\nlines"', Say("two\nlines")),
    ('>> say "not closed', Say('"not closed')),
    ('>> say "bad \\x escape"', Say('"bad \\x escape"')),
    (">> say", Say("")),
    (">> think hm, well", Think("hm, well")),
    ('>> call read {"path": "a b"}', Call("read", '{"path": "a b"}')),
    (">> call read {broken", Call("read", "{broken")),
    (">> call list", Call("list", "{}")),
    (">> repeat 1000 say word ", Repeat(1000, Say("word "))),
    ('>> repeat 3 call read {"a":1}', Repeat(3, Call("read", '{"a":1}'))),
    (">> stop length", Stop("length")),
    (">> fail 429", Fail(429)),
    (">> fail 529 retry-after=1.5 too many", Fail(529, "1.5", "too many")),
    ('>> fail 503 retry-after="Wed, 21 Oct 2015 07:28:00 GMT"', Fail(503, "Wed, 21 Oct 2015 07:28:00 GMT")),
    (">> fail 400 the prompt is too long", Fail(400, "", "the prompt is too long")),
    (">> cut", Cut()),
    (">> malformed ", Malformed()),
    (">> hang\r", Hang()),
    (">> wait 0.25", Wait(0.25)),
]


@pytest.mark.req("resident.script.grammar")
@pytest.mark.parametrize(("line", "directive"), DIRECTIVES)
def test_each_directive_is_read(line: str, directive: object) -> None:
    assert parse(line) == ModelScript((ModelStep((directive,)),))  # type: ignore[arg-type]


@pytest.mark.req("resident.script.grammar")
@pytest.mark.parametrize(
    "line",
    [
        ">> dance",
        ">> call",
        ">> repeat many say x",
        ">> repeat 2 repeat 2 say x",
        ">> repeat 2 loop",
        ">> stop",
        ">> fail 200",
        ">> fail soon",
        ">> wait for it",
        ">> wait nan",
        ">> wait 1e9",
        ">> cut here",
        ">> ",
    ],
)
def test_a_line_that_is_no_directive_is_told_in_the_answer(line: str) -> None:
    (step,) = parse(line).steps
    (said,) = step.directives
    assert isinstance(said, Say)
    assert f"`{line[3:]}` is no directive" in said.text
    assert "call, cut, fail" in said.text


@pytest.mark.req("resident.script.steps")
def test_a_step_ends_behind_its_block_of_calls() -> None:
    script = parse("please\n>> think a\n>> call one {}\n>> repeat 2 call two {}\nignored\n >> say no\n>> say b\n>> stop length")
    first = ModelStep((Think("a"), Call("one"), Repeat(2, Call("two"))))
    assert script.steps == (first, ModelStep((Say("b"), Stop("length"))))
    assert list(first.iter_directives()) == [Think("a"), Call("one"), Call("two"), Call("two")]
    assert script.get_step(0) == first
    assert script.get_step(2) is None
    assert (script.steps[1].stop, first.stop) == ("length", "")


@pytest.mark.req("resident.script.steps")
def test_a_script_that_loops_gives_its_last_step_for_ever() -> None:
    script = parse(">> call a\n>> say b\n>> call c\n>> loop")
    assert script.get_step(0) == ModelStep((Call("a"),))
    assert script.get_step(1) == script.get_step(2) == script.get_step(999) == ModelStep((Say("b"), Call("c")))
    assert parse(">> loop").get_step(0) is None


@pytest.mark.req("resident.script.steps")
def test_the_step_is_seen_from_the_request_alone() -> None:
    script = ScriptMessage("user", "go on\n>> call a {}\n>> call b {}\n>> say done: $results ($prompt, $system)")
    first = choose_answer([ScriptMessage("user", ">> say old"), ScriptMessage("assistant", "old"), script])
    assert first.step == ModelStep((Call("a"), Call("b")))

    # An answer that an API splits into several messages is one; a text put in between does not begin the script anew.
    ran = [
        script,
        ScriptMessage("assistant"),
        ScriptMessage("assistant"),
        ScriptMessage("tool", "one $prompt"),
        ScriptMessage("tool", "two"),
        ScriptMessage("user", "hurry"),
    ]
    second = choose_answer(ran, system="four")
    assert second == ScriptedAnswer(ModelStep((Say("done: $results ($prompt, $system)"),)), "hurry", ("one $prompt", "two"), "four")
    assert second.fill("done: $results ($prompt, $system)") == "done: one $prompt\ntwo (hurry, 4)"

    third = choose_answer([*ran, ScriptMessage("assistant", "done"), ScriptMessage("user", "and now?")])
    assert third.step == ModelStep((Say("You said: and now?"),))


@pytest.mark.req("resident.script.usual")
def test_without_a_script_it_answers_by_fixed_rules() -> None:
    assert build_usual_step(" hi ") == ModelStep((Say("You said: hi"),))
    assert build_usual_step("hi", ["a", "b"]) == ModelStep((Say("The tools said: a b"),))
    assert choose_answer(
        [ScriptMessage("user", "hi"), ScriptMessage("assistant"), ScriptMessage("tool", "x" * 500)]
    ).step == ModelStep((Say(f"The tools said: {'x' * 400}… (500 characters)"),))
    assert choose_answer(
        [ScriptMessage("user", "hi"), ScriptMessage("assistant"), ScriptMessage("tool", "x"), ScriptMessage("user", "stop it")]
    ).step == build_usual_step("stop it")
    (empty,) = build_usual_step("  ").directives
    assert isinstance(empty, Say)
    assert ">> say hello" in empty.text
    assert choose_answer([]).step == build_usual_step("")


def test_a_prompt_is_told_without_its_script() -> None:
    assert strip_script("a\n>> say b\nc\n") == "a\nc"
    assert strip_script("a >> say b") == "a >> say b"


def test_the_failure_of_a_step_comes_before_all_else() -> None:
    (step,) = parse(">> say a\n>> fail 500").steps
    assert step.failure == Fail(500)
    assert ModelStep((Say("a"),)).failure is None


@given(st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    assert "".join(split_pieces(text)) == text


WORDS = st.sampled_from(
    ["say", "think", "call", "repeat", "stop", "fail", "cut", "malformed", "hang", "wait", "loop", "9" * 5000, '"']
)
LINES = st.lists(
    st.lists(st.one_of(WORDS, st.text(), st.integers().map(str)), max_size=5).map(lambda words: ">> " + " ".join(words))
)


@pytest.mark.req("resident.script.total")
@given(st.one_of(st.text(), LINES.map("\n".join)))
def test_every_text_is_a_script_of_bounded_size(text: str) -> None:
    script = parse(text)
    assert sum(len(step.directives) for step in script.steps) <= text.count(">> ")
    for step in script.steps:
        assert step.directives
        assert all(directive.count <= 100_000_000 for directive in step.directives if isinstance(directive, Repeat))
        list(islice(step.iter_directives(), 10))
    choose_answer([ScriptMessage("user", text), ScriptMessage("assistant"), ScriptMessage("tool", text)])


@pytest.mark.req("resident.script.total")
def test_a_repeat_is_capped_by_the_characters_it_makes() -> None:
    (step,) = parse(f">> repeat {'9' * 5000} say 0123456789").steps
    assert step.directives == (Repeat(10_000_000, Say("0123456789")),)
    assert next(step.iter_directives()) == Say("0123456789")
