"""Services for and about guests (spec piglet 7.1).

`BusService` is the bus: what guests publish to each other, by topic. `ConfigService` reads settings, and a guest's own file beside
them. `DialogService` asks the person: one dialog at a time, each answered exactly once (FIX-26, FIX-31). `GuestService` lists the
other guests and what they offer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from serai import paths
from serai.agents.models.catalogue import Catalogue, choose
from serai.app.services.router import Data, NoArguments, Operation
from serai.errors import BadRequest, LimitHit, NoModel, Refused
from serai.host.guest import Guest
from serai.host.host import Host
from serai.limits import MIB, Limits
from serai.model.approvals import Answer, Decision, Question, QuestionItem, QuestionOption
from serai.model.contributions import PromptSection
from serai.model.events import ToolProgress

log = logging.getLogger("serai.app")

BASH_TAIL = "bash.tail"
_TAIL = 80  # code points

# Takes the topic and the data. Must not wait: a slow reader is not the publisher's affair.
Deliver = Callable[[str, Any], None]


class _Subscription(NamedTuple):
    guest: str
    topic: str
    deliver: Deliver


class Bus:
    """Topics are exact. Each publication is delivered before `publish` returns, in the order of the subscriptions."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, _Subscription] = {}
        self._last = 0

    def publish(self, topic: str, data: Any) -> int:
        """To all subscribers, the publisher included; how many got it. One that fails harms nobody."""
        reached = 0
        for id, one in tuple(self._subscriptions.items()):
            if one.topic != topic or id not in self._subscriptions:  # it may have gone in the meantime
                continue
            try:
                one.deliver(topic, data)
                reached += 1
            except Exception:
                log.exception("%s could not be told of %s", one.guest, topic)
        return reached

    def subscribe(self, guest: str, topic: str, deliver: Deliver) -> Callable[[], None]:
        """From now on, until what this gives back is called. Each call makes another subscription."""
        self._last += 1
        id = self._last
        self._subscriptions[id] = _Subscription(guest, topic, deliver)

        def end() -> None:
            self._subscriptions.pop(id, None)

        return end

    def count(self, guest: str) -> int:
        return sum(one.guest == guest for one in self._subscriptions.values())


def build_bash_tail(event: ToolProgress) -> Data | None:
    """What the app publishes as `bash.tail`: the end of the last line that a command wrote (spec piglet 6.3, 7.1)."""
    lines = [line for line in event.text.splitlines() if line.strip()]
    if event.call.name != "bash" or not lines:
        return None
    return {"ToolCallID": event.call.id, "ToolName": event.call.name, "Partial": lines[-1][-_TAIL:]}


class Publication(msgspec.Struct, frozen=True):
    topic: str
    data: Any = None


class BusService:
    """The bus for guests. To subscribe is no operation: its answers come later and more than once, so it is asked by a call of its
    own (`host.adapter.Services.subscribe`).
    """

    def __init__(self, bus: Bus, limits: Limits | None = None) -> None:
        self._bus = bus
        self._most = (limits or Limits()).registrations
        self.operations: Mapping[str, Operation[Any]] = {"publish": Operation(Publication, self.publish)}

    async def publish(self, _guest: str, wanted: Publication) -> Data:
        self._bus.publish(wanted.topic, wanted.data)
        return {}

    def subscribe(self, guest: str, topic: str, deliver: Deliver) -> Callable[[], None]:
        if self._bus.count(guest) >= self._most:
            raise Refused(f"it has too many subscriptions ({LimitHit('registrations', self._most)})", who=guest)
        return self._bus.subscribe(guest, topic, deliver)


_LONGEST = 1 * MIB  # of a guest's own file


class KeysArgs(msgspec.Struct, frozen=True):
    keys: list[str]


class NameArgs(msgspec.Struct, frozen=True):
    name: str


class ConfigService:
    """`settings` are those in force, read anew each time; `folder` is where a person keeps what a guest may read, by its id."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]], environ: Mapping[str, str], folder: Callable[[str], str]) -> None:
        self._settings = settings
        self._environ = environ
        self._folder = folder
        self.operations: Mapping[str, Operation[Any]] = {
            "get": Operation(KeysArgs, self.get),
            "read": Operation(NameArgs, self.read),
        }

    async def get(self, _guest: str, wanted: KeysArgs) -> Data:
        """The values of those keys that there are. What else a person has set is no guest's business."""
        settings = self._settings()
        found = {key: self._get_value(_KNOWN[key], settings) for key in wanted.keys if key in _KNOWN}
        return {"values": {key: value for key, value in found.items() if value is not None}}

    def _get_value(self, key: str, settings: Mapping[str, Any]) -> Any:
        match key:
            case "agent.max_turns":
                return settings.get("limits", {}).get("steps", Limits().steps)
            case "agent.compact_at":
                return settings.get("compact_at", 0)
            case _:
                word = key.removesuffix("_model")
                try:
                    return choose(word, Catalogue.load(self._environ), self._environ, settings).model.key
                except NoModel:  # one is configured that nobody knows
                    return None

    async def read(self, guest: str, wanted: NameArgs) -> Data:
        """The text of an extension's own file; "" when there is none. One in the old place is copied to the new one."""
        name, folder = wanted.name, self._folder(guest)
        if name in ("", ".", "..") or any(bad in name for bad in ("/", "\\", "\0")):
            quoted = json.dumps(name, ensure_ascii=False)
            raise BadRequest(f"invalid extension name: {quoted}", who=guest, hint="the name alone, without a path")
        new, old = os.path.join(folder, "extensions", name, f"{name}.md"), os.path.join(folder, f"{name}.md")
        content = _read_content(new, guest)
        if content is None and (content := _read_content(old, guest)) is not None:
            _copy(content, new, folder)
        return {"content": (content or b"").decode(errors="replace").strip()}


# Also in the spelling of those who ask (spec piglet 7.1).
_KNOWN = {
    "default_model": "default_model",
    "defaultModel": "default_model",
    "small_model": "small_model",
    "smallModel": "small_model",
    "agent.compact_at": "agent.compact_at",
    "agent.compactAt": "agent.compact_at",
    "agent.max_turns": "agent.max_turns",
    "agent.maxTurns": "agent.max_turns",
}


def _read_content(path: str, guest: str) -> bytes | None:
    """None when there is no such file."""
    try:
        return paths.read_regular_file(path, _LONGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}", who=guest) from None


def _copy(content: bytes, path: str, folder: str) -> None:
    """Where there is nothing yet, and nowhere a link leads to. Not to be able to is no failure: the old file was read."""
    above = os.path.dirname(path)
    if os.path.realpath(above) != os.path.join(os.path.realpath(folder), os.path.relpath(above, folder)):
        log.warning("%s was not copied: a link leads elsewhere", path)
        return
    try:
        paths.make_private_folder(above)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except OSError:
            os.unlink(path)  # half of it would be taken for all
            raise
    except OSError as error:
        log.warning("%s was not copied: %s", path, error.strerror)


DISMISSED = -1


class AskArgs(msgspec.Struct, frozen=True):
    prompt: str
    choices: list[str]


class PickRow(msgspec.Struct, frozen=True):
    id: str
    label: str = ""
    desc: str | None = None


class PickArgs(msgspec.Struct, frozen=True):
    title: str = ""
    items: list[PickRow] = []


class DialogService:
    """`ask` puts a question to the person and is cancelled when nobody waits for the answer; `interactive`: is there one?"""

    def __init__(self, ask: Callable[[Question], Awaitable[Decision]], interactive: Callable[[], bool]) -> None:
        self._ask = ask
        self._interactive = interactive
        self._turn = asyncio.Lock()  # who waits gets it in the order of asking
        self._count = 0
        self.operations: Mapping[str, Operation[Any]] = {
            "ask": Operation(AskArgs, self.ask),
            "pick": Operation(PickArgs, self.pick),
        }

    async def ask(self, guest: str, wanted: AskArgs) -> Data:
        if not wanted.choices:
            raise BadRequest("ask: choices must not be empty", who=guest)
        place = await self._choose(guest, wanted.prompt, [QuestionOption(choice) for choice in wanted.choices])
        dismissed = place == DISMISSED
        return {"selected": "" if dismissed else wanted.choices[place], "cancelled": dismissed}

    async def pick(self, guest: str, wanted: PickArgs) -> Data:
        if not wanted.items:
            return {"selected": ""}
        place = await self._choose(
            guest, wanted.title, [QuestionOption(row.label or row.id, row.desc or "", row.id) for row in wanted.items]
        )
        return {"selected": "" if place == DISMISSED else wanted.items[place].id}

    async def _choose(self, guest: str, text: str, choices: Sequence[QuestionOption]) -> int:
        """The place of the choice, or `DISMISSED`."""
        if not self._interactive():
            return DISMISSED
        self._count += 1
        item = QuestionItem(text, header=guest, choices=tuple(_make_labels_unique(choices)))
        question = Question(id=f"dialog-{self._count}", agent=guest, items=(item,))
        async with self._turn:  # whoever is cancelled withdraws it
            decision = await self._ask(question)
        answer = decision.answers.get(item.text) if isinstance(decision, Answer) else None
        # An answer that was not to be chosen is none: a guest might take it for the other one of two.
        return next((place for place, choice in enumerate(item.choices) if answer == choice.label), DISMISSED)


def _make_labels_unique(choices: Sequence[QuestionOption]) -> list[QuestionOption]:
    """With labels of their own: by these a person's answer is known."""
    often = Counter(choice.label for choice in choices)
    found: list[QuestionOption] = []
    taken: set[str] = set()
    for place, choice in enumerate(choices, start=1):
        label = choice.label
        if often[label] > 1 or label in taken:
            label = f"{label} ({choice.id or place})"
        while label in taken:
            label = f"{label} ({place})"
        taken.add(label)
        found.append(QuestionOption(label, choice.description, choice.id))
    return found


class GuestService:
    """`order` are the places of prompt sections by title that a person has set; `folder` is where their guests lie.
    `config` is the folder in whose `extensions` a guest's own settings are, by its id.

    `own` are the commands of Serai itself, each with a line about it.
    """

    def __init__(
        self,
        host: Host,
        order: Callable[[], Mapping[str, int]],
        folder: str,
        config: Callable[[str], str],
        *,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._host = host
        self._config = config
        self._own = own or {}
        self._order = order
        self._folder = folder
        self.operations: Mapping[str, Operation[Any]] = {
            "commands": Operation(NoArguments, self.commands),
            "shortcuts": Operation(NoArguments, self.shortcuts),
            "sections": Operation(NoArguments, self.sections),
            "infos": Operation(NoArguments, self.infos),
            "folder": Operation(NoArguments, self.folder),
        }

    async def commands(self, _guest: str, _arguments: NoArguments) -> Data:
        """By name."""
        found = {command.name: command.description for command in self._host.commands} | dict(self._own)
        return {"commands": [{"name": name, "description": about} for name, about in sorted(found.items())]}

    async def shortcuts(self, _guest: str, _arguments: NoArguments) -> Data:
        """By key, each of the guest that has it."""
        return {"shortcuts": {shortcut.key: {"description": shortcut.description} for shortcut in self._host.shortcuts}}

    async def sections(self, _guest: str, _arguments: NoArguments) -> Data:
        """In the order of the system prompt; what they say is not told."""
        order = self._order()
        found = sorted(self._host.texts.list_sections(), key=lambda section: order.get(section.title, section.order))
        return {"sections": [_dump_section(section) for section in found]}

    async def infos(self, _guest: str, _arguments: NoArguments) -> Data:
        """In load order, Serai's own first."""
        own = [name for name, tool in self._host.table.tools.items() if tool.owner.id == "serai"]
        serai: Data = {"name": "serai", "kind": "builtin"} | ({"tools": own} if own else {})
        return {"guests": [serai, *map(_dump_guest, self._host.guests.values())]}

    async def folder(self, guest: str, _arguments: NoArguments) -> Data:
        """Where guests lie, and where their own settings do, each in a folder of its name (spec piglet 1.1)."""
        return {"path": self._folder, "config": os.path.join(self._config(guest), "extensions")}


def _dump_section(section: PromptSection) -> Data:
    return {"title": section.title} | ({"tokens": section.tokens} if section.tokens else {})


def _dump_guest(guest: Guest) -> Data:
    """What is empty is left out."""
    manifest, offers = guest.manifest, guest.contributions
    others: Data = {
        "version": manifest.version,
        "runtime": manifest.language,
        "tools": [tool.name for tool in guest.tools],
        "commands": [command.name for command in offers.commands],
        "interceptors": [interceptor.name for interceptor in offers.interceptors],
        "event_handlers": [handler.name for handler in offers.event_handlers],
        "shortcuts": [shortcut.key for shortcut in offers.shortcuts],
        "message_hooks": [hook.name for hook in offers.message_hooks],
        "input_transformers": [transformer.name for transformer in offers.input_transformers],
        "compactor": offers.compactors[0].name if offers.compactors else "",
    }
    data: Data = {"name": manifest.name, "id": manifest.id, "kind": "external", "state": str(guest.state)}
    return data | {key: value for key, value in others.items() if value}
