"""The pipeline of a host with fake guests, and everything around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serai.app.agent_tools import AgentTools
from serai.app.pipeline import ApprovalObserver, CallDecision, Pipeline
from serai.errors import NotWritten
from serai.host.host import Host
from serai.limits import Limits
from serai.model.approvals import Approval, Decision, Question
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, Pass
from serai.model.surface import HeadlessSurface, Surface
from serai.model.tools import ToolCall, ToolSpec
from serai.policy import Approver, CallContext, DecisionStore, Policy, Rules
from serai.policy.rules import read_toml
from tests.support.host.fake_guests import Fake, open_fake_host

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("weather", "The weather.", SCHEMA)
RULES = """
[[rule]]
id = "bern"
decide = "allow"
tool = "weather"
input = { city = "Bern" }
[[rule]]
id = "no-atlantis"
decide = "deny"
tool = "weather"
input = { city = "Atlantis" }
because = "it does not exist"
"""


def station(**settings: Any) -> Fake:
    return Fake("station", Contributions(tools=(WEATHER,)), **settings)


def guard(judge: Callable[[Any], InterceptResult], name: str = "gate", **settings: Any) -> Fake:
    def judged(stage: InterceptPoint, subject: Any) -> InterceptResult:
        return judge(subject) if stage == "tool_call" else Pass()

    interceptor = Interceptor(name, frozenset({"tool_call"}))
    return Fake(name, Contributions(interceptors=(interceptor,)), judge=judged, **settings)


class RecordedApprovals(ApprovalObserver):
    def __init__(self) -> None:
        self.asked_of: list[Approval | Question] = []
        self.decisions: list[tuple[str, Decision, str]] = []
        self.hints: list[tuple[str, str]] = []
        self.fails = ""

    def report_no_person(self, request: Approval, hint: str) -> None:
        self.hints.append((request.tool, hint))

    def report_request(self, request: Approval | Question) -> None:
        if self.fails == "asked":
            raise NotWritten("no room")
        self.asked_of.append(request)

    def report_decision(self, request: Approval | Question, decision: Decision, *, withdrawn: str = "") -> None:
        if self.fails == "decided":
            raise NotWritten("no room")
        self.decisions.append((request.id, decision, withdrawn))


class PipelineHarness:
    """The pipeline with everything around it."""

    def __init__(
        self, host: Host, surface: Surface, rules: str, tmp_path: Path, leads: Callable[[ToolCall], Sequence[str]]
    ) -> None:
        self.host = host
        self.surface = surface
        self.told = RecordedApprovals()
        self.decisions = DecisionStore.in_memory()
        policy = Policy(read_toml(rules.encode(), "rules.toml") if rules else Rules(), memory=self.decisions)
        self.approver = Approver(policy, surface, decisions=self.decisions, limits=Limits().but(approval=5.0))
        self.pipeline = Pipeline(host, self.approver, self.situation, leads_outside=leads, observer=self.told)
        self.tools = AgentTools(lambda: self.host, lambda: self.pipeline)
        self.cwd = str(tmp_path)

    def situation(self, owner: str) -> CallContext:
        return CallContext(cwd=self.cwd, project=self.cwd, session="s", agent="resident", owner=owner)

    async def decide(self, city: object = "Bern", **more: Any) -> CallDecision:
        return await self.pipeline.decide(ToolCall("weather", {"city": city, **more}, id="c1", asker="resident"))


@asynccontextmanager
async def open_pipeline(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *fakes: Fake,
    surface: Surface | None = None,
    rules: str = RULES,
    leads: Callable[[ToolCall], Sequence[str]] = lambda _call: (),
    **options: Any,
) -> AsyncIterator[PipelineHarness]:
    async with open_fake_host(monkeypatch, tmp_path, *fakes, **options) as host:
        made = PipelineHarness(host, surface or HeadlessSurface(), rules, tmp_path, leads)
        yield made
        await made.approver.close()
        made.decisions.close()
