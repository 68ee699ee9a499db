"""From a request to its operation: who may, what, with which arguments, how much."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from serai.app.services.router import (
    DEFAULT_GRANTS,
    NO_GRANTS,
    AppServices,
    NoArguments,
    Operation,
    ServiceGrants,
    normalize_provider,
    read_service_grants,
)
from serai.errors import BadRequest, NoTool, Refused
from serai.host.adapter import Services
from serai.host.guest_settings import GROUPS, GuestSettings
from serai.limits import Limits
from tests.support.app.service_requests import EVERYTHING, GUEST


class Numbers(msgspec.Struct, frozen=True):
    count: int
    more: dict[str, int] = {}
    data: Any = None


class Sample:
    """A group for these tests: gives its arguments back, fails, waits."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = False
        self.asked: list[str] = []
        self.operations: Mapping[str, Operation[Any]] = {
            "count": Operation(Numbers, self.count),
            "nothing": Operation(NoArguments, self.nothing),
            "wait": Operation(NoArguments, self.wait),
            "fail": Operation(NoArguments, self.fail),
            "refuse": Operation(NoArguments, self.refuse),
        }

    async def count(self, guest: str, numbers: Numbers) -> Any:
        self.asked.append(guest)
        return msgspec.to_builtins(numbers)

    async def nothing(self, guest: str, arguments: NoArguments) -> Any:
        return {}

    async def wait(self, guest: str, arguments: NoArguments) -> Any:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True

    async def fail(self, guest: str, arguments: NoArguments) -> Any:
        raise RuntimeError("sk-secret")

    async def refuse(self, guest: str, arguments: NoArguments) -> Any:
        raise NoTool("unknown tool: zap")


def harness(sample: Sample, grants: ServiceGrants = EVERYTHING, **limits: float) -> AppServices:
    return AppServices({"tools": sample, "credentials": sample}, granted=lambda _: grants, limits=Limits().but(**limits))


# -- who may ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.services.grants")
async def test_a_guest_is_told_which_setting_would_grant_what_it_may_not_use() -> None:
    services: Services = harness(Sample(), ServiceGrants(frozenset({"dialogs"})))
    with pytest.raises(Refused) as refused:
        await services.ask("zot:weather", "tools", "count", {"count": 1})
    assert str(refused.value) == (
        'zot:weather: tools.count is not granted: `services = ["tools"]` under [guest."zot:weather"] would grant it'
    )
    with pytest.raises(Refused, match=r'`keys = \["PROVIDER"\]`'):
        await services.ask("zot:weather", "credentials", "count", {"count": 1})


@pytest.mark.req("app.services.grants")
async def test_grants_are_looked_up_at_every_request() -> None:
    granted = [NO_GRANTS]
    services = AppServices({"tools": Sample()}, granted=lambda _: granted[-1])
    with pytest.raises(Refused):
        await services.ask(GUEST, "tools", "nothing", {})
    granted.append(EVERYTHING)
    assert await services.ask(GUEST, "tools", "nothing", {}) == {}


@pytest.mark.req("app.services.grants")
@pytest.mark.parametrize(
    ("services", "keys", "groups"),
    [
        (None, (), DEFAULT_GRANTS),
        ((), (), frozenset()),
        (("tools", "dialogs"), (), frozenset({"tools", "dialogs"})),
        (("tools", "credentials"), (), frozenset({"tools"})),
        (None, ("anthropic",), frozenset(GROUPS)),
        (("tools",), ("Gemini",), frozenset({"tools", "credentials"})),
    ],
)
def test_a_guest_has_all_groups_but_credentials_unless_somebody_says_otherwise(
    services: tuple[str, ...] | None, keys: tuple[str, ...], groups: frozenset[str]
) -> None:
    grants = read_service_grants(GuestSettings(services=services, keys=keys))
    assert grants == ServiceGrants(groups, frozenset(map(normalize_provider, keys)))


@pytest.mark.parametrize(
    ("name", "provider"),
    [("gemini", "google"), ("Vertex", "google-vertex"), ("bedrock", "amazon-bedrock"), ("copilot", "github-copilot"),
     ("azure", "azure-openai"), (" OpenAI ", "openai"), ("acme", "acme")],
)  # fmt: skip
def test_a_provider_has_one_name(name: str, provider: str) -> None:
    assert normalize_provider(name) == provider


# -- what, and with which arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "what", "hint"),
    [("tool", "count", "there is tools"), ("tools", "cuont", "there is count"), ("tools", "zzz", "count, fail, nothing")],
)
async def test_what_there_is_not_is_told_with_what_is_near(group: str, what: str, hint: str) -> None:
    with pytest.raises(BadRequest, match=f"there is no service {group}.{what}") as bad:
        await harness(Sample()).ask(GUEST, group, what, {"count": 1})
    assert hint in bad.value.hint


@pytest.mark.req("app.services.arguments")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "tools.count: Object missing required field `count`"),
        ({"count": "four"}, "tools.count: Expected `int`, got `str` - at `count`"),
        ({"count": 4.5}, "tools.count: Expected `int`, got `float` - at `count`"),
        ({"count": True}, "tools.count: Expected `int`, got `bool` - at `count`"),
        ({"count": 4.0, "more": {"a": "b"}}, "tools.count: Expected `int`, got `str` - at `more[...]`"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_by_name(given: dict[str, Any], message: str) -> None:
    sample = Sample()
    with pytest.raises(BadRequest) as bad:
        await harness(sample).ask(GUEST, "tools", "count", given)
    assert bad.value.message == message
    assert bad.value.hint == "it takes count, more, data"
    assert not sample.asked


@pytest.mark.req("app.services.arguments")
async def test_arguments_that_are_absent_are_none() -> None:
    assert await harness(Sample()).ask(GUEST, "tools", "nothing", None) == {}
    with pytest.raises(BadRequest, match="missing required field"):
        await harness(Sample()).ask(GUEST, "tools", "count", None)


@pytest.mark.req("app.services.arguments")
async def test_whole_floats_are_integers_and_what_nobody_knows_is_ignored() -> None:
    given = {"count": 4242.0, "more": {"a": 2.0}, "data": [1.5], "else": 1}
    assert await harness(Sample()).ask(GUEST, "tools", "count", given) == {"count": 4242, "more": {"a": 2}, "data": [1.5]}


async def test_data_stays_as_it_was_said() -> None:
    data = (await harness(Sample()).ask(GUEST, "tools", "count", {"count": 1, "data": [2.0]}))["data"]
    assert [type(number) for number in data] == [float]


@pytest.mark.req("app.services.arguments")
async def test_arguments_nested_to_death_are_a_bad_request() -> None:
    deep: Any = 1.0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(BadRequest):
        await harness(Sample()).ask(GUEST, "tools", "count", {"count": 1.0, "data": deep})


# -- how it ends ------------------------------------------------------------------------------------------------------------------


async def test_a_service_that_breaks_is_logged_and_tells_the_guest_no_more_than_that(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "serai.app"), pytest.raises(Refused) as refused:
        await harness(Sample()).ask(GUEST, "tools", "fail", {})
    assert str(refused.value) == "fake:weather: tools.fail failed: RuntimeError"
    assert "tools.fail failed for fake:weather" in caplog.text


async def test_what_a_service_says_on_purpose_is_told_as_it_is() -> None:
    with pytest.raises(NoTool, match="unknown tool: zap"):
        await harness(Sample()).ask(GUEST, "tools", "refuse", {})


@pytest.mark.req("app.services.bounded")
async def test_who_is_cancelled_ends_what_they_asked_for() -> None:
    sample = Sample()
    asking = asyncio.ensure_future(harness(sample).ask(GUEST, "tools", "wait", {}))
    await sample.waiting.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert sample.cancelled


@pytest.mark.req("app.services.bounded")
async def test_nobody_is_served_for_ever() -> None:
    sample = Sample()
    with pytest.raises(Refused, match=r"tools.wait was not done in time \(limit call = 0.01\)"):
        await harness(sample, call=0.01).ask(GUEST, "tools", "wait", {})
    assert sample.cancelled


@pytest.mark.req("app.services.bounded")
async def test_a_guest_that_asks_too_much_at_once_is_refused_and_the_others_are_not() -> None:
    sample = Sample()
    services = harness(sample, requests=2)
    asking = [asyncio.ensure_future(services.ask(GUEST, "tools", "wait", {})) for _ in range(2)]
    await sample.waiting.wait()
    with pytest.raises(Refused, match=r"too much is asked at once \(limit requests = 2\)"):
        await services.ask(GUEST, "tools", "nothing", {})
    assert await services.ask("fake:other", "tools", "nothing", {}) == {}
    for one in asking:
        one.cancel()
    await asyncio.wait(asking)
    assert await services.ask(GUEST, "tools", "nothing", {}) == {}
