"""What may be said of a session with Claude Code (spec agents 1.17, 1.18, 2.3). All has a default; the folder is not in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from serai.agents.driver import Capabilities
from serai.agents.drivers.claude import settings

__all__ = ["BYPASS", "CAPABILITIES", "MODES", "Config", "Options", "merged", "without_project"]

BYPASS = "bypassPermissions"
MODES = ("default", "acceptEdits", "auto", BYPASS, "manual", "dontAsk", "plan")  # of `--permission-mode` (spec agents 2.3)
_BUFFER = 100  # events (spec agents 1.18)

# What Claude Code can do when it is driven by stream-json (spec agents 3.10), as seen with 2.1.325.
CAPABILITIES = Capabilities(
    deltas=True, approvals=True, questions=True, interrupt=True, multi_turn=True, fork=True, choose_id=True, steer=True,
    switch_model=True, modes=True, compact=True, background=True, images=True, guards="every-call", rewrite=True,
)  # fmt: skip


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session's. Empty means that nothing was said: then Claude's own settings count."""

    # which program (spec agents 2.1)
    path: str = ""
    use_bundled: bool = False  # only one that came with a package of Python's
    use_global: bool = False  # only one that is installed for the person or the machine

    model: str = ""
    fallback_model: str = ""
    effort: str = ""
    max_turns: int = 0
    max_budget: float = 0.0  # US dollars
    timeout: float | None = None  # seconds for a turn; ours to watch, Claude has no flag for it
    system_prompt: str = ""  # instead of Claude's own
    append_system_prompt: str = ""
    json_schema: Mapping[str, Any] | None = None  # of its final answer

    # which conversation
    session_id: str = ""  # a new one of this id, which must be a UUID; with `resume` one that there is
    resume: bool = False
    resume_at: str = ""  # only up to this message
    continue_last: bool = False  # the newest of the folder
    fork: bool = False  # leave that conversation as it is, and go on in a copy
    fork_id: str = ""  # of the copy
    persist: bool = True  # keep it on disk

    # what it may do
    permission_mode: str = ""
    permission_prompt_tool: str = "stdio"  # who is asked; `stdio`: we are
    permission_prompts: Literal["", "host", "none"] = ""
    tools: tuple[str, ...] | None = None  # of its own tools these; None: all
    allowed_tools: tuple[str, ...] = ()  # rules such as `Bash(git log:*)` that need no approval
    disallowed_tools: tuple[str, ...] = ()
    add_dirs: tuple[str, ...] = ()
    mcp_servers: Mapping[str, Any] = {}
    strict_mcp: bool = False  # no other servers than these
    serai_tools: bool = False  # offer our tools as the server `serai`, inside the control protocol

    # where its settings come from
    settings: str = ""  # the path of a file, or JSON
    setting_sources: tuple[str, ...] | None = None  # of user, project, local; None: all, (): none
    own_hooks: bool = False  # under our guards: hooks of its settings run all the same, and may change what was judged
    ask_rule: bool = False  # make sure that questions are asked; for some builds of 2.1 (spec agents 2.3)

    # what it tells
    partial: bool = True  # text in pieces
    hook_events: bool = False
    replay: bool = False
    subagent_text: bool = False

    env: Mapping[str, str] = {}
    extra: Mapping[str, str | None] = {}  # flags that have no name here, without their dashes; None: a flag without a value
    metadata: Mapping[str, str] = {}  # stamped on what is asked of a surface; Claude never sees it (spec agents 1.17)


class Config(Options, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for all sessions of a service (spec agents 1.18).

    Here `default` is the permission mode of one who did not choose: it stands for whatever Claude's settings say.
    """

    permission_mode: str = MODES[0]
    buffer: int = _BUFFER  # events that nobody has read yet; 0 or less means the default

    def __post_init__(self) -> None:
        if self.buffer <= 0:
            msgspec.structs.force_setattr(self, "buffer", _BUFFER)


def merged(config: Options, run: Options, *, cwd: str | os.PathLike[str] = ".") -> Options:
    """What counts for one run: its own value where it says one, else the configured (spec agents 1.17).

    Variables and settings are merged, the run's winning: two `--settings` would not be. Nobody's file is changed.
    """
    usual = Options()
    said = {name: value for name in Options.__struct_fields__ if (value := getattr(run, name)) != getattr(usual, name)}
    found = {name: said.get(name, getattr(config, name)) for name in Options.__struct_fields__}
    found["env"] = {**config.env, **run.env}
    found["metadata"] = {**config.metadata, **run.metadata}
    found["settings"] = settings.merged(config.settings, run.settings, cwd=cwd)
    if "permission_mode" not in said and config.permission_mode == MODES[0]:
        found["permission_mode"] = ""  # else the flag would overrule the settings' own `defaultMode` (spec agents 2.3)
    if "session_id" in said or "continue_last" in said:  # the run chose its conversation: nothing of another is left
        for name in ("session_id", "resume", "resume_at", "continue_last", "fork", "fork_id"):
            found[name] = getattr(run, name)
    return Options(**found)


def without_project(options: Options) -> Options:
    """For a folder that nobody trusts: neither its settings nor its hooks, servers, agents and memory count (design rule 12)."""
    sources = ("user",) if options.setting_sources is None else options.setting_sources
    return msgspec.structs.replace(options, setting_sources=tuple(source for source in sources if source == "user"))
