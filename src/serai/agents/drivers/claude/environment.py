"""What Claude Code may know of our environment (spec agents 2.2, design rule 13)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from serai.agents.drivers.claude.options import Options
from serai.wire.child_environment import agent_environment

__all__ = ["DROPPED", "KEPT", "KEPT_WITH", "LABEL", "environment", "path_without"]

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


def environment(base: Mapping[str, str], options: Options, cwd: str | os.PathLike[str]) -> dict[str, str]:
    """The child's whole environment: ours as far as it may be known, then what was said for it, which wins."""
    chosen = agent_environment(base, keep=_kept({**base, **options.env}), drop=DROPPED)
    if "PATH" in chosen:
        chosen["PATH"] = path_without(chosen["PATH"])
    return {**chosen, **options.env, "PWD": os.fsdecode(cwd), **_OURS}


def path_without(path: str) -> str:
    """A PATH without the folders of a project's packages: what npm or bun puts in front is not what a person has installed."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if not {_NODE, _BUN} & set(entry.split(os.sep)))


def _kept(env: Mapping[str, str]) -> Iterator[str]:
    yield from KEPT
    for switch, patterns in KEPT_WITH.items():
        if env.get(switch, "").strip().lower() in ("1", "true", "yes", "on"):  # as Claude reads it
            yield from patterns
