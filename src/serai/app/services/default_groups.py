"""All groups of services, as an app has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from serai import paths
from serai.agents.models.catalogue import Catalogue
from serai.app.builtin_commands import DESCRIPTIONS
from serai.app.services.agent_services import BackgroundService, ControlService, ConversationService
from serai.app.services.guest_services import BusService, ConfigService, DialogService, GuestService
from serai.app.services.model_services import ChatService, CredentialService, ModelService
from serai.app.services.router import ServiceGroup
from serai.app.services.session_services import SessionService
from serai.app.services.tool_services import ToolService, UndoService
from serai.errors import LimitHit, NotCapable, PeerTimeout
from serai.model.actions import SetTitle
from serai.model.approvals import Decision, Question, with_run_stamps
from serai.model.provider import Model, ModelProvider
from serai.model.tools import NativeCall, ToolCall

if TYPE_CHECKING:
    from serai.app.app import App


def default_groups(app: App) -> dict[str, ServiceGroup]:
    """The groups of `host.services.GROUPS`, each over what the app has."""
    house = app.house
    session, surface, environ = house.session, house.surface, house.environ
    folder = paths.config_folder(environ)

    def settings() -> Mapping[str, Any]:
        return house.config.again().settings

    def take(query: str) -> tuple[Model, ModelProvider]:
        return house.shelf.take(query, None)[:2]

    def current_model() -> str:
        try:
            return app.resident.house.model.key
        except NotCapable:  # a driven agent's model is its own
            return ""

    async def probe() -> None:
        from serai.agents.models import providers  # seldom wanted

        house.shelf.found = await providers.probe_local_servers(Catalogue.load(environ), environ, house.limits)

    def own_config(guest: str) -> str:
        """The folder of settings that a guest belongs to."""
        known = house.host.guests.get(guest)
        return folder if known is None else known.house.config_root(known.manifest)

    def working(guest: str) -> frozenset[object]:
        found = house.host.guests.get(guest)
        return house.tools.running(guest) | frozenset(() if found is None else found.judging)

    def allowed() -> tuple[str, ...] | None:
        return house.config.tools

    async def ask(question: Question) -> Decision:
        """A dialog waits longer than an approval, and that nobody answered it is no dismissal (spec piglet 2.7, design rule 6)."""
        most = house.limits.call
        ruling = await house.desk.ask(
            with_run_stamps(question, session=session.id), app.situation(question.agent), timeout=most or inf
        )
        if ruling.by == "timeout":
            raise PeerTimeout("nobody answered in time", who=question.agent, limit=None if most is None else LimitHit("call", most))
        return ruling.decision

    def secret(name: str, value: str) -> None:
        """A key from `models.toml` is on a guest's wire next, and masked in its recording (design rule 13)."""
        if house.recorder is not None:
            house.recorder.secrets.add((name, value))

    async def may_write(guest: str, path: str) -> str:
        """To put a file back is to write it, and decided so."""
        call = ToolCall("write", {"path": path}, asker=guest, native=NativeCall("undo.restore", {"path": path}))
        decided = await house.pipeline.decide(call)
        return "" if decided.allowed else decided.result().text

    return {
        "tools": ToolService(house.tools, app.call_tool, lambda: app.resident.tools, allowed=allowed),
        "config": ConfigService(settings, environ, own_config),
        "credentials": CredentialService(environ, house.services.granted, secret),
        "chat": ChatService(
            take,
            lambda: app.resident.house,
            house.tools,
            house.limits,
            allowed=allowed,
            ready=house.host.require_guards,
            nested=house.tools.is_nested,
        ),
        "conversation": ConversationService(lambda: app.resident, app.must_be_idle),
        "sessions": SessionService(
            house.sessions,
            house.current,
            swap=app.swap,
            refresh=app.refresh,
            idle=app.must_be_idle,
            titled=lambda title: surface.act(SetTitle(title)),
        ),
        "models": ModelService(
            environ, current_model, session.set_model, surface.act, catalogue=house.shelf.catalogue, probe=probe
        ),
        "background": BackgroundService(lambda: app.resident.backgrounds, surface.act, ready=house.host.require_guards),
        "control": ControlService(
            session,
            lambda: app.resident,
            queue=app.queue,
            steer=app.steer,
            idle=app.idle_for,
            running=working,
            patience=house.limits.interrupt,
            registered=lambda: house.host.texts.compactor is not None,
            abort=app.abort,
            quit=app.quit,
        ),
        "dialogs": DialogService(ask, lambda: surface.interactive),
        "undo": UndoService(house.undo, may_write, house.cwd),
        "bus": BusService(house.bus, house.limits),
        "guests": GuestService(
            house.host, lambda: settings().get("prompt_order", {}), os.path.join(folder, "guests"), own_config, own=DESCRIPTIONS
        ),
    }
