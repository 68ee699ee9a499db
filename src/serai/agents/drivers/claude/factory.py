"""`serai.agent("claude")`: a session with Claude Code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

import msgspec

from serai import paths
from serai.agents.driver import Interceptors, JudgeCall, NoInterceptors
from serai.agents.drivers.claude.driver import Claude
from serai.agents.drivers.claude.launch import ClaudeLaunch, Format
from serai.agents.drivers.claude.options import MODES, ClaudeDefaults, ClaudeOptions, merge_options
from serai.agents.drivers.claude.text_mode import TextClaude
from serai.agents.factory import read_agent_settings
from serai.agents.session import Session
from serai.errors import BadSession, BadSettings, SeraiError
from serai.limits import AgentLimits
from serai.model.contributions import PromptSection
from serai.model.tools import ToolBox
from serai.store.messages import AssistantMessage
from serai.store.session_folder import CurrentSession
from serai.store.stored_session import StoredSession as Stored
from serai.wire.channel import Tap
from serai.wire.process import Spawner


def claude(
    *,
    cwd: str | os.PathLike[str] = ".",
    model: str = "",
    options: ClaudeOptions | None = None,
    session_id: str = "",
    resume: str = "",
    latest: bool = False,
    fork: bool = False,
    trusted: bool | Callable[[], bool] = False,
    store: Stored | CurrentSession | None = None,
    judge: JudgeCall | None = None,
    interceptors: Interceptors | None = None,
    tools: ToolBox | None = None,
    sections: Callable[[], Iterable[PromptSection]] = tuple,
    tap: Callable[[int], Tap | None] = lambda _pid: None,
    spawner: Spawner | None = None,
    limits: AgentLimits | None = None,
    environ: Mapping[str, str] = os.environ,
    settings: Mapping[str, Any] | None = None,
    fmt: Format = "stream-json",
    **more: Any,
) -> Session:
    """A session with Claude Code, to be entered.

    * `options`, or its fields by name (`permission_mode="plan"`): what this session is to have; else `[agents.claude]` of
      config.toml, else what Claude's own settings say.
    * `resume`: the id of a conversation to go on with, `latest` the newest of the folder; `fork` leaves that one as it is.
      `session_id` is that of a new one.
    * `trusted`: whether the settings, hooks and servers of the folder count. Otherwise only the person's own do.
    * `judge`: may this call run? Asked for every call, whatever Claude's own rules allow. Without it whoever reads the turn is
      asked what Claude asks.
    * `tools`: ours that it may call; each is decided where it runs.
    * `store`: where the conversation is kept besides; one that has begun there goes on.
    * `fmt`: `text` has a process print the answer to each prompt: nothing is asked or told besides.
    """
    if fmt == "text" and (judge, interceptors, tools) != (None, None, None):
        raise BadSettings("guards and rules would not hold in text mode: nobody is asked there", who="claude")
    settings = paths.read_settings(environ) if settings is None else settings
    limits = limits or AgentLimits()
    limits = limits.but(stop_polite=limits.agent_stop, stop_term=limits.agent_stop)
    folder = os.path.realpath(os.fspath(cwd))
    chosen = _build_options(settings, options or ClaudeOptions(), more, environ, folder)
    chosen = msgspec.structs.replace(chosen, **_pick_session(chosen, store, session_id, resume, environ, latest=latest, fork=fork))
    if judge is not None and (chosen.permission_prompt_tool != "stdio" or "permission-prompt-tool" in chosen.extra):
        raise BadSettings("guards and rules would not hold: somebody else would answer what they have asked", who="claude")
    if model:
        chosen = msgspec.structs.replace(chosen, model=model)
    if chosen.timeout:  # 0 is the usual (spec agents 1.8)
        limits = limits.but(agent_turn=chosen.timeout if chosen.timeout > 0 else None)
    context = ClaudeLaunch(
        cwd=folder,
        options=chosen,
        trusted=trusted if callable(trusted) else lambda: trusted,
        environ=environ,
        limits=limits,
        spawner=spawner,
        judge=judge,
        interceptors=interceptors or NoInterceptors(),
        tools=tools,
        sections=sections,
        tap=tap,
        program=read_agent_settings(settings).claude.path,
    )
    return Session(Claude(context) if fmt == "stream-json" else TextClaude(context), store=store, limits=limits)


def _build_options(
    settings: Mapping[str, Any], options: ClaudeOptions, more: Mapping[str, Any], environ: Mapping[str, str], folder: str
) -> ClaudeOptions:
    """The person's, then the caller's."""
    said = read_agent_settings(settings).claude
    config = ClaudeDefaults(
        model=said.model,
        effort=said.effort,
        permission_mode=said.permission_mode or MODES[0],
        allowed_tools=said.allowed_tools,
        own_hooks=said.hooks,
        env={name: environ[name] for name in said.env if name in environ},
    )
    return merge_options(config, msgspec.structs.replace(options, **more), cwd=folder)


def _pick_session(
    options: ClaudeOptions,
    store: Stored | CurrentSession | None,
    session_id: str,
    resume: str,
    environ: Mapping[str, str],
    *,
    latest: bool,
    fork: bool,
) -> dict[str, Any]:
    """Which one: what the caller says, else where the stored one is, else a new one with the id of the stored."""
    if resume or latest:
        return {"session_id": resume, "resume": bool(resume), "continue_last": latest and not resume, "fork": fork}
    if session_id:
        return {"session_id": session_id, "resume": False}
    if options.session_id or options.continue_last:
        return {}
    stored = store.session if isinstance(store, CurrentSession) else store
    if stored is None:
        return {"session_id": str(uuid4())}
    if not stored.leaf:
        return {"session_id": stored.meta.agent_session or stored.id, "resume": bool(stored.meta.agent_session)}
    if stored.meta.agent not in ("", Claude.name):
        hint = f"go on with it by --agent {stored.meta.agent}, or begin another"
        raise BadSession(f"its conversation is with {stored.meta.agent}, and Claude knows nothing of it", who=stored.id, hint=hint)
    known = stored.meta.agent_session or stored.id
    return {"session_id": known, "resume": _has_answered(stored) or _is_known(known, environ)}


def _has_answered(stored: Stored) -> bool:
    return any(isinstance(message, AssistantMessage) for message in stored.read_messages())


def _is_known(id: str, environ: Mapping[str, str]) -> bool:
    """Whether Claude has it: a prompt that a guest refused, or that came to nothing, may never have got there."""
    from serai.agents.drivers.claude.transcripts.reader import Transcripts  # seldom needed

    try:
        return bool(Transcripts(environ=environ).resolve(id))
    except SeraiError:
        return False
