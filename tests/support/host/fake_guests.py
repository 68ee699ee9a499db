"""Guests without a process: for what no dialect of today does, such as priorities and results that are rewritten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from serai.errors import PeerGone, SeraiError
from serai.host.adapter import Adapter, GuestConnection, StartContext
from serai.host.discovery import DiscoveryResult
from serai.host.guest_context import GuestContext
from serai.host.guest_manifest import GuestManifest, Scope
from serai.host.guest_settings import GuestSettings
from serai.host.host import Host
from serai.model.actions import Action, NoAction
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, Pass
from serai.model.events import Event
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec

Judge = Callable[[InterceptPoint, Any], InterceptResult]


class Fake:
    """A running guest that offers what it is told to, judges by a function and remembers everything."""

    pid = 0
    complaints: tuple[str, ...] = ()

    def __init__(
        self, name: str, contributions: Contributions, *, judge: Judge | None = None, scope: Scope = "ad hoc", **settings: Any
    ) -> None:
        self.name = name
        self.scope = scope
        self.contributions = contributions
        self.settings = GuestSettings(**settings)
        self.judge = judge
        self.asked: list[tuple[InterceptPoint, Any]] = []
        self.told: list[Event] = []
        self.panel: list[tuple[object, ...]] = []
        self.taking: StartContext | None = None

    async def idle(self) -> None:
        pass

    async def call_tool(self, call: ToolCall) -> ToolResult:
        return ToolResult.of(f"{self.name} ran {call.name} with {call.arguments}")

    async def run_command(self, name: str, args: str) -> Action:
        return NoAction()

    async def intercept(self, interceptor: Interceptor, stage: InterceptPoint, subject: Any, /) -> InterceptResult:
        self.asked.append((stage, subject))
        return Pass() if self.judge is None else self.judge(stage, subject)

    def tell(self, event: Event) -> None:
        self.told.append(event)

    def press(self, panel: str, key: str, text: str = "") -> None:
        self.panel.append((panel, key, text))

    def resize(self, panel: str, width: int, height: int) -> None:
        self.panel.append((panel, width, height))

    def close_panel(self, panel: str) -> None:
        self.panel.append((panel, "closed"))

    async def stop(self) -> None:
        pass

    def die(self) -> None:
        """As if its process had ended."""
        assert self.taking is not None
        self.taking.listener.on_end(PeerGone("ended", who=self.taking.who))


def _explain(what: Literal["tool", "command"], guest: str, name: str, error: SeraiError) -> str:
    return f"{what} {guest}/{name}: {error}"


@asynccontextmanager
async def open_fake_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *fakes: Fake, last_wins: tuple[str, ...] = (), **options: Any
) -> AsyncIterator[Host]:
    """A host with these guests, in this order; of those named in `last_wins` the later has the name that several want."""
    by_name = {fake.name: fake for fake in fakes}

    async def start(taking: StartContext) -> GuestConnection:
        fake = by_name[taking.manifest.name]
        fake.taking = taking
        return fake

    monkeypatch.setattr(GuestContext, "get_adapter", lambda self, it: Adapter(start, {}, _explain, it.name in last_wins))
    found = DiscoveryResult(
        guests=tuple(
            GuestManifest(
                dialect="fake",
                name=fake.name,
                folder=tmp_path,
                file=tmp_path,
                scope=fake.scope,
                argv=("none",),
                settings=fake.settings,
            )
            for fake in fakes
        )
    )
    limits = {"restart_wait": 60.0, "restart_wait_most": 60.0, **options.pop("limits", {})}
    environ = {"SERAI_HOME": str(tmp_path / "home")}
    async with Host(lambda: found, environ=environ, limits=limits, **options) as host:
        yield host


class BuiltinTools:
    """Serai's own tools."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def list(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name, "built in") for name in self.names]

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        return ToolResult.of("built in")
