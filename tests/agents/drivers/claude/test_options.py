"""What may be said of a session with Claude Code, and what counts of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.agents.drivers.claude.launch import build_command_line
from serai.agents.drivers.claude.options import MODES, ClaudeDefaults, ClaudeOptions, exclude_project, merge_options


@pytest.mark.req("agents.scenario.A1")
def test_the_default_configuration() -> None:
    config = ClaudeDefaults()
    assert (config.buffer, config.permission_mode, config.model) == (100, "default", "")


@pytest.mark.parametrize("buffer", [0, -5])
def test_a_buffer_of_nothing_is_the_usual_one(buffer: int) -> None:
    assert ClaudeDefaults(buffer=buffer).buffer == 100
    assert ClaudeDefaults(buffer=7).buffer == 7


@pytest.mark.req("agents.rule.41")
def test_what_a_run_says_replaces_what_is_configured_and_each_flag_is_there_once() -> None:
    config = ClaudeDefaults(
        model="one", permission_mode="plan", allowed_tools=("Bash",), max_turns=3, system_prompt="s", session_id="a", resume=True
    )
    run = ClaudeOptions(model="two", permission_mode="auto", allowed_tools=("Read", "Grep"), session_id="b", resume=True)
    line = build_command_line("claude", merge_options(config, run))
    assert {"--model=two", "--permission-mode=auto", "--allowedTools=Read,Grep", "--resume=b"} < set(line)
    assert {"--max-turns=3", "--system-prompt=s"} < set(line)  # of which the run says nothing
    flags = [word.partition("=")[0] for word in line if word.startswith("--")]
    assert len(flags) == len(set(flags))


def test_every_field_of_a_run_counts() -> None:
    """Whichever is added to the options later, too."""
    others: dict[str, Any] = {
        "max_turns": 2, "max_budget": 0.5, "timeout": 3.0, "json_schema": {"type": "object"}, "persist": False, "partial": False,
        "tools": ("Bash",), "setting_sources": (), "settings": '{"a":1}', "permission_prompts": "none",
        "extra": {"bare": None}, "env": {"A": "1"}, "metadata": {"chat": "1"}, "mcp_servers": {"a": {}},
        "allowed_tools": ("x",), "disallowed_tools": ("x",), "add_dirs": ("/x",),
    }  # fmt: skip
    for name in ClaudeOptions.__struct_fields__:
        usual = getattr(ClaudeOptions(), name)
        value: Any = others.get(name, not usual if isinstance(usual, bool) else "value")
        run = ClaudeOptions(**{name: value})
        found = merge_options(ClaudeDefaults(), run)
        assert getattr(found, name) == value, name
        assert msgspec.structs.replace(found, **{name: usual}) == ClaudeOptions(), name


def test_variables_and_settings_are_merged_and_files_stay(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text('{"env":{"A":"1"},"model":"m","permissions":{"deny":["Bash(rm:*)"],"ask":["Read"]}}')
    config = ClaudeDefaults(env={"A": "1", "B": "1"}, settings="profile.json", metadata={"chat": "1"})
    run = ClaudeOptions(env={"B": "2"}, settings='{"model":"n","permissions":{"deny":["Write"]}}', metadata={"bot": "2"})
    found = merge_options(config, run, cwd=tmp_path)
    assert found.env == {"A": "1", "B": "2"}
    assert found.metadata == {"chat": "1", "bot": "2"}
    assert msgspec.json.decode(found.settings) == {
        "env": {"A": "1"},
        "model": "n",
        "permissions": {"deny": ["Bash(rm:*)", "Write"], "ask": ["Read"]},  # no rule is lost
    }
    assert file.read_text().startswith('{"env":{"A":"1"}')


def test_a_run_that_chooses_its_conversation_has_nothing_of_the_configured_one() -> None:
    config = ClaudeDefaults(session_id="old", resume=True, fork=True)
    assert not merge_options(config, ClaudeOptions(continue_last=True)).fork
    assert merge_options(config, ClaudeOptions(continue_last=True)).session_id == ""
    assert merge_options(config, ClaudeOptions(model="m")).session_id == "old"


@pytest.mark.req("agents.scenario.A4")
def test_with_settings_and_no_permission_mode_there_is_no_flag_for_it() -> None:
    for config in (ClaudeDefaults(settings="/x.json"), ClaudeDefaults()):
        line = build_command_line(
            "claude",
            merge_options(config, ClaudeOptions(settings='{"permissions":{"defaultMode":"plan"}}' if not config.settings else "")),
        )
        assert any(word.startswith("--settings=") for word in line)
        assert not any(word.startswith("--permission-mode") for word in line)
    assert "--permission-mode=default" in build_command_line(
        "claude", merge_options(ClaudeDefaults(), ClaudeOptions(permission_mode="default", settings="/x"))
    )


@pytest.mark.parametrize(
    ("sources", "left"), [(None, ("user",)), ((), ()), (("project", "local"), ()), (("local", "user", "project"), ("user",))]
)
def test_of_a_folder_that_nobody_trusts_no_settings_count(sources: tuple[str, ...] | None, left: tuple[str, ...]) -> None:
    assert exclude_project(ClaudeOptions(setting_sources=sources, model="m")) == ClaudeOptions(setting_sources=left, model="m")
    assert f"--setting-sources={','.join(left)}" in build_command_line(
        "claude", exclude_project(ClaudeOptions(setting_sources=sources))
    )


@pytest.mark.req("agents.scenario.A10")
def test_the_permission_modes_there_are() -> None:
    assert set(MODES) == {"default", "acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan"}
    for mode in MODES:
        assert f"--permission-mode={mode}" in build_command_line("claude", ClaudeOptions(permission_mode=mode))
    for mode in ("Default", "yolo", "bypass", "plan "):
        assert not any("permission-mode" in word for word in build_command_line("claude", ClaudeOptions(permission_mode=mode)))
