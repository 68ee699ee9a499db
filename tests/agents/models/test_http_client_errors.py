"""What a provider's failure means."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest

from serai.agents.models.http_client import EndpointErrors, EventTooLong, find_secrets, parse_retry_after
from serai.limits import Limits

FAILURES = EndpointErrors("acme/m", Limits(), "ACME_API_KEY", ("sk-12345678",))
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.req("resident.models.wait")
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "no", "retry-after": "9"}, 9.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}, 10.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15"}, 10.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:00:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:00 +99999999999999"}, None),
        ({"retry-after": "Mon, 01 Jan 0001 00:00:00 +2300"}, 0.0),
    ],
)
def test_the_time_to_wait_is_read_from_every_form(headers: dict[str, str], wait: float | None) -> None:
    assert parse_retry_after(headers, NOW) == wait


@pytest.mark.req("resident.models.faults")
@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens.",
        "Your input exceeds the context window of this model.",
        "Please reduce the length of the messages.",
    ],
)
def test_a_conversation_that_is_too_long_is_known_by_the_words_of_all(message: str) -> None:
    assert FAILURES.build_status_error(400, {}, {"error": {"message": message}}).too_long
    assert not FAILURES.build_status_error(500, {}, {"error": {"message": message}}).too_long
    assert FAILURES.build_status_error(400, {}, {"message": "no", "code": "context_length_exceeded"}).too_long
    assert FAILURES.build_status_error(413, {}, None).too_long
    assert not FAILURES.build_status_error(400, {}, {"message": "no such tool", "code": "bad"}).too_long


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "one"}}, "HTTP 400: one"),
        ([{"error": {"message": "two"}}], "HTTP 400: two"),
        ({"message": "three"}, "HTTP 400: three"),
        ({"error": "four"}, "HTTP 400: four"),
        ("five", "HTTP 400: five"),
        ({"error": {"message": 6}}, "HTTP 400: spare"),
        (None, "HTTP 400: spare"),
        ([], "HTTP 400: spare"),
    ],
)
def test_the_words_are_found_in_every_shape(body: object, message: str) -> None:
    assert FAILURES.build_status_error(400, {}, body, "spare").message == message


def test_an_account_without_credit_is_not_asked_again() -> None:
    failed = FAILURES.build_status_error(429, {"retry-after": "1"}, {"message": "quota", "code": "insufficient_quota"})
    assert (failed.temporary, failed.wait) == (False, None)
    assert "credit" in failed.hint


@pytest.mark.req("resident.models.secrets")
def test_no_words_of_a_provider_show_a_secret_or_go_on_for_ever() -> None:
    failed = FAILURES.build_status_error(401, {}, {"message": "sk-12345678 is wrong" + "!" * 10_000})
    assert failed.message.startswith("HTTP 401: … is wrong")
    assert len(failed.message) < 600
    assert "ACME_API_KEY" in failed.hint
    assert "sk-12345678" not in repr(FAILURES)
    assert "sk-12345678" not in FAILURES.translate_exception(RuntimeError("sk-12345678")).message
    assert list(find_secrets("", {"Authorization": "Bearer abcdefghij", "x": "short"})) == ["Bearer abcdefghij", "abcdefghij"]
    assert "hunter2" in find_secrets("", {"Authorization": "Basic bWU6aHVudGVyMg=="})
    assert list(find_secrets("", {"Authorization": "Basic of/no/sort"})) == ["Basic of/no/sort", "of/no/sort"]


@pytest.mark.req("resident.models.faults")
def test_every_error_in_a_call_has_its_words() -> None:
    assert "nested too deep" in FAILURES.translate_exception(RecursionError()).message
    assert (
        FAILURES.translate_exception(ValueError("no JSON\x1b")).message
        == r"it sent an event that cannot be understood: no JSON\x1b"
    )
    assert FAILURES.translate_exception(EventTooLong()).limit == FAILURES.make_too_long().limit


def test_what_the_http_library_raises_is_temporary() -> None:
    assert FAILURES.translate_exception(httpx2.ReadError("gone")).temporary
    assert FAILURES.translate_exception(httpx2.RemoteProtocolError("incomplete")).message == "the answer broke off: incomplete"
    idle = FAILURES.translate_exception(httpx2.ReadTimeout("")).limit
    assert idle is not None
    assert idle.name == "model_idle"
    assert not FAILURES.translate_exception(RuntimeError("a defect")).temporary
