"""Whole apps for tests: an `App` in a temporary home with the offline model, and real guests or fakes in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Unpack

import pytest

from serai.app.app import App
from serai.app.assembly import AppOptions
from serai.errors import SeraiError
from serai.host import host as hosts
from serai.host.adapter import Adapter, GuestConnection, StartContext
from serai.host.discovery import DiscoveryResult
from serai.host.guest_context import GuestContext
from serai.host.guest_manifest import GuestManifest
from serai.model.actions import Action, NoAction, SubmitPrompt
from serai.model.contributions import Command, Contributions, InputTransformer, MessageHook, TransformResult
from serai.model.events import Event
from serai.model.tools import TextBlock
from serai.store.session_folder import SessionFolder
from serai.wire import process_tree
from tests.support.agents.scripted_models import MODEL, Answer, Answers
from tests.support.host.fake_guests import Fake
from tests.support.host.zot_guests import LIMITS, AwaitableSurface

PATIENT: Mapping[str, float | None] = {**LIMITS, "model_wait": 0.001, "model_wait_most": 0.002}


def build_environ(tmp_path: Path) -> dict[str, str]:
    """The environment of an app that has no settings of this person."""
    return {"PATH": os.environ.get("PATH", os.defpath), "SERAI_HOME": str(tmp_path / "home")}


def create_app(tmp_path: Path, *folders: Path, answers: Answers | None = None, **choices: Unpack[AppOptions]) -> App:
    """An app in which every call is allowed: with parrot, or `answers`; with these guests and no others."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    usual: AppOptions = {
        "cwd": project,
        "environ": build_environ(tmp_path),
        "guests": folders,
        "installed": False,
        "mode": "skip",
        "record": False,
        "limits": PATIENT,
    }
    if answers is not None:
        usual["options"] = {"model": MODEL, "provider": answers}
    else:
        usual["model"] = "parrot"
    usual.update(choices)
    return App(**usual)


@asynccontextmanager
async def open_app(
    tmp_path: Path, *folders: Path, answers: Answers | None = None, **choices: Unpack[AppOptions]
) -> AsyncIterator[App]:
    """The same, opened. At the end nothing that it started runs any more."""
    app = create_app(tmp_path, *folders, answers=answers, **choices)
    await app.open()
    try:
        yield app
    finally:
        await close_app(app)


async def close_app(app: App) -> None:
    """Close it, and see that no process is left."""
    await app.close()
    tag = app.runtime.spawner.tag
    left = [process for process in process_tree.scan_processes().values() if tag and process.alive and process.carries(tag)]
    assert not left, f"left running: {left}"


def sessions_of(tmp_path: Path) -> SessionFolder:
    return SessionFolder.usual(build_environ(tmp_path))


# -- a person


class Person(AwaitableSurface):
    """A surface that tests can wait at, for events too."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self._expected: list[tuple[Callable[[Event], bool], asyncio.Future[Event]]] = []

    def tell(self, event: Event) -> None:
        super().tell(event)
        for fits, future in self._expected:
            if not future.done() and fits(event):
                future.set_result(event)

    async def saw(self, fits: Callable[[Event], bool]) -> Event:
        """The first event that fits, told already or still to come."""
        for event in self.events:
            if fits(event):
                return event
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._expected.append((fits, future))
        return await future

    async def saw_a(self, kind: type) -> Event:
        return await self.saw(lambda event: isinstance(event, kind))


# -- models


class Gated(Answers):
    """Answers each request when the test lets it: `began` has the newest text of each request."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(*answers)
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self._go = asyncio.Semaphore(0)

    def go(self) -> None:
        self._go.release()

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        self.began.put_nowait(prompts_in(request.messages)[-1])
        await self._go.acquire()
        async for piece in super().stream(request):
            yield piece


def prompts_in(messages: Sequence[Any]) -> list[str]:
    """What people said, as a model gets it."""
    return ["".join(b.text for b in one.content if isinstance(b, TextBlock)) for one in messages if one.role == "user"]


# -- guests without a process


class Helper(Fake):
    """Changes what is typed, adds to the system prompt and runs commands, by functions; it offers what it has one for."""

    def __init__(
        self,
        name: str = "helper",
        *,
        transform: Callable[[str], TransformResult | Awaitable[TransformResult]] | None = None,
        inject: Callable[[str], str] | None = None,
        commands: Mapping[str, Callable[[str], Action]] | None = None,
        immediate: bool = False,
        offers: Contributions | None = None,
        **settings: Any,
    ) -> None:
        self._commands = commands or {}
        self._transform = transform
        self._inject = inject
        mine = {
            "input_transformers": (InputTransformer(name),) if transform else (),
            "message_hooks": (MessageHook(name),) if inject else (),
            "commands": tuple(Command(command, immediate=immediate) for command in self._commands),
        }
        given = {} if offers is None else {field: getattr(offers, field) for field in offers.__struct_fields__}
        super().__init__(name, Contributions(**{**given, **{key: value for key, value in mine.items() if value}}), **settings)

    async def transform(self, text: str) -> TransformResult:
        assert self._transform is not None
        changed = self._transform(text)
        return changed if isinstance(changed, TransformResult) else await changed

    async def inject(self, text: str) -> str:
        assert self._inject is not None
        return self._inject(text)

    async def run_command(self, name: str, args: str) -> Action:
        action = self._commands[name](args)
        if not isinstance(action, SubmitPrompt | NoAction):  # a prompt is for whoever ran the command to send
            self.wants(action)
        return action

    def wants(self, action: Action) -> None:
        """As if it had answered an event with this."""
        assert self.taking is not None
        self.taking.listener.on_action(action)


def _explain(what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str:
    return f"{what} {guest}/{name}: {error}"


def bring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *fakes: Fake) -> None:
    """These are the guests of every app that is opened in this test."""
    by_name = {fake.name: fake for fake in fakes}

    async def start(taking: StartContext) -> GuestConnection:
        fake = by_name[taking.manifest.name]
        fake.taking = taking
        return fake

    def manifest(fake: Fake) -> GuestManifest:
        return GuestManifest(
            dialect="fake", name=fake.name, folder=tmp_path, file=tmp_path, scope="ad hoc", argv=("none",), settings=fake.settings
        )

    found = DiscoveryResult(guests=tuple(map(manifest, fakes)))
    monkeypatch.setattr(GuestContext, "get_adapter", lambda self, manifest: Adapter(start, {}, _explain, free_names=True))
    monkeypatch.setattr(hosts, "find_guests", lambda **_places: found)


def list_session_files(tmp_path: Path) -> list[str]:
    """What is in the folder of sessions, locks included."""
    folder = sessions_of(tmp_path).folder
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
