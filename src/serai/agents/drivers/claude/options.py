"""The options of a session with Claude Code (spec agents 1.17, 1.18, 2.3). All have a default; the folder is not among them.

Also what is given to Claude Code with `--settings` (one value, the path of a file or JSON, merged in memory; files stay as they
are), and the environment of its process (spec agents 2.2, design rule 13).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from serai import paths
from serai.agents.driver import Capabilities
from serai.errors import BadSettings
from serai.limits import MIB
from serai.wire.process import build_agent_env

ASK_RULE = "AskUserQuestion"
_MOST = 1 * MIB  # bytes of a file of settings


def merge_settings(base: str, over: str, *, cwd: str | os.PathLike[str] = ".") -> str:
    """Both as one: lists are joined as Claude joins those of its own sources, so that no rule is lost; else `over` wins."""
    if not (base.strip() and over.strip()) or base == over:
        return over if over.strip() else base
    return _to_json(_merge(_require_settings(base, cwd), _require_settings(over, cwd)))


def add_ask_rule(settings: str, *, cwd: str | os.PathLike[str] = ".") -> str:
    """The same with a rule that questions are asked, for builds that answered them themselves (spec agents 2.3).

    What cannot be read, or has another shape than it should, is passed on as it is: Claude says what is wrong with it.
    """
    if not settings.strip():
        return _to_json({"permissions": {"ask": [ASK_RULE]}})
    try:
        found = _read(settings, cwd)
    except ValueError:
        return settings
    permissions = found.get("permissions", {})
    rules = permissions.get("ask", []) if isinstance(permissions, dict) else None
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules) or ASK_RULE in rules:
        return settings
    return _to_json({**found, "permissions": {**permissions, "ask": [*rules, ASK_RULE]}})


def _require_settings(settings: str, cwd: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return _read(settings, cwd)
    except ValueError as error:
        where = "" if _is_json(settings) else f" of {settings}"
        hint = "give the path of a file with a JSON object, or the object itself"
        raise BadSettings(f"the settings{where} cannot be merged: {error}", who="claude", hint=hint) from None


def _read(settings: str, cwd: str | os.PathLike[str]) -> dict[str, Any]:
    """What it says. `ValueError` without the text itself: it may hold a key."""
    try:
        text: str | bytes = settings if _is_json(settings) else paths.read_regular_file(os.path.join(cwd, settings), _MOST)
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} in line {error.lineno}") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    except (RecursionError, UnicodeDecodeError):
        raise ValueError("it is no JSON that can be read") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  (the file is wrong, not the call)
    return found


def _is_json(settings: str) -> bool:
    """As Claude tells the two apart."""
    return settings.strip().startswith("{")


def _merge(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {
            key: _merge(base[key], over[key]) if key in base and key in over else {**base, **over}[key] for key in {**base, **over}
        }
    if isinstance(base, list) and isinstance(over, list):
        return base + [item for item in over if item not in base]
    return over


def _to_json(settings: dict[str, Any]) -> str:
    return json.dumps(settings, separators=(",", ":"))


BYPASS = "bypassPermissions"
MODES = ("default", "acceptEdits", "auto", BYPASS, "manual", "dontAsk", "plan")  # of `--permission-mode` (spec agents 2.3)
_BUFFER = 100  # events (spec agents 1.18)

# What Claude Code can do when it is driven by stream-json (spec agents 3.10), as seen with 2.1.325.
CAPABILITIES = Capabilities(
    deltas=True, approvals=True, questions=True, interrupt=True, multi_turn=True, fork=True, choose_id=True, steer=True,
    switch_model=True, modes=True, compact=True, background=True, images=True, guards="every-call", rewrite=True,
)  # fmt: skip


class ClaudeOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class ClaudeDefaults(ClaudeOptions, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for all sessions of a service (spec agents 1.18).

    Here `default` is the permission mode of one who did not choose: it stands for whatever Claude's settings say.
    """

    permission_mode: str = MODES[0]
    buffer: int = _BUFFER  # events that nobody has read yet; 0 or less means the default

    def __post_init__(self) -> None:
        if self.buffer <= 0:
            msgspec.structs.force_setattr(self, "buffer", _BUFFER)


def merge_options(config: ClaudeOptions, run: ClaudeOptions, *, cwd: str | os.PathLike[str] = ".") -> ClaudeOptions:
    """What counts for one run: its own value where it says one, else the configured (spec agents 1.17).

    Variables and settings are merged, the run's winning: two `--settings` would not be. Nobody's file is changed.
    """
    usual = ClaudeOptions()
    said = {name: value for name in ClaudeOptions.__struct_fields__ if (value := getattr(run, name)) != getattr(usual, name)}
    found = {name: said.get(name, getattr(config, name)) for name in ClaudeOptions.__struct_fields__}
    found["env"] = {**config.env, **run.env}
    found["metadata"] = {**config.metadata, **run.metadata}
    found["settings"] = merge_settings(config.settings, run.settings, cwd=cwd)
    if "permission_mode" not in said and config.permission_mode == MODES[0]:
        found["permission_mode"] = ""  # else the flag would overrule the settings' own `defaultMode` (spec agents 2.3)
    if "session_id" in said or "continue_last" in said:  # the run chose its conversation: nothing of another is left
        for name in ("session_id", "resume", "resume_at", "continue_last", "fork", "fork_id"):
            found[name] = getattr(run, name)
    return ClaudeOptions(**found)


def exclude_project(options: ClaudeOptions) -> ClaudeOptions:
    """For a folder that nobody trusts: neither its settings nor its hooks, servers, agents and memory count (design rule 12)."""
    sources = ("user",) if options.setting_sources is None else options.setting_sources
    return msgspec.structs.replace(options, setting_sources=tuple(source for source in sources if source == "user"))


LABEL = "serai"  # who started it, as its own reports have it

# Of what looks like a credential, what it needs for its work.
KEPT = (
    "ANTHROPIC_*",  # its key, its address, its models
    "CLAUDE_*",  # where its files are, and what a person has set for it; its own log-in (CLAUDE_CODE_OAUTH_TOKEN) among it
    "CLAUDE_CODE_*",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",  # the way out may have a password in it
)  # fmt: skip

# The same of another cloud's, when its models are asked for there.
KEPT_WITH = {
    "CLAUDE_CODE_USE_BEDROCK": ("AWS_*",),
    "CLAUDE_CODE_USE_MANTLE": ("AWS_*",),
    "CLAUDE_CODE_USE_ANTHROPIC_AWS": ("AWS_*",),
    "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_*", "CLOUD_ML_*", "GCLOUD_*"),
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD": ("GOOGLE_*", "CLOUD_ML_*", "GCLOUD_*"),
    "CLAUDE_CODE_USE_FOUNDRY": ("AZURE_*",),
    "CLAUDE_CODE_ENABLE_TELEMETRY": ("OTEL_*",),  # headers for its reports
}

# What would mislead it.
DROPPED = (
    "NODE_PATH", "BUN_VERSIONS", "BUN_INSTALL",  # another program's libraries
    # Serai may itself be started by a Claude Code: the inner one is not that session.
    "CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXECPATH", "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_SESSION_*", "CLAUDE_SESSION_ID", "CLAUDE_PID", "CLAUDE_EFFORT", "CLAUDE_JOB_DIR", "CLAUDE_BG_*",
    # Nor is it what the hooks, the plugins and the editor of that one belong to.
    "CLAUDE_PROJECT_DIR", "CLAUDE_ENV_FILE", "CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA", "CLAUDE_CODE_SSE_PORT",
    # Nor does it answer to the machine that runs that one.
    "CLAUDE_CODE_REMOTE*", "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST", "CLAUDE_SESSION_INGRESS_TOKEN_FILE", "SESSION_INGRESS_URL",
    "CLAUDE_CODE_MESSAGING_TOKEN", "CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_BRIDGE_*",
    "CLAUDE_CODE_*_FILE_DESCRIPTOR",  # it has no other descriptors than its standard ones
)  # fmt: skip

_NODE, _BUN = "node_modules", ".bun"
_OURS = {
    "CLAUDE_CODE_ENTRYPOINT": LABEL,
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",  # what it does beside turns is told, and
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",  # when nothing runs any more (spec agents 2.11)
    "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",  # what keeps it from starting comes as a result (spec agents 2.12)
}


def build_environment(base: Mapping[str, str], options: ClaudeOptions, cwd: str | os.PathLike[str]) -> dict[str, str]:
    """The child's whole environment: ours as far as it may be known, then what was said for it, which wins."""
    chosen = build_agent_env(base, keep=_iter_kept({**base, **options.env}), drop=DROPPED)
    if "PATH" in chosen:
        chosen["PATH"] = strip_package_folders(chosen["PATH"])
    return {**chosen, **options.env, "PWD": os.fsdecode(cwd), **_OURS}


def strip_package_folders(path: str) -> str:
    """A PATH without the folders of a project's packages: what npm or bun puts in front is not what a person has installed."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if not {_NODE, _BUN} & set(entry.split(os.sep)))


def _iter_kept(env: Mapping[str, str]) -> Iterator[str]:
    yield from KEPT
    for switch, patterns in KEPT_WITH.items():
        if env.get(switch, "").strip().lower() in ("1", "true", "yes", "on"):  # as Claude reads it
            yield from patterns
