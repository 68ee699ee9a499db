"""What Claude Code may know of our environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serai.agents.drivers.claude.options import (
    KEPT_WITH,
    ClaudeDefaults,
    ClaudeOptions,
    build_environment,
    merge_options,
    strip_package_folders,
)
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

OURS = {
    "PWD": "/work",
    "CLAUDE_CODE_ENTRYPOINT": "serai",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    "CLAUDE_CODE_STARTUP_FAILURE_RESULTS": "1",
}


def build(base: dict[str, str], **said: str) -> dict[str, str]:
    """What it gets of that, besides what we always set."""
    found = build_environment(base, ClaudeOptions(env=said), "/work")
    assert {name: found.pop(name) for name in OURS} == OURS
    return found


@pytest.mark.req("agents.scenario.A7")
def test_the_cleaned_environment_keeps_its_path_but_for_the_packages_of_projects() -> None:
    entries = [
        "/usr/bin",
        "/p/node_modules/.bin",
        "/home/me/.bun/bin",
        "/home/me/.bundle/bin",
        "/opt/claude/bin",
        "",
        "/x/node_modules",
    ]
    found = build({"PATH": ":".join(entries), "HOME": "/h", "LANG": "C.UTF-8"})
    assert found == {"PATH": "/usr/bin:/home/me/.bundle/bin:/opt/claude/bin:", "HOME": "/h", "LANG": "C.UTF-8"}
    whole = build_environment(dict(os.environ), ClaudeOptions(), "/work")
    assert whole["PATH"] == strip_package_folders(os.environ["PATH"])
    assert build_environment({}, ClaudeOptions(), "/work") == OURS


@pytest.mark.req("agents.scenario.A8", "agents.rule.55")
def test_what_is_said_overrides_and_adds_the_run_last() -> None:
    base = {"A": "base", "B": "base", "C": "base", "PWD": "/else", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    options = merge_options(
        ClaudeDefaults(env={"B": "config", "C": "config", "D": "config"}), ClaudeOptions(env={"C": "run", "E": "run"})
    )
    assert build_environment(base, options, "/work") == {"A": "base", "B": "config", "C": "run", "D": "config", "E": "run"} | OURS
    assert base["B"] == "base"


@pytest.mark.req("agents.scenario.A9")
def test_it_is_not_the_session_that_we_may_be_in() -> None:
    nested = (
        "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_REMOTE", "CLAUDE_CODE_REMOTE_SESSION_ID", "SESSION_INGRESS_URL",
        "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST", "CLAUDE_SESSION_INGRESS_TOKEN_FILE", "CLAUDE_CODE_MESSAGING_TOKEN",
        # what the real program gives its tools besides
        "AI_AGENT", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_EXECPATH", "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_SESSION_ATTENDED", "CLAUDE_EFFORT", "CLAUDE_PID",
        # descriptors that it does not have
        "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR", "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    )  # fmt: skip
    mine = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "9", "CLAUDE_CONFIG_DIR": "/c", "CLAUDE_CODE_OAUTH_TOKEN": "t", "ANTHROPIC_MODEL": "m"}
    found = build(dict.fromkeys(nested, "x") | mine | {"CLAUDE_CODE_ENTRYPOINT": "cli", "NODE_PATH": "x", "BUN_INSTALL": "x"})
    assert found == mine
    assert build({}, CLAUDE_EFFORT="low") == {"CLAUDE_EFFORT": "low"}  # what is said for it counts all the same


@pytest.mark.req("agents.rule.56")
def test_of_credentials_it_gets_those_that_it_needs() -> None:
    needs = {
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_AUTH_TOKEN": "k",
        "CLAUDE_CODE_OAUTH_TOKEN": "k",
        "HTTPS_PROXY": "http://me:word@proxy.example:3128",
        "http_proxy": "http://me:word@proxy.example:3128",
    }
    others = dict.fromkeys(
        ("OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "GOOGLE_APPLICATION_CREDENTIALS",
         "AZURE_CLIENT_SECRET", "DATABASE_URL_PASSWORD", "NPM_TOKEN", "SSHPASS"),
        "k",
    )  # fmt: skip
    assert build(needs | others | {"DATABASE_URL": "postgres://me:word@db.example/x"}) == needs
    assert build(others, GITHUB_TOKEN="mine") == {"GITHUB_TOKEN": "mine"}


@pytest.mark.req("agents.rule.56")
@pytest.mark.parametrize("switch", KEPT_WITH)
def test_another_clouds_are_given_only_when_its_models_are_asked_for(switch: str) -> None:
    clouds = {"AWS_SECRET_ACCESS_KEY": "k", "GOOGLE_APPLICATION_CREDENTIALS": "k", "AZURE_CLIENT_SECRET": "k"}
    clouds |= {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer k"}
    own = {"AWS": "AWS_", "GOO": "GOOGLE_", "AZU": "AZURE_", "OTE": "OTEL_"}[KEPT_WITH[switch][0][:3]]
    wanted = {name: "k" if own != "OTEL_" else clouds[name] for name in clouds if name.startswith(own)}
    for said in ("1", "true"):
        assert build(clouds | {switch: said}) == wanted | {switch: said}
        assert build(clouds, **{switch: said}) == wanted | {switch: said}
    for said in ("", "0", "false"):
        assert build(clouds | {switch: said}) == {switch: said}


@pytest.mark.req("agents.edge.21")
async def test_odd_values_and_paths_reach_the_child_as_they_are(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    values = {"ODD": "a=b\nc==d", "BYTES": os.fsdecode(b"\xff\xfe"), "EMPTY": ""}
    cwd = os.fsdecode(folder)
    env = build_environment({"PATH": os.environ["PATH"], **values}, ClaudeOptions(env={"SAID": "x=\ny"}), cwd)
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=["env", "-0"], env=env, cwd=cwd, stdin="null"))
        said = child.drain_noise(child.stdout)
        await child.exited
        said.drain()
    got = dict(entry.split(b"=", 1) for entry in said.last().split(b"\0") if entry)
    assert got[b"PWD"] == folder
    assert {name: got[os.fsencode(name)] for name in values} == {name: os.fsencode(value) for name, value in values.items()}
    assert got[b"SAID"] == b"x=\ny"
