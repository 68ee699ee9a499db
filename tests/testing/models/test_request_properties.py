"""Whatever JSON comes, it is answered or refused: never a fault of the fake's own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.testing.models import chat_api, messages_api, responses_api
from serai.testing.models.reply import (
    Api,
    ApiRefusal,
    BlockBuilder,
    CallPiece,
    Content,
    TextPiece,
    ThoughtPiece,
    build_reply,
    dumps,
)
from tests.support.model_clients import Json
from tests.support.profiles import examples
from tests.testing.models import test_chat_api, test_messages_api, test_responses_api

APIS = {"anthropic": messages_api.API, "chat": chat_api.API, "responses": responses_api.API}
SCRIPT = ">> think $prompt\n>> say $results\n>> stop odd\n>> malformed\n>> call read {\n>> call x\n>> cut"
# Requests that are right, or wrong in one place: a few changes make of them what is wrong in every other.
KNOWN: dict[str, list[Json]] = {
    "anthropic": [*test_messages_api.TAKEN.values(), *(request for request, _ in test_messages_api.REFUSED.values())],
    "chat": [*test_chat_api.TAKEN.values(), *(request for request, _ in test_chat_api.REFUSED.values())],
    "responses": [*test_responses_api.TAKEN.values(), *(request for request, _ in test_responses_api.REFUSED.values())],
}
GONE = object()
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    10**30,
    0.5,
    "",
    " ",
    "x",
    "a",
    "user",
    "assistant",
    "system",
    "tool",
    "text",
    "custom",
    SCRIPT,
]
ODD += ["function", "reasoning", "tool_use", "tool_result", "thinking", "message", "function_call", "function_call_output"]
ODD += [[], [None], [[]], ["x"], {}, {"type": None}, {"type": []}, [{}], [{"type": "text"}], [{"type": "text", "text": 7}], GONE]
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(ODD)), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["messages", "input", "role", "content"]), inner),
    max_leaves=5,
)


def iter_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: where it is, and its key there."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, inner in pairs:
        yield value, key
        yield from iter_places(inner)


def change(request: Json, changes: list[tuple[int, Any]]) -> Json:
    request = copy.deepcopy(request)
    for number, new in changes:
        where, key = (all_ := list(iter_places(request)) or [(request, "x")])[number % len(all_)]
        if new is not GONE:
            where[key] = copy.deepcopy(new)
        elif key in where or isinstance(where, list):
            del where[key]
    return request


def gather(content: Iterable[Content]) -> BlockBuilder:
    made = BlockBuilder()
    for piece in content:
        made.add(piece)
    made.close()
    return made


def check(api: Api, request: Json) -> bool:
    """Whether it is answered. What is raised besides a refusal is the fake's fault."""
    try:
        asked = api.read(request, dumps(request), "0" * 64)
    except ApiRefusal as error:
        return not dumps(api.error(400, error.message, "req_1", error))
    answer = build_reply(asked)
    for event in api.encoder(asked, answer.stop).encode(answer.pieces):
        assert not isinstance(event, bytes) or event.endswith(b"\n\n")
    answer = build_reply(asked)
    content = [piece for piece in answer.pieces if isinstance(piece, TextPiece | ThoughtPiece | CallPiece)]
    assert dumps(api.whole(asked, gather(content).blocks, answer.stop))
    return True


@pytest.mark.req("resident.fakes.validation")
@pytest.mark.parametrize("name", APIS)
@settings(max_examples=examples(100), deadline=None)
@given(number=st.integers(0, 100), changes=CHANGES)
def test_a_request_with_anything_in_any_place_is_answered_or_refused(
    name: str, number: int, changes: list[tuple[int, Any]]
) -> None:
    known = KNOWN[name]
    check(APIS[name], change(known[number % len(known)], changes))


@pytest.mark.req("resident.fakes.validation")
@pytest.mark.parametrize("name", APIS)
@settings(max_examples=examples(30), deadline=None)
@given(request_=st.dictionaries(st.sampled_from(["model", "messages", "input", "tools", "max_tokens"]), JSON))
def test_any_json_at_all_is_answered_or_refused(name: str, request_: Json) -> None:
    check(APIS[name], request_)


def test_the_known_requests_are_what_these_tests_take_them_for() -> None:
    """Some are answered and some refused, so that the changes start on both sides."""
    for name, known in KNOWN.items():
        assert {check(APIS[name], request) for request in known} == {True, False}


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
@settings(max_examples=examples(50), deadline=None)
@given(texts=st.lists(st.tuples(st.sampled_from(["say", "think"]), st.text(min_size=1, max_size=20)), min_size=1, max_size=4))
def test_no_text_is_lost_between_the_script_and_the_answer(api: Api, texts: list[tuple[str, str]]) -> None:
    prompt = "\n".join(f">> {word} {dumps(text.replace('$', '')).decode()}" for word, text in texts)
    body: Json = {"model": "m", "max_tokens": 9, "input": prompt, "messages": [{"role": "user", "content": prompt}]}
    pieces = [
        piece for piece in build_reply(api.read(body, dumps(body), "0" * 64)).pieces if isinstance(piece, TextPiece | ThoughtPiece)
    ]
    for word, kind in (("say", TextPiece), ("think", ThoughtPiece)):
        said = "".join(text.replace("$", "") for one, text in texts if one == word)
        assert "".join(piece.text for piece in pieces if isinstance(piece, kind)) == said
        assert "".join(block.text for block in gather(pieces).blocks if block.kind is kind) == said
