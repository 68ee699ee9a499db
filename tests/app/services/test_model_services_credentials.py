"""Keys of providers: only for whom they were granted, and told to nobody else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from serai.app.services.model_services import CredentialService
from serai.app.services.router import AppServices, ServiceGrants
from serai.errors import Refused
from tests.support.app.service_requests import GUEST

ENVIRON = {
    "ANTHROPIC_API_KEY": "sk-anthropic",
    "GEMINI_API_KEY": "sk-gemini",
    "ACME_API_KEY": "sk-acme",
    "AZURE_OPENAI_API_KEY": "sk-azure",
    "OPENAI_API_KEY": "  ",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a person who has written nothing down."""
    monkeypatch.setitem(ENVIRON, "SERAI_HOME", str(tmp_path))
    return tmp_path


def services(*keys: str, guest: str = GUEST) -> AppServices:
    def granted(who: str) -> ServiceGrants:
        return ServiceGrants(frozenset({"credentials"}), frozenset(keys)) if who == guest else ServiceGrants()

    return AppServices({"credentials": CredentialService(ENVIRON, granted)}, granted=granted)


@pytest.mark.req("app.services.keys")
@pytest.mark.parametrize(
    ("granted", "asked", "key"),
    [
        ("anthropic", "anthropic", "sk-anthropic"),
        ("anthropic", "Anthropic", "sk-anthropic"),
        ("google", "gemini", "sk-gemini"),
        ("google", "google", "sk-gemini"),
        ("azure-openai", "azure", "sk-azure"),
        ("acme", "acme", "sk-acme"),
        ("anthropic", "acme", ""),  # somebody else's
        ("openai", "openai", ""),  # not there
        ("nobody", "nobody", ""),
        ("", "", ""),
    ],
)
async def test_a_key_is_for_whom_it_was_granted_and_empty_for_all_others(granted: str, asked: str, key: str) -> None:
    assert await services(granted).ask(GUEST, "credentials", "key", {"provider": asked}) == {"key": key}


@pytest.mark.req("app.services.keys")
async def test_a_guest_without_any_key_cannot_even_ask() -> None:
    with pytest.raises(Refused, match="credentials.key is not granted"):
        await services("anthropic").ask("fake:other", "credentials", "key", {"provider": "anthropic"})


@pytest.mark.req("app.services.keys", "piglet.method.host/auth.getKey")
async def test_no_key_gets_into_a_log_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asked = services("anthropic")
    await asked.ask(GUEST, "credentials", "key", {"provider": "anthropic"})
    with pytest.raises(Refused) as refused:
        await asked.ask("fake:other", "credentials", "key", {"provider": "anthropic"})
    assert "sk-" not in caplog.text + str(refused.value) + repr(asked.groups["credentials"]) + repr(refused.value.to_json())


@pytest.mark.req("app.services.keys", "piglet.method.host/auth.getKey")
@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ('"X-Api-Key" = "sk-stored"', "sk-stored"),
        ('"Authorization" = "Bearer sk-stored"', "sk-stored"),
        ('"Authorization" = "Basic bmFtZTpwYXNz"', "sk-acme"),  # a name and a password are no key
        ('"X-Trace" = "on"', "sk-acme"),
    ],
)
async def test_a_key_that_is_written_down_comes_before_one_in_the_variables(home: Path, headers: str, key: str) -> None:
    (home / "models.toml").write_text(f'[[models]]\nid = "m1"\nprovider = "acme"\nheaders = {{ {headers} }}\n')
    assert await services("acme").ask(GUEST, "credentials", "key", {"provider": "acme"}) == {"key": key}
    assert await services("anthropic").ask(GUEST, "credentials", "key", {"provider": "acme"}) == {"key": ""}


async def test_a_file_that_cannot_be_read_costs_nobody_the_key_of_the_variables(home: Path) -> None:
    (home / "models.toml").write_text("[[[")
    assert await services("acme").ask(GUEST, "credentials", "key", {"provider": "acme"}) == {"key": "sk-acme"}
