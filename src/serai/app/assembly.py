"""Assembles an app: its options and their defaults, everything that is open, and what the app gives to its agent.

A session stores which plugins it began with, and gets them again when it is resumed (spec yoi 10.2). Else it would move to another
content of a plugin by itself, with the grants of the old one in mind.

It has Serai's own commands, too, which a person types wherever they type prompts. No guest gets one of these names.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from serai import agents
from serai.agents.driver import NeedsApproval
from serai.agents.factory import load_agent_factory
from serai.agents.models.providers import FallbackProvider, ProviderPool
from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.app.agent_tools import AgentTools, GuestInterceptors, GuestTools
from serai.app.config import Config
from serai.app.pipeline import Pipeline
from serai.app.services.guest_services import Bus
from serai.app.services.router import NO_GRANTS, AppServices, ServiceGrants, ServiceGroup, read_service_grants
from serai.app.surfaces import ApprovalEvents, GuestSurface, SafeSurface
from serai.errors import BadSession, BadSettings, NoSession, SeraiError
from serai.host.adapter import HostInfo
from serai.host.host import BuiltInCommand, Host
from serai.host.trust import Trust
from serai.limits import Limits
from serai.model.actions import Action, Display, Quit
from serai.model.approvals import Allow, Approval, Deny, Question
from serai.model.contributions import PromptSection
from serai.model.provider import ModelMessage, ModelProvider
from serai.model.surface import HeadlessSurface, Surface
from serai.model.tools import ToolCall
from serai.policy import Approver, CallContext, DecisionStore, Policy, Rules, load_rules
from serai.record import Recorder, RecordingFolder, Secrets
from serai.store.session_folder import CurrentSession, SessionFolder
from serai.store.stored_session import StoredSession as Stored
from serai.tools import BuiltInTools, FileSnapshots
from serai.wire.channel import Tap
from serai.wire.plain_process import PlainSpawner

if TYPE_CHECKING:
    from serai.app.app import App

log = logging.getLogger("serai.app")


def open_agent_session(runtime: Runtime, choices: AppOptions, trust: Trust) -> Session:
    """The app hands the same to every agent that is driven; the resident gets what is ours as well."""
    config = runtime.config
    options = build_resident_options(runtime) if config.agent == "resident" else build_driven_options(runtime, choices, trust)
    common = {
        "cwd": runtime.cwd,
        "store": runtime.current,
        "limits": runtime.limits,
        "environ": runtime.environ,
        "settings": config.settings,
    }
    session = agents.agent(config.agent, **{**common, **options, **choices.get("options", {})})
    if isinstance(session.driver, Resident):
        session.driver.tools.restrict(config.tools)
    return session


def build_resident_options(runtime: Runtime) -> dict[str, Any]:
    config = runtime.config

    def list_sections() -> list[PromptSection]:  # the host is made after the agent, of which guests are told
        return runtime.host.texts.list_sections()

    async def compact(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return await runtime.host.texts.compact(messages)

    def get_compact_at() -> int:
        """What the compactor's author says, else the person; 0: only when the model is nearly full (spec piglet 4)."""
        compactor = runtime.host.texts.compactor
        return 0 if compactor is None else compactor.threshold or config.compact_at

    return {
        "model": config.model,
        "provider_pool": runtime.provider_pool,
        "tools": runtime.tools,
        "decide": runtime.tools.decide,
        "interceptors": GuestInterceptors(lambda: runtime.host),
        "sections": list_sections,
        "compactor": compact,
        "compact_at": get_compact_at,
    }


def build_driven_options(runtime: Runtime, choices: AppOptions, trust: Trust) -> dict[str, Any]:
    """What a program gets that has its own model, tools and settings: ours besides, and somebody who decides about its calls."""

    def list_sections() -> list[PromptSection]:
        return runtime.host.texts.list_sections()

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        return await runtime.pipeline.judge(call)

    starts = count(1)

    def open_tap(pid: int) -> Tap | None:
        recorder, name = runtime.recorder, runtime.config.agent
        return None if recorder is None else recorder.open_tap(name, kind="agent", dialect=name, generation=next(starts), pid=pid)

    if (untrusted := trust.check_agents(runtime.cwd)) and _has_settings(runtime, trust):
        runtime.notes.append(f"{runtime.config.agent} starts without what this project has for it: {untrusted}")
    return {
        "model": choices.get("model", ""),  # the settings' own is for our models
        "spawner": runtime.spawner,
        "tools": GuestTools(runtime.tools, lambda: runtime.host, only=runtime.config.tools),
        "judge": judge,
        "interceptors": GuestInterceptors(lambda: runtime.host),
        "sections": list_sections,
        "tap": open_tap,
        "trusted": lambda: not trust.check_agents(runtime.cwd),
    }


def _has_settings(runtime: Runtime, trust: Trust) -> bool:
    """Whether the project has anything that the agent would take from it; what it remembers of a project is not pinned."""
    names = ("CLAUDE.md", "CLAUDE.local.md")
    here = runtime.config.agent == "claude"
    return here and (trust.for_agents(runtime.cwd) != {} or any(os.path.lexists(os.path.join(runtime.cwd, name)) for name in names))


def find_agent_session(agent: str, wanted: str, environ: Mapping[str, str]) -> str:
    """The id of a session that a driven agent has kept itself, by the beginning of it; empty when it has none."""
    if agent != "claude":
        return ""
    from serai.agents.drivers.claude.transcripts.reader import Transcripts  # seldom needed

    try:
        return Transcripts(environ=environ).resolve(wanted)
    except SeraiError:
        return ""


def with_pinned_plugins(settings: Mapping[str, Any], stored: Stored | None) -> Mapping[str, Any]:
    """The settings with the plan that this session has kept, if it has one: then no plugin is looked for."""
    raw = None if stored is None else stored.read_plugins()
    if stored is None or raw is None:
        return settings
    from serai.host.adapters.yoi import finder  # only where there are some

    try:
        found = {**settings, "plugins": {**settings.get("plugins", {}), "resolved": msgspec.json.decode(raw)}}
        finder.read_settings(found, stored.file)
    except (BadSettings, msgspec.DecodeError) as error:
        hint = "begin a new session"
        raise BadSession(f"what it keeps of its plugins cannot be read: {error}", who=stored.file, hint=hint) from None
    return found


def pin_plugins(runtime: Runtime) -> None:
    """Keep what runs now, once: when something is said in the session, as nobody goes on with an empty one."""
    current, found = runtime.current, runtime.host.found.guests
    if current is None or all(manifest.plan is None for manifest in found):
        return
    from serai.host.adapters.yoi.finder import build_plan

    try:
        with current.turn:
            if not current.session.meta.plugins and (plan := build_plan(found)) is not None:
                current.session.keep_plugins(plan)
    except SeraiError as error:
        log.warning("the session does not keep which plugins it has: %s", error)


LATEST = "latest"  # the session of this folder in which something happened last

Path = str | os.PathLike[str]


class AppOptions(TypedDict, total=False):
    """What `App` can be given. Without a choice it is what the settings say, else the usual."""

    cwd: Path  # the project; the current folder by default
    agent: str  # `resident` by default
    model: str  # a query, as `serai run --model` takes it
    surface: Surface  # where a person is reached; nobody is, by default
    policy: Path | Sequence[Path] | Policy  # rule files beside the person's and the project's; or all there is
    allow: Sequence[str]  # such as `bash:git status`, for this run
    mode: str  # manual, auto, skip
    guests: Sequence[Path]  # these too
    installed: bool  # False: only these
    session: str | Stored  # to go on with: an id or the beginning of one, or `latest` for this folder's newest
    decisions: DecisionStore  # where approvals and what is remembered are kept, if somebody has it open already
    keep: bool  # False: the conversation is kept nowhere
    record: bool | Recorder  # False: no recording; else as the settings say
    command: str  # what the recording is called
    limits: Mapping[str, float | None]
    environ: Mapping[str, str]
    park: bool  # what no surface answers waits for `serai policy answer`
    watch: bool  # guests are started anew when their files change
    services: Mapping[str, ServiceGroup]  # in the place of our own, by group
    options: Mapping[str, Any]  # more for the agent, such as `system=`


@dataclass(slots=True, kw_only=True, repr=False, eq=False)  # the environment has secrets
class Runtime:
    """Everything that is open. Closed in the other order than it was opened."""

    config: Config
    cwd: str
    environ: Mapping[str, str]
    limits: Limits
    surface: SafeSurface
    spawner: PlainSpawner
    provider_pool: ProviderPool
    undo: FileSnapshots
    decisions: DecisionStore
    policy: Policy
    approver: Approver
    sessions: SessionFolder | None
    current: CurrentSession | None
    is_new: bool  # the session was made for this run
    recorder: Recorder | None
    owns_recorder: bool
    owns_decisions: bool
    bus: Bus
    tools: AgentTools
    built_in: BuiltInTools
    notes: list[str] = field(default_factory=list)  # what a person should know of the agent
    session: Session = field(init=False)
    host: Host = field(init=False)
    pipeline: Pipeline = field(init=False)
    services: AppServices = field(init=False)

    def get_context(self, owner: str = "") -> CallContext:
        session = self.session
        return CallContext(cwd=self.cwd, project=self.cwd, session=session.id, agent=session.agent, owner=owner)

    def collect_remarks(self) -> list[str]:
        """What a person should know of the agent, and of the session they go on with: what was asked when its last run ended."""
        if self.is_new:
            return self.notes
        lost = [one for one in self.decisions.list_pending() if one.state == "lost" and one.situation.session == self.session.id]
        return self.notes + [f"an approval still waits from a run that was killed: {_format_request(one.request)}" for one in lost]

    def check_model(self) -> None:
        """Raises what the model needs and is not there, once the guests are up that may stream it (spec piglet 5.9)."""
        driver = self.session.driver
        if isinstance(driver, Resident) and isinstance(driver.context.provider, FallbackProvider):
            self.provider_pool.check(driver.context.model)

    async def close(self) -> None:
        """All of it, whatever one part does; the files also when the loop ends meanwhile."""
        try:
            for close in (self.session.close, self.host.close, self.approver.close, self.provider_pool.close, self.spawner.close):
                try:
                    await close()
                except Exception:
                    log.exception("a part of the app could not be closed")
        except BaseException:
            self._kill_guests()
            raise
        finally:
            for end in (self._end_session, self._end_recording, self._end_decisions):
                try:
                    end()
                except SeraiError as error:
                    log.error("at the end of the app: %s", error)

    def _kill_guests(self) -> None:
        """There is no time to ask: the loop ends, and the process perhaps does not."""
        for guest in self.host.guests.values():
            if guest.running is not None and guest.running.pid:
                with suppress(OSError):
                    os.killpg(guest.running.pid, signal.SIGKILL)
            if guest.log is not None:
                guest.log.close()

    def leave_session(self, stored: Stored) -> None:
        """Another session is the current one: this one is gone when it was made for this run and nothing was said in it."""
        if self.is_new or stored.meta.parent:
            _forget_empty(stored)
        self.is_new = False

    def _end_session(self) -> None:
        if self.current is not None:
            _end_session(self.current, is_new=self.is_new)

    def _end_decisions(self) -> None:
        if self.owns_decisions:
            self.decisions.close()

    def _end_recording(self) -> None:
        if self.recorder is not None and self.owns_recorder:
            self.recorder.close()
            self.recorder.forget_empty()  # what could not begin


def open_runtime(app: App, choices: AppOptions) -> Runtime:
    """Everything made, nothing started yet. What cannot be chosen is told before anything is made."""
    environ = choices.get("environ", os.environ)
    cwd = os.path.abspath(choices.get("cwd", "."))
    if not os.path.isdir(cwd):
        raise BadSettings("it is no folder", who=cwd, hint="give an existing folder as cwd")
    trust = Trust.usual(environ)
    config = Config.load(cwd, environ=environ, trust=trust, flags=_build_flags(choices))
    limits = config.limits
    rules = _load_rules(choices, cwd, environ, trust)

    def find_provider(api: str) -> ModelProvider | None:  # guests are there after the pool of providers
        return runtime.host.provider(api)

    provider_pool = ProviderPool(environ, config.settings, limits, find_provider)
    load_agent_factory(config.agent)
    if config.agent == "resident" and not {"model", "provider"} & choices.get("options", {}).keys():
        provider_pool.select(config.model, None, unchecked=True)  # one that nobody knows; what it needs, guests may have
    sessions = SessionFolder.usual(environ, limits=limits) if choices.get("keep", True) else None
    stored, is_new = _open_session(choices.get("session", ""), sessions, cwd, config.agent, environ)
    with ExitStack() as undone:
        current = None if stored is None else CurrentSession(stored)
        if current is not None:
            undone.callback(_end_session, current, is_new=is_new)
        recorder, owned = _open_recorder(choices, config, environ)
        if recorder is not None and owned:
            undone.callback(recorder.close)
        decisions = choices.get("decisions") or DecisionStore.usual(environ)
        if owns_decisions := "decisions" not in choices:
            undone.callback(decisions.close)
        surface = SafeSurface(choices.get("surface", HeadlessSurface()))
        policy = rules if isinstance(rules, Policy) else Policy(rules, memory=decisions)
        spawner = PlainSpawner(limits)
        undo = FileSnapshots.usual(environ, limits=limits)
        tools = AgentTools(lambda: runtime.host, lambda: runtime.pipeline)
        runtime = Runtime(
            config=config,
            cwd=cwd,
            environ=environ,
            limits=limits,
            surface=surface,
            spawner=spawner,
            provider_pool=provider_pool,
            undo=undo,
            decisions=decisions,
            policy=policy,
            approver=Approver(policy, surface, decisions=decisions, limits=limits, park=choices.get("park", False)),
            sessions=sessions,
            current=current,
            is_new=is_new,
            recorder=recorder,
            owns_recorder=owned,
            owns_decisions=owns_decisions,
            bus=Bus(),
            tools=tools,
            built_in=BuiltInTools(cwd, spawner=spawner, outside=tools.may_reach, undo=undo, limits=limits, environ=environ),
        )
        runtime.session = open_agent_session(runtime, choices, trust)
        runtime.host = _build_host(app, runtime, choices)
        leads = runtime.built_in.leads_outside
        runtime.pipeline = Pipeline(
            runtime.host, runtime.approver, runtime.get_context, leads_outside=leads, observer=ApprovalEvents(runtime.session.hub)
        )
        undone.pop_all()
    return runtime


def _build_host(app: App, runtime: Runtime, choices: AppOptions) -> Host:
    driver = runtime.session.driver
    model = driver.context.model if isinstance(driver, Resident) else None
    about = HostInfo(
        cwd=runtime.cwd,
        agent=runtime.session.agent,
        provider="" if model is None else model.provider,
        model="" if model is None else model.id,
    )

    def get_grants(guest: str) -> ServiceGrants:
        known = runtime.host.guests.get(guest)
        return NO_GRANTS if known is None else read_service_grants(known.manifest.settings)

    resumed = None if runtime.current is None or runtime.is_new else runtime.current.session
    runtime.services = AppServices({}, granted=get_grants, limits=runtime.limits)
    return Host.discover(
        runtime.cwd,
        guests=[os.fspath(path) for path in choices.get("guests", ())],
        installed=choices.get("installed", True),
        environ=runtime.environ,
        config=with_pinned_plugins(runtime.config.settings, resumed),
        about=about,
        built_in=runtime.built_in,
        commands=build_builtin_commands(app),
        services=runtime.services,
        surface=GuestSurface(runtime.surface, app.do),
        recorder=runtime.recorder,
        spawner=runtime.spawner,
        watch=choices.get("watch", False),
    )


def _build_flags(choices: AppOptions) -> dict[str, object]:
    """What was chosen for this run, in the words of the settings."""
    flags: dict[str, object] = {}
    if agent := choices.get("agent", ""):
        flags["agent"] = agent
    if model := choices.get("model", ""):
        flags["default_model"] = model
    if limits := choices.get("limits"):
        flags["limits"] = dict(limits)
    return flags


def _load_rules(choices: AppOptions, cwd: str, environ: Mapping[str, str], trust: Trust) -> Rules | Policy:
    policy = choices.get("policy", ())
    if isinstance(policy, Policy):
        return policy
    files = [policy] if isinstance(policy, str | os.PathLike) else policy
    return load_rules(
        cwd,
        files=[os.fspath(file) for file in files],
        allow=choices.get("allow", ()),
        mode=choices.get("mode", ""),
        untrusted=lambda content: trust.check_policy(cwd, content),
        environ=environ,
    )


def _open_session(
    wanted: str | Stored, sessions: SessionFolder | None, cwd: str, agent: str, environ: Mapping[str, str]
) -> tuple[Stored | None, bool]:
    """The session to go on with, or a new one; and whether it is new. One that the agent alone has kept is new to us."""
    if isinstance(wanted, Stored):
        return wanted, False
    if sessions is None:
        if wanted:
            raise NoSession("a conversation that is not kept goes on with no other", hint="leave out one of the two")
        return None, False
    if wanted == LATEST:
        latest = sessions.find_latest(cwd, begun=True)
        if latest is None:
            raise NoSession("there is no session of this folder yet", who=cwd, hint="begin one without --continue")
        wanted = latest.id
    if not wanted:
        return sessions.create(cwd, agent=agent), True
    try:
        return sessions.open(wanted), False
    except NoSession:
        if not (own := find_agent_session(agent, wanted, environ)):
            raise
        return sessions.create(cwd, agent=agent, agent_session=own), True


def _end_session(current: CurrentSession, *, is_new: bool) -> None:
    try:
        stored = current.session
    except NoSession:
        return
    current.close()
    if is_new or stored.meta.parent:  # nobody wants an empty fork either
        _forget_empty(stored)


def _forget_empty(stored: Stored) -> None:
    """Nothing was said: nobody looks for it. Looked at once more, as somebody else may have said something."""
    try:
        with Stored(stored.file) as again:
            empty = not again.leaf
    except SeraiError:
        return
    if empty:
        for name in (stored.file, f"{stored.file}.lock"):
            with suppress(OSError):
                os.unlink(name)


def _open_recorder(choices: AppOptions, config: Config, environ: Mapping[str, str]) -> tuple[Recorder | None, bool]:
    """And whether it is ours to close."""
    wanted = choices.get("record", True)
    if isinstance(wanted, Recorder):
        return wanted, False
    if not wanted or not config.record:
        return None, False
    folder = RecordingFolder.usual(environ)
    return Recorder(folder, command=choices.get("command", "serai"), secrets=Secrets.from_env(environ), limits=config.limits), True


def _format_request(request: Approval | Question) -> str:
    return f"{request.tool} {request.id}" if isinstance(request, Approval) else "a question"


DESCRIPTIONS = {
    "compact": "shorten the conversation",
    "exit": "end the run",
    "model": "which model is used, or another one: /model NAME",
    "quit": "end the run",
}
# Those of them that run while a turn does.
IMMEDIATE = frozenset({"quit", "exit", "model"})


def build_builtin_commands(app: App) -> Mapping[str, BuiltInCommand]:
    """By name; each takes what was typed behind it."""

    async def quit(_args: str) -> Action:
        app.quit()
        return Quit()

    async def model(args: str) -> Action:
        if not args:
            return Display(app.resident.context.model.key)
        return Display(await app.session.set_model(args))

    async def compact(_args: str) -> Action | None:
        await app.session.compact()
        return None

    return {"quit": quit, "exit": quit, "model": model, "compact": compact}
