"""The guests of an app, as a guest sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.app.services.guest_services import GuestService
from serai.model.contributions import (
    Command,
    Compactor,
    Contributions,
    EventHandler,
    Interceptor,
    MessageHook,
    PromptSection,
    Shortcut,
)
from serai.model.tools import ToolSpec
from tests.support.agents.scripted_models import Box, echo
from tests.support.app.service_requests import ServiceCaller
from tests.support.host.fake_guests import Fake, open_fake_host

WEATHER = Contributions(
    tools=(ToolSpec("weather"),),
    commands=(Command("forecast", "Show forecast"), Command("alarm")),
    interceptors=(Interceptor("gate", frozenset({"tool_call"})),),
    event_handlers=(EventHandler("meter"),),
    shortcuts=(Shortcut("ctrl+g", "Refresh"),),
    message_hooks=(MessageHook("hook"),),
    compactors=(Compactor("short"),),
    prompt_sections=(PromptSection("Units", "metric", 50, 12),),
)
OTHER = Contributions(
    shortcuts=(Shortcut("ctrl+g", "Mine"), Shortcut("ctrl+o")), prompt_sections=(PromptSection("Tone", "kind", 10),)
)


@pytest.mark.req("piglet.method.host/promptSections")
async def test_guests_and_what_they_offer_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order: dict[str, int] = {}
    fakes = (Fake("weather", WEATHER), Fake("other", OTHER))
    async with open_fake_host(monkeypatch, tmp_path, *fakes, built_in=Box(read=echo)) as host:
        ask = ServiceCaller(GuestService(host, lambda: order, "/guests", lambda _guest: "/config"))
        assert await ask("commands") == {
            "commands": [{"name": "alarm", "description": ""}, {"name": "forecast", "description": "Show forecast"}]
        }
        assert await ask("shortcuts") == {"shortcuts": {"ctrl+g": {"description": "Refresh"}, "ctrl+o": {"description": ""}}}
        assert await ask("sections") == {"sections": [{"title": "Tone"}, {"title": "Units", "tokens": 12}]}
        order["Units"] = 1
        assert [section["title"] for section in (await ask("sections"))["sections"]] == ["Units", "Tone"]
        assert await ask("folder") == {"path": "/guests", "config": "/config/extensions"}
        assert await ask("infos") == {
            "guests": [
                {"name": "serai", "kind": "builtin", "tools": ["read"]},
                {
                    "name": "weather",
                    "id": "fake:weather",
                    "kind": "external",
                    "state": "ready",
                    "tools": ["weather"],
                    "commands": ["forecast", "alarm"],
                    "interceptors": ["gate"],
                    "event_handlers": ["meter"],
                    "shortcuts": ["ctrl+g"],
                    "message_hooks": ["hook"],
                    "compactor": "short",
                },
                {"name": "other", "id": "fake:other", "kind": "external", "state": "ready", "shortcuts": ["ctrl+g", "ctrl+o"]},
            ]
        }
