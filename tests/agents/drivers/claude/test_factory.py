"""What the program is really started with, when a session is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import serai
from serai.agents.drivers.claude.options import ClaudeOptions
from serai.errors import BadSettings, NoAgent, NotAllowed, SeraiError
from serai.testing.claude.script import Script, ScriptedClaude

pytestmark = pytest.mark.loops


@pytest.fixture
def claude(tmp_path: Path) -> ScriptedClaude:
    return ScriptedClaude(tmp_path / "bin", Script().init().text("done").result("done"))


def create(claude: ScriptedClaude, tmp_path: Path, **said: Any) -> serai.Session:
    (tmp_path / "project").mkdir(exist_ok=True)
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "SERAI_HOME": str(tmp_path / "serai")}
    options = said.pop("options", ClaudeOptions(path=str(claude.path)))
    return serai.agent("claude", cwd=tmp_path / "project", environ=environ | said.pop("environ", {}), options=options, **said)


@pytest.mark.req("agents.rule.58")
async def test_a_project_that_is_not_trusted_brings_no_settings(claude: ScriptedClaude, tmp_path: Path) -> None:
    async with create(claude, tmp_path) as session:
        await session.turn("hello").result()
    assert claude.given().option("--setting-sources") == "user"
    async with create(claude, tmp_path, trusted=True) as session:
        await session.turn("hello").result()
    assert claude.given(1).option("--setting-sources") is None


@pytest.mark.parametrize("prompt", ["--help", "-x", "/clear", "y" * (1 << 20)], ids=["flag", "dash", "slash", "1 MB"])
async def test_a_prompt_goes_over_stdin_and_never_on_the_command_line(claude: ScriptedClaude, tmp_path: Path, prompt: str) -> None:
    async with create(claude, tmp_path) as session:
        await session.turn(prompt).result()
    given = claude.given()
    assert not any(prompt in word for word in given.argv)
    [said] = [frame["message"]["content"] for frame in given.frames if frame["type"] == "user"]
    assert said == prompt or said == [{"type": "text", "text": prompt}]


@pytest.mark.parametrize("prompt", ["", " \n"])
async def test_an_empty_prompt_is_rejected_and_not_sent(claude: ScriptedClaude, tmp_path: Path, prompt: str) -> None:
    async with create(claude, tmp_path) as session:
        with pytest.raises((SeraiError, ValueError), match="empty"):
            await session.turn(prompt).result()
    assert not any(frame["type"] == "user" for start in range(claude.starts) for frame in claude.given(start).frames)


async def test_what_cannot_be_is_told_before_anything_starts(
    claude: ScriptedClaude, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = str(claude.path)
    for options, error in (
        (ClaudeOptions(path=path, permission_mode="bypassPermissions"), NotAllowed),
        (ClaudeOptions(path=path, env={"A": "\0"}), BadSettings),
        (ClaudeOptions(path=path, session_id="no-uuid"), BadSettings),
        (ClaudeOptions(path=f"{path}-missing"), NoAgent),
    ):
        with pytest.raises(error):
            async with create(claude, tmp_path, options=options) as session:
                await session.turn("hello").result()
    assert claude.starts == 0


async def test_the_child_has_our_label_and_none_of_our_secrets(claude: ScriptedClaude, tmp_path: Path) -> None:
    async with create(claude, tmp_path, environ={"GITHUB_TOKEN": "t", "ANTHROPIC_API_KEY": "k", "CLAUDECODE": "1"}) as session:
        await session.turn("hello").result()
    names = set(claude.given().env)
    assert {"ANTHROPIC_API_KEY", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SDK_READS_SESSION_STATE"} < names
    assert not {"GITHUB_TOKEN", "CLAUDECODE"} & names
