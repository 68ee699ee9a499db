"""What a server can do to us, and what it gets from us: nothing without end, nothing that was not meant for it."""

from __future__ import annotations

import gzip
import logging
import subprocess
import sys
import traceback
from typing import Any

import pytest

from serai.agents.models.http_client import EndpointErrors, find_proxy
from serai.agents.models.providers import create_provider
from serai.errors import BadSettings, ModelFailed
from serai.limits import Limits
from serai.model.provider import Model, ModelMessage
from serai.model.tools import TextBlock, ToolCall
from serai.testing.models.reply import Fault
from serai.testing.models.server import FakeModels
from tests.support.agents.model_providers import APIS, ENVIRON, KEY, open_harness

SECRET = "hush-0123456789"
every_api = pytest.mark.parametrize("api", APIS)


def format_error(error: BaseException, *others: object) -> str:
    """Everything that an error shows."""
    return "".join([str(error), repr(error), *traceback.format_exception(error), *map(repr, others)])


@pytest.mark.req("resident.models.huge")
@every_api
async def test_an_error_without_an_end_is_read_in_part(api: str) -> None:
    async with open_harness(api) as one:
        one.server.fault(Fault("endless", status=503))
        failed = await one.failure("hello")
        assert (failed.status, failed.temporary) == (503, True)
        assert len(failed.message) < 600
        await one.server.until(lambda: one.server.open == 0)


@pytest.mark.req("resident.models.huge")
@every_api
@pytest.mark.parametrize("status", [200, 500])
async def test_what_is_compressed_is_not_unpacked(api: str, status: int) -> None:
    bomb = gzip.compress(b'data: {"error": {"message": "BOOM"}}\n\n' * 100_000)
    async with open_harness(api) as one:
        one.server.fault(Fault("status", status=status, headers=(("content-encoding", "gzip"),), body=bomb))
        failed = await one.failure("hello")
        assert one.server.requests[-1].headers["accept-encoding"] == "identity"
        assert failed.status == (500 if status == 500 else 0)
        assert ("compressed" in failed.message) == (status == 200)
        assert "BOOM" not in failed.message


@pytest.mark.req("resident.models.faults")
@every_api
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_names_the_server(api: str, status: int) -> None:
    async with FakeModels() as other, open_harness(api, headers={"api-key": SECRET}) as one:
        location = f"{other.url.replace('//', '//someone:hidden@')}/deep/path?token=hidden"
        one.server.fault(Fault("status", status=status, headers=(("location", location),)))
        failed = await one.failure("hello")
        assert failed.message == f"HTTP {status}: it sends us on to {other.url}"
        assert (failed.status, failed.temporary) == (status, False)
        assert "base_url" in failed.hint
        assert "hidden" not in format_error(failed)
        assert (len(one.server.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize(
    ("location", "words"),
    [("/elsewhere", "another of its own paths"), ("http://[", "an address that is none"), ("//host\x1b7/x", r"http://host\x1b7")],
)
def test_a_redirect_to_nowhere_is_told_too(location: str, words: str) -> None:
    assert (
        EndpointErrors("m", Limits()).build_status_error(307, {"location": location}, None).message
        == f"HTTP 307: it sends us on to {words}"
    )


@pytest.mark.req("resident.models.secrets")
@every_api
@pytest.mark.parametrize("provider", ["acme", "own"])
async def test_nothing_of_the_process_s_environment_is_sent(api: str, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for sdk in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{sdk}_CUSTOM_HEADERS", f"X-Corp: {SECRET}\nAuthorization: Bearer {SECRET}\nx-api-key: {SECRET}")
        monkeypatch.setenv(f"{sdk}_API_KEY", SECRET)
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{SECRET}@127.0.0.1:1")  # where nobody answers
    other: dict[str, Any] = {"provider": "acme"} if provider == "acme" else {}
    async with open_harness(api, **other) as one:
        await one.ask("hello")  # with the key that was given, or the server would not take it
        (seen,) = one.server.requests
        assert SECRET not in str(seen.headers)
        assert not {"openai-organization", "openai-project", "x-corp", "traceparent"} & set(seen.headers)


@pytest.mark.req("resident.models.providers")
@every_api
async def test_what_the_given_environment_says_is_sent_to_the_provider_it_speaks_of(api: str) -> None:
    sdk = "anthropic" if api == "anthropic" else "openai"
    custom = f"X-Corp: {SECRET}\n\nno header\nX-Two:  2 "
    environ = ENVIRON | {f"{sdk.upper()}_CUSTOM_HEADERS": custom, "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-1"}
    async with open_harness(api, environ=environ) as one:
        await one.ask("hello")
        headers = one.server.requests[-1].headers
        assert (headers["x-corp"], headers["x-two"]) == (SECRET, "2")
        account = (headers.get("openai-organization"), headers.get("openai-project"))
        assert account == (("org-1", "proj-1") if sdk == "openai" else (None, None))
        one.server.fault(Fault("status", status=400, body=f'{{"error": {{"message": "why {SECRET}?"}}}}'.encode()))
        assert (await one.failure("hello")).message == "HTTP 400: why …?"
    async with open_harness(api, environ=environ, provider="acme") as one:
        await one.ask("hello")
        assert not {"x-corp", "x-two", "openai-organization", "openai-project"} & set(one.server.requests[-1].headers)


@pytest.mark.req("resident.models.secrets")
def test_the_log_of_an_sdk_is_not_what_its_variables_say() -> None:
    program = """
import logging
from serai.agents.models.api_provider import _import_sdk
_import_sdk("anthropic")
_import_sdk("anthropic")  # the second time it is there
print([logging.getLogger(name).level for name in ("anthropic", "httpx2")])
"""
    environ = {"ANTHROPIC_LOG": "debug"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=environ)
    assert done.stdout.strip() == str([logging.WARNING, logging.NOTSET])


@pytest.mark.req("resident.models.providers")
@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"HTTPS_PROXY": "p:1", "https_proxy": "q:1"}, "http://q:1"),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"ALL_PROXY": "socks5://p:1"}, "socks5://p:1"),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "elsewhere.org, example.org"}, None),
        ({"ALL_PROXY": "p:1", "NO_PROXY": ".Example.org"}, None),
        ({"ALL_PROXY": "p:1", "no_proxy": "api.example.org:8443"}, None),
        ({"ALL_PROXY": "p:1", "no_proxy": "api.example.org:1"}, "http://p:1"),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "a, *"}, None),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "ample.org"}, "http://p:1"),
    ],
)
def test_a_proxy_is_the_one_of_the_given_environment(environ: dict[str, str], proxy: str | None) -> None:
    assert find_proxy("https://api.example.org:8443/v1", environ)[1] == proxy


@pytest.mark.req("resident.models.providers")
@every_api
async def test_a_server_elsewhere_is_asked_through_the_proxy_and_one_of_this_machine_is_not(api: str) -> None:
    async with FakeModels() as proxy:
        environ = ENVIRON | {"HTTP_PROXY": proxy.url}
        async with open_harness(api, environ=environ) as one:
            await one.ask("hello")
            assert len(proxy.requests) == 0
        async with open_harness(api, environ=environ, base_url="http://api.example.org") as one:
            assert (await one.failure("hello")).status == 404  # the proxy is a fake, too, and has no such path
            assert [seen.path.startswith("http://api.example.org/") for seen in proxy.requests] == [True]


@pytest.mark.parametrize("variables", [{"HTTP_PROXY": f"ftp://x:{SECRET}@host"}, {"SSL_CERT_FILE": "/nowhere/at/all.pem"}])
async def test_a_proxy_or_certificates_that_cannot_be_used_are_named(variables: dict[str, str]) -> None:
    async with open_harness("openai", environ=ENVIRON | variables, base_url="http://api.example.org") as one:
        with pytest.raises(BadSettings, match=next(iter(variables))) as caught:
            await one.ask("hello")
        assert SECRET not in format_error(caught.value)


@pytest.mark.req("resident.models.secrets")
@every_api
@pytest.mark.parametrize("where", ["key", "model", "options", "address"])
async def test_a_secret_that_a_server_repeats_is_not_told(api: str, where: str) -> None:
    other: dict[str, Any] = {"headers": {"X-Token": f"Bearer {SECRET}"}} if where == "model" else {}
    async with FakeModels() as server:
        if where == "address":
            base = server.model(api).base_url
            other = {"base_url": base.replace("//", f"//person:{SECRET}@")}
        async with open_harness(api, key=SECRET if where == "key" else KEY, **other) as one:
            if where == "options":
                one.headers = {"X-Token": SECRET}
            answering = server if where == "address" else one.server
            answering.fault(Fault("status", status=400, body=f'{{"error": {{"message": "bad: {SECRET}"}}}}'.encode()))
            failed = await one.failure("hello")
            assert failed.message == "HTTP 400: bad: …"
            assert SECRET not in format_error(failed, one.provider, getattr(one.provider, "endpoint", None))


@pytest.mark.req("resident.models.secrets")
@every_api
async def test_a_password_in_an_address_is_sent_as_a_header_and_logged_by_nobody(
    api: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeModels() as server:
        base = server.model(api).base_url.replace("//", f"//person:{SECRET}@")
        async with open_harness(api, base_url=base) as one:
            await one.ask("hello")
            assert "authorization" in server.requests[-1].headers
    assert SECRET not in caplog.text


@pytest.mark.req("resident.models.secrets")
@every_api
@pytest.mark.parametrize("value", [f"{SECRET}é", f"{SECRET}\r\nX-Evil: 1", f"{SECRET}\x00"])
async def test_a_header_that_cannot_be_sent_is_named_and_not_shown(api: str, value: str) -> None:
    with pytest.raises(BadSettings, match="the header X-Token") as caught:
        model = Model("m", api=api, provider="acme", base_url="https://acme.test", headers={"X-Token": value})
        create_provider(model, environ={}, limits=Limits(), key=KEY)
    async with open_harness(api) as one:
        one.headers = {"X-Token": value}
        with pytest.raises(BadSettings, match="the header X-Token") as later:
            await one.ask("hello")
        assert len(one.server.requests) == 0
        one.headers = {"X-Token": "fine\n"}
        await one.ask("hello")
        assert one.server.requests[-1].headers["x-token"] == "fine"
    assert SECRET not in format_error(caught.value) + format_error(later.value)


@pytest.mark.req("resident.models.secrets")
@pytest.mark.parametrize(
    "url", [f"ftp://me:{SECRET}@host", f"http://me:{SECRET}/x@host", "http://", f"http://h\n{SECRET}", "http://[x"]
)
def test_an_address_that_is_none_is_told_and_not_shown(url: str) -> None:
    for model, environ in (
        (Model("m", provider="openai", base_url=url), {}),
        (Model("m", provider="openai"), {"OPENAI_BASE_URL": url}),
    ):
        with pytest.raises(BadSettings, match="base_url") as caught:
            create_provider(model, environ=environ, limits=Limits(), key=KEY)
        assert SECRET not in format_error(caught.value)


@pytest.mark.req("resident.models.secrets")
@every_api
@pytest.mark.parametrize("header", ["Mon, 01 Jan 2024 00:00:00 +99999999999999", "1e999"])
async def test_no_way_to_fail_hands_out_the_error_of_the_sdk(api: str, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_harness(api) as one:
        one.server.fault(Fault("status", status=429, retry_after=header))
        failed = await one.failure("hello")
        assert (failed.status, failed.temporary, failed.wait) == (429, True, None)
        assert failed.__context__ is failed.__cause__ is None

        def defect(*_: object) -> ModelFailed:
            raise ZeroDivisionError

        monkeypatch.setattr(EndpointErrors, "build_status_error", defect)
        one.server.fault(Fault("status", status=429))
        with pytest.raises(ZeroDivisionError) as caught:
            await one.ask("hello")
        assert caught.value.__context__ is None


@pytest.mark.req("resident.models.huge")
@every_api
async def test_an_answer_with_too_many_calls_is_stopped(api: str) -> None:
    async with open_harness(api, limits=Limits().but(model_calls=10)) as one:
        _, last = await one.ask(">> repeat 10 call read {}")
        assert len(last.message.calls) == 10
        failed = await one.failure(">> repeat 11 call read {}")
        assert failed.limit is not None
        assert (failed.limit.name, failed.limit.value, failed.temporary) == ("model_calls", 10, False)


@pytest.mark.req("resident.models.replay")
@every_api
@pytest.mark.parametrize("depth", [500, 970, 2000, 100_000])
async def test_a_call_with_arguments_of_any_depth_can_be_sent_again(api: str, depth: int) -> None:
    nested: Any = {}
    for _ in range(depth):
        nested = {"a": nested}
    call = ToolCall("read", nested, "call-1")
    answer = ModelMessage("assistant", (), (call,))
    result = ModelMessage("tool", (TextBlock("no"),), call_id="call-1")
    async with open_harness(api) as one:
        await one.ask("hello", answer, result)
        assert "nested too deep" in str(one.server.requests[-1].body)
    while nested:  # taken apart by hand: the interpreter would do it level by level, too
        nested = nested.pop("a")


@pytest.mark.req("resident.models.faults")
@every_api
async def test_the_words_of_a_provider_do_nothing_to_a_terminal(api: str) -> None:
    async with open_harness(api) as one:
        words = r"\u001b]0;PWNED\u0007\r\nERROR all is well\u202e\u200b\u3164\ud800 Grüße 漢字"
        one.server.fault(Fault("status", status=400, body=f'{{"error": {{"message": "{words}"}}}}'.encode()))
        failed = await one.failure("hello")
        assert failed.message == r"HTTP 400: \x1b]0;PWNED\x07\r\nERROR all is well\u202e\u200b\u3164\ud800 Grüße 漢字"
