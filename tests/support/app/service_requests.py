"""What the tests of services share: a guest that may ask for everything, and an agent that does what it is told."""

from __future__ import annotations

from typing import Any

from serai.agents.resident.driver import Resident
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.app.services.router import AppServices, ServiceGrants, ServiceGroup
from serai.host.guest_settings import GROUPS
from serai.store.session_folder import CurrentSession
from serai.store.stored_session import StoredSession as Stored
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, allow_call, echo

GUEST = "fake:weather"
EVERYTHING = ServiceGrants(frozenset(GROUPS))


class ServiceCaller:
    """One group behind the real router, asked by a guest."""

    def __init__(self, group: ServiceGroup, *, guest: str = GUEST, **options: Any) -> None:
        self.guest = guest
        self.services = AppServices({"group": group}, granted=lambda _: ServiceGrants(frozenset({"group"})), **options)

    async def __call__(self, what: str, **arguments: Any) -> Any:
        return await self.services.ask(self.guest, "group", what, arguments)


def resident(provider: Answers, box: Box | None = None, *, store: Stored | CurrentSession | None = None, **harness: Any) -> Session:
    """A session in which every call may run, kept in `store`."""
    parts = RunContext(model=MODEL, provider=provider, limits=QUICK, **{"decide": allow_call, **harness})
    return Session(Resident(parts, box or Box(echo=echo)), store=store, limits=QUICK)
