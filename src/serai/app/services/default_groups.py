"""All groups of services, as an app has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from serai import paths
from serai.agents.models.catalogue import Catalogue
from serai.app.assembly import DESCRIPTIONS
from serai.app.services.agent_services import BackgroundService, ControlService, ConversationService
from serai.app.services.guest_services import BusService, ConfigService, DialogService, GuestService
from serai.app.services.model_services import ChatService, CredentialService, ModelService
from serai.app.services.router import ServiceGroup
from serai.app.services.session_services import SessionService
from serai.app.services.tool_services import ToolService, UndoService
from serai.errors import LimitHit, NotCapable, PeerTimeout
from serai.model.actions import SetTitle
from serai.model.approvals import Decision, Question, stamp_request
from serai.model.provider import Model, ModelProvider
from serai.model.tools import NativeCall, ToolCall

if TYPE_CHECKING:
    from serai.app.app import App


def build_default_groups(app: App) -> dict[str, ServiceGroup]:
    """The groups of `host.guest_settings.GROUPS`, each over what the app has."""
    runtime = app.runtime
    session, surface, environ = runtime.session, runtime.surface, runtime.environ
    folder = paths.config_folder(environ)

    def load_settings() -> Mapping[str, Any]:
        return runtime.config.reload().settings

    def take(query: str) -> tuple[Model, ModelProvider]:
        return runtime.provider_pool.select(query, None)[:2]

    def get_current_model() -> str:
        try:
            return app.resident.context.model.key
        except NotCapable:  # a driven agent's model is its own
            return ""

    async def probe() -> None:
        from serai.agents.models import providers  # seldom wanted

        runtime.provider_pool.found = await providers.probe_local_servers(Catalogue.load(environ), environ, runtime.limits)

    def find_config_folder(guest: str) -> str:
        """The folder of settings that a guest belongs to."""
        known = runtime.host.guests.get(guest)
        return folder if known is None else known.context.find_config_root(known.manifest)

    def find_running(guest: str) -> frozenset[object]:
        found = runtime.host.guests.get(guest)
        return runtime.tools.find_running(guest) | frozenset(() if found is None else found.judging)

    def get_allowed_tools() -> tuple[str, ...] | None:
        return runtime.config.tools

    async def ask(question: Question) -> Decision:
        """A dialog waits longer than an approval, and that nobody answered it is no dismissal (spec piglet 2.7, design rule 6)."""
        most = runtime.limits.call
        ruling = await runtime.approver.ask(
            stamp_request(question, session=session.id), app.situation(question.agent), timeout=most or inf
        )
        if ruling.by == "timeout":
            raise PeerTimeout("nobody answered in time", who=question.agent, limit=None if most is None else LimitHit("call", most))
        return ruling.decision

    def mask_secret(name: str, value: str) -> None:
        """A key from `models.toml` is on a guest's wire next, and masked in its recording (design rule 13)."""
        if runtime.recorder is not None:
            runtime.recorder.secrets.add((name, value))

    async def check_write(guest: str, path: str) -> str:
        """To put a file back is to write it, and decided so."""
        call = ToolCall("write", {"path": path}, asker=guest, native=NativeCall("undo.restore", {"path": path}))
        decided = await runtime.pipeline.decide(call)
        return "" if decided.allowed else decided.to_result().text

    return {
        "tools": ToolService(runtime.tools, app.call_tool, lambda: app.resident.tools, allowed=get_allowed_tools),
        "config": ConfigService(load_settings, environ, find_config_folder),
        "credentials": CredentialService(environ, runtime.services.granted, mask_secret),
        "chat": ChatService(
            take,
            lambda: app.resident.context,
            runtime.tools,
            runtime.limits,
            allowed=get_allowed_tools,
            ready=runtime.host.require_guards,
            nested=runtime.tools.is_nested,
        ),
        "conversation": ConversationService(lambda: app.resident, app.must_be_idle),
        "sessions": SessionService(
            runtime.sessions,
            runtime.current,
            swap=app.swap,
            refresh=app.refresh,
            idle=app.must_be_idle,
            titled=lambda title: surface.act(SetTitle(title)),
        ),
        "models": ModelService(
            environ, get_current_model, session.set_model, surface.act, catalogue=runtime.provider_pool.load_catalogue, probe=probe
        ),
        "background": BackgroundService(lambda: app.resident.backgrounds, surface.act, ready=runtime.host.require_guards),
        "control": ControlService(
            session,
            lambda: app.resident,
            queue=app.queue,
            steer=app.steer,
            idle=app.idle_for,
            running=find_running,
            patience=runtime.limits.interrupt,
            registered=lambda: runtime.host.texts.compactor is not None,
            abort=app.abort,
            quit=app.quit,
        ),
        "dialogs": DialogService(ask, lambda: surface.interactive),
        "undo": UndoService(runtime.undo, check_write, runtime.cwd),
        "bus": BusService(runtime.bus, runtime.limits),
        "guests": GuestService(
            runtime.host,
            lambda: load_settings().get("prompt_order", {}),
            os.path.join(folder, "guests"),
            find_config_folder,
            own=DESCRIPTIONS,
        ),
    }
