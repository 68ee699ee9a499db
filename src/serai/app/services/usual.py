"""All groups of services, as an app has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from serai import home
from serai.app.commands import ABOUT
from serai.app.services.background import Background
from serai.app.services.bus import BusGroup
from serai.app.services.chat import Chat
from serai.app.services.config import Config
from serai.app.services.control import Control
from serai.app.services.conversation import Conversation
from serai.app.services.credentials import Credentials
from serai.app.services.dialogs import Dialogs
from serai.app.services.group import Group
from serai.app.services.guests import Guests
from serai.app.services.models import Models
from serai.app.services.sessions import Sessions
from serai.app.services.tools import Tools
from serai.app.services.undo import Undo
from serai.errors import NotCapable
from serai.model.actions import SetTitle
from serai.model.ask import Decision, Question, stamped
from serai.model.provider import Model, ModelProvider
from serai.model.tools import Native, ToolCall

if TYPE_CHECKING:
    from serai.app.app import App

__all__ = ["usual"]


def usual(app: App) -> dict[str, Group]:
    """The groups of `host.services.GROUPS`, each over what the app has."""
    house = app.house
    session, surface, environ = house.session, house.surface, house.environ
    folder = home.config_folder(environ)

    def settings() -> Mapping[str, Any]:
        return house.config.again().settings

    def take(query: str) -> tuple[Model, ModelProvider]:
        return house.shelf.take(query, None)[:2]

    def current_model() -> str:
        try:
            return app.resident.house.model.key
        except NotCapable:  # a driven agent's model is its own
            return ""

    def allowed() -> tuple[str, ...] | None:
        return house.config.tools

    async def ask(question: Question) -> Decision:
        ruling = await house.desk.ask(stamped(question, session=session.id), app.situation(question.agent))
        return ruling.decision

    async def may_write(guest: str, path: str) -> str:
        """To put a file back is to write it, and decided so."""
        call = ToolCall("write", {"path": path}, asker=guest, native=Native("undo.restore", {"path": path}))
        decided = await house.pipeline.decide(call)
        return "" if decided.allowed else decided.result().text

    return {
        "tools": Tools(house.tools, app.call_tool, lambda: app.resident.tools, allowed=allowed),
        "config": Config(settings, environ, folder),
        "credentials": Credentials(environ, house.services.granted),
        "chat": Chat(
            take,
            lambda: app.resident.house,
            house.tools,
            house.limits,
            allowed=allowed,
            ready=house.host.require_guards,
            nested=house.tools.is_nested,
        ),
        "conversation": Conversation(lambda: app.resident, app.must_be_idle),
        "sessions": Sessions(
            house.sessions,
            house.current,
            swap=app.swap,
            refresh=app.refresh,
            idle=app.must_be_idle,
            titled=lambda title: surface.act(SetTitle(title)),
        ),
        "models": Models(environ, current_model, session.set_model, surface.act),
        "background": Background(lambda: app.resident.backgrounds, surface.act, ready=house.host.require_guards),
        "control": Control(
            session,
            lambda: app.resident,
            queue=app.queue,
            steer=app.steer,
            idle=app.idle,
            works=app.works_for,
            abort=app.abort,
            quit=app.quit,
        ),
        "dialogs": Dialogs(ask, lambda: surface.interactive),
        "undo": Undo(house.undo, may_write, house.cwd),
        "bus": BusGroup(house.bus, None, house.limits),
        "guests": Guests(house.host, lambda: settings().get("prompt_order", {}), os.path.join(folder, "guests"), own=ABOUT),
    }
