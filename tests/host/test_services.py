"""What a guest may ask of its host."""

from __future__ import annotations

import pytest

from serai.errors import Refused
from serai.host.adapter import NoServices, Services
from serai.host.guest_settings import GROUPS


@pytest.mark.req("host.event.services")
@pytest.mark.parametrize("group", GROUPS)
async def test_a_host_without_an_app_refuses_every_service_and_says_why(group: str) -> None:
    services: Services = NoServices()
    with pytest.raises(Refused, match=rf"^zot:weather: {group}\.get is not to be had: this host runs without an app$"):
        await services.ask("zot:weather", group, "get", {})
