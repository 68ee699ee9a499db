"""From a model to who streams it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serai.agents.models.anthropic_api import Anthropic
from serai.agents.models.api_provider import ApiProvider
from serai.agents.models.openai_chat import OpenAIChat
from serai.agents.models.openai_responses import OpenAIResponses
from serai.agents.models.parrot import Parrot
from serai.agents.models.providers import create_provider, is_local
from serai.errors import BadSettings, ModelFailed, NoModel
from serai.limits import Limits
from serai.model.provider import Model

LIMITS = Limits()
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-12345", "OPENAI_API_KEY": "sk-oai-12345", "GOOGLE_API_KEY": "AIza12345\n"}


def endpoint(model: Model, environ: dict[str, str], key: str | None = None) -> tuple[str, str, str]:
    provider = create_provider(model, environ=environ, limits=LIMITS, key=key)
    assert isinstance(provider, ApiProvider)
    assert "12345" not in repr(provider.endpoint)
    return provider.endpoint.base_url, provider.endpoint.key, provider.endpoint.variable


@pytest.mark.req("resident.models.providers")
@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("anthropic", Anthropic),
        ("openai", OpenAIChat),
        ("openai-responses", OpenAIResponses),
        ("grpc", OpenAIChat),
        ("parrot", Parrot),
    ],
)
def test_the_api_of_a_model_decides_who_streams_it(api: str, kind: type) -> None:
    assert type(create_provider(Model("m", api=api, provider="openai"), environ=KEYS, limits=LIMITS)) is kind


@pytest.mark.req("resident.models.providers")
def test_where_a_model_is_asked_and_with_which_key() -> None:
    claude = Model("m", api="anthropic", provider="anthropic")
    assert endpoint(claude, KEYS) == ("https://api.anthropic.com", "sk-ant-12345", "ANTHROPIC_API_KEY")
    elsewhere = KEYS | {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    assert endpoint(claude, elsewhere)[0] == "http://127.0.0.1:1"
    google = Model("m", provider="google", base_url="https://example.org/v1")
    assert endpoint(google, KEYS) == ("https://example.org/v1", "AIza12345", "GOOGLE_API_KEY")
    assert endpoint(google, {}, key="k12345") == ("https://example.org/v1", "k12345", "GEMINI_API_KEY")
    # A compatible server of somebody else is neither asked at OpenAI's address nor told OpenAI's key.
    assert endpoint(Model("m", provider="acme", base_url="http://localhost:1/v1"), KEYS) == (
        "http://localhost:1/v1",
        "",
        "ACME_API_KEY",
    )


@pytest.mark.req("resident.models.providers")
@pytest.mark.parametrize(
    ("model", "variable"),
    [
        (Model("m", api="anthropic", provider="anthropic"), "ANTHROPIC_API_KEY"),
        (Model("m", provider="google", base_url="https://example.org"), "GEMINI_API_KEY or GOOGLE_API_KEY"),
        (Model("m", provider="acme", base_url="https://example.org"), "ACME_API_KEY"),
    ],
)
def test_a_missing_key_is_told_before_any_request(model: Model, variable: str) -> None:
    with pytest.raises(ModelFailed, match="there is no key") as caught:
        create_provider(model, environ={"OTHER_API_KEY": "x"}, limits=LIMITS)
    assert variable in caught.value.hint
    assert not caught.value.temporary


def test_headers_that_authorise_and_servers_of_this_machine_need_no_key() -> None:
    create_provider(
        Model("m", provider="acme", base_url="https://example.org", headers={"Api-Key": "x"}), environ={}, limits=LIMITS
    )
    create_provider(Model("m", provider="acme", base_url="http://127.0.0.1:8080"), environ={}, limits=LIMITS)


@pytest.mark.req("resident.models.secrets")
@pytest.mark.parametrize("key", ["sk-12345\nX-Evil: 1", "sk-12345é", "sk-\x0012345"])
def test_a_key_that_is_none_is_told_and_not_shown(key: str) -> None:
    with pytest.raises(ModelFailed) as caught:
        create_provider(Model("m", provider="openai"), environ={"OPENAI_API_KEY": key}, limits=LIMITS)
    assert "OPENAI_API_KEY" in caught.value.hint
    assert "12345" not in str(caught.value) + caught.value.hint


@pytest.mark.req("resident.models.providers")
@pytest.mark.parametrize(("api", "sdk"), [("anthropic", "anthropic"), ("openai", "openai"), ("openai-responses", "openai")])
def test_a_missing_sdk_is_told_with_the_way_to_get_it(api: str, sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sdk, None)
    with pytest.raises(NoModel, match=f"`{sdk}`") as caught:
        create_provider(Model("m", api=api, provider="openai"), environ=KEYS, limits=LIMITS)
    assert caught.value.hint == "pip install 'serai[models]'"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost/v1", True),
        ("http://127.0.0.2:80", True),
        ("http://[::1]:80", True),
        ("https://example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("http://10.0.0.1", False),
        ("", False),
    ],
)
def test_which_servers_are_on_this_machine(url: str, local: bool) -> None:
    assert is_local(url) == local


@pytest.mark.req("resident.models.lazy")
def test_no_sdk_is_imported_before_an_answer_is_wanted() -> None:
    program = """
import sys
from serai.agents.models import catalogue, parrot, providers, catalogue
from serai.limits import Limits
for model in catalogue.Catalogue.load_built_in():
    providers.create_provider(model, environ={}, limits=Limits(), key="k")
print(sorted({"anthropic", "openai", "httpx2", "pydantic"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"


@pytest.mark.req("resident.models.providers")
def test_a_provider_without_an_address_is_told_so_and_its_key_goes_nowhere() -> None:
    with pytest.raises(BadSettings, match="it has no address") as caught:
        create_provider(Model("m", provider="acme"), environ={"ACME_API_KEY": "sk-acme"}, limits=Limits())
    assert "base_url" in caught.value.hint
