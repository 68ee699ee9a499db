"""The command line of Claude Code."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.drivers.claude.launch import build_command_line, check_launch, redact_argv
from serai.agents.drivers.claude.options import ClaudeDefaults, ClaudeOptions, merge_options
from serai.errors import BadSettings, NotAllowed

ID = "3f2b8c1e-0d3a-4c67-9a51-6d3f6f1c2b10"


def line(**said: Any) -> list[str]:
    return build_command_line("/bin/claude", ClaudeOptions(**said))


def value(words: list[str], flag: str) -> str:
    [found] = [word for word in words if word.partition("=")[0] == flag]
    return found.partition("=")[2]


# -- the formats ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.38")
def test_stream_json_and_text() -> None:
    stream = ["/bin/claude", "--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
    assert line() == [*stream, "--permission-prompt-tool", "stdio", "--include-partial-messages"]
    assert line(partial=False, permission_prompt_tool="") == stream
    text = build_command_line("/bin/claude", ClaudeOptions(), fmt="text", prompt="do it")
    assert text == ["/bin/claude", "--print", "--output-format", "text", "--", "do it"]


def test_stream_json_is_the_usual_format() -> None:
    assert line() == build_command_line("/bin/claude", merge_options(ClaudeDefaults(), ClaudeOptions()), fmt="stream-json")


@pytest.mark.parametrize("prompt", ["-x", "--help", "/clear", "--", "a\nb"])
def test_in_text_format_no_prompt_is_taken_for_a_flag(prompt: str) -> None:
    words = build_command_line(
        "/bin/claude", ClaudeOptions(allowed_tools=("Bash",), add_dirs=("/a", "/b")), fmt="text", prompt=prompt
    )
    assert words[-2:] == ["--", prompt]
    assert words.index("--") == len(words) - 2


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_in_text_format_an_empty_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(BadSettings, match="the prompt is empty"):
        build_command_line("/bin/claude", ClaudeOptions(), fmt="text", prompt=prompt)


def test_in_stream_json_the_prompt_is_not_on_the_line() -> None:
    for prompt in ("-x", "/clear", "y" * (1 << 20), ""):
        assert build_command_line("/bin/claude", ClaudeOptions(), prompt=prompt) == line()


def test_text_has_nothing_that_needs_the_stream() -> None:
    options = ClaudeOptions(
        partial=True, hook_events=True, replay=True, subagent_text=True, serai_tools=True, mcp_servers={"a": {"command": "x"}}
    )
    words = build_command_line("/bin/claude", options, fmt="text", prompt="p")
    assert words[4:] == ['--mcp-config={"mcpServers":{"a":{"command":"x"}}}', "--", "p"]


@pytest.mark.req("agents.rule.03")
def test_equal_options_give_an_equal_line_and_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    for where in ("os.posix_spawn", "os.fork", "subprocess.Popen.__init__", "serai.wire.plain_process.posix_spawn"):
        monkeypatch.setattr(where, started)
    (tmp_path / "s.json").write_text('{"a":1}')
    options = ClaudeOptions(model="m", ask_rule=True, settings="s.json", mcp_servers={"b": {"command": "x"}}, serai_tools=True)
    first = build_command_line("/no/such/file", options, cwd=tmp_path)
    assert first == build_command_line("/no/such/file", options, cwd=tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s.json"]


# -- what is said -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.A2")
def test_each_is_a_flag_with_its_value() -> None:
    words = line(
        model="opus",
        fallback_model="haiku,sonnet",
        continue_last=True,
        system_prompt="You are a cook.",
        append_system_prompt="Be brief.",
        allowed_tools=("Bash(git log:*)", "Read"),
        disallowed_tools=("WebFetch", "Write"),
        permission_mode="acceptEdits",
        max_turns=7,
        max_budget=1.5,
        effort="low",
    )
    assert words[10:] == [
        "--continue",
        "--model=opus",
        "--fallback-model=haiku,sonnet",
        "--effort=low",
        "--system-prompt=You are a cook.",
        "--append-system-prompt=Be brief.",
        "--max-turns=7",
        "--max-budget-usd=1.5",
        "--allowedTools=Bash(git log:*),Read",
        "--disallowedTools=WebFetch,Write",
        "--permission-mode=acceptEdits",
    ]
    assert "--resume=abc" in line(session_id="abc", resume=True)


def test_the_other_options() -> None:
    words = line(
        hook_events=True, replay=True, subagent_text=True, partial=False, add_dirs=("/a", "/b", "/a"), persist=False,
        json_schema={"type": "object"}, permission_prompts="none", setting_sources=("user", "local"), strict_mcp=True, tools=(),
        extra={"bare": None, "debug": "api"}, permission_prompt_tool="mcp__x__y", session_id="abc", resume=True, resume_at="m1",
    )  # fmt: skip
    assert set(words[7:]) == {
        "--include-hook-events", "--replay-user-messages", "--forward-subagent-text", "--add-dir=/a", "--add-dir=/b",
        "--no-session-persistence", '--json-schema={"type":"object"}', "--permission-prompts=none", "--setting-sources=user,local",
        "--strict-mcp-config", "--tools=", "--bare", "--debug=api", "--permission-prompt-tool=mcp__x__y", "--resume=abc",
        "--resume-session-at=m1",
    }  # fmt: skip
    assert "--setting-sources=" in line(setting_sources=())
    assert "--tools=Bash,Read" in line(tools=("Bash", "Read"))


@pytest.mark.req("agents.scenario.A3")
def test_every_server_is_in_the_configuration_and_ours_beside_them() -> None:
    servers = {"files": {"command": "fs", "args": ["-r"]}, "web": {"type": "http", "url": "http://127.0.0.1:1"}}
    assert json.loads(value(line(mcp_servers=servers), "--mcp-config")) == {"mcpServers": servers}
    ours = {"serai": {"type": "sdk", "name": "serai"}}
    assert json.loads(value(line(mcp_servers=servers, serai_tools=True), "--mcp-config")) == {"mcpServers": {**servers, **ours}}
    assert json.loads(value(line(serai_tools=True), "--mcp-config")) == {"mcpServers": ours}
    assert not any("mcp" in word for word in line())
    with pytest.raises(BadSettings, match="an MCP server is called serai"):
        line(mcp_servers={"serai": {}}, serai_tools=True)
    with pytest.raises(BadSettings, match="an option is no JSON"):
        line(mcp_servers={"x": {"env": object}})


@pytest.mark.req("agents.rule.39")
def test_an_id_is_that_of_a_new_session_or_of_one_that_goes_on() -> None:
    assert "--session-id=" + ID in line(session_id=ID)
    assert "--resume=" + ID in line(session_id=ID, resume=True)
    assert not any(word.startswith("--session-id") for word in line(session_id=ID, resume=True))
    for bad in ("abc", ID[:-1], f"{{{ID}}}", ID.replace("-", ""), ID + "\n", "-" + ID):
        with pytest.raises(BadSettings, match="session id"):
            line(session_id=bad)
    assert "--resume=a name" in line(session_id="a name", resume=True)  # Claude also takes names there


def test_a_copy_may_have_an_id_of_its_own() -> None:
    copy = str(uuid4())
    words = line(session_id=ID, resume=True, fork=True, fork_id=copy)
    assert {f"--resume={ID}", "--fork-session", f"--session-id={copy}"} < set(words)
    assert {"--continue", "--fork-session"} < set(line(continue_last=True, fork=True))


@pytest.mark.parametrize(
    "said",
    [
        {"resume": True},
        {"session_id": ID, "continue_last": True},
        {"fork": True},
        {"session_id": ID, "fork": True},
        {"session_id": ID, "resume": True, "fork_id": ID},
        {"session_id": ID, "resume": True, "fork": True, "fork_id": "x"},
        {"setting_sources": ("mine",)},
        {"setting_sources": ("user,project",)},
        {"extra": {"--bare": None}},
        {"extra": {"a=b": None}},
        {"extra": {"": "x"}},
        {"extra": {"model x": None}},
        {"model": "m", "extra": {"model": "n"}},
        {"extra": {"print": None}},
        {"extra": {"permission-prompt-tool": "none"}},
        {"model": "a\0b"},
        {"extra": {"debug": "\0"}},
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(said: dict[str, Any]) -> None:
    with pytest.raises(BadSettings) as raised:
        line(**said)
    assert raised.value.who == "claude"
    assert raised.value.hint


_TEXTS = ("model", "fallback_model", "effort", "system_prompt", "append_system_prompt", "settings", "resume_at")
_LISTS = ("allowed_tools", "disallowed_tools", "add_dirs", "tools")
_WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.req("agents.rule.40")
@given(
    texts=st.fixed_dictionaries({}, optional={name: st.one_of(_WORDS, _WORDS.map("-{}".format)) for name in _TEXTS}),
    lists=st.fixed_dictionaries({}, optional={name: st.lists(_WORDS.map("--{}".format), min_size=1).map(tuple) for name in _LISTS}),
    resume=st.one_of(st.just(""), _WORDS.map("-{}".format)),
)
def test_no_value_of_a_caller_is_ever_a_word_of_its_own(texts: dict[str, str], lists: dict[str, Any], resume: str) -> None:
    words = line(**texts, **lists, session_id=resume, resume=bool(resume))
    plain = line()
    added = words[len(plain) :]
    assert words[: len(plain)] == plain
    assert all(word.partition("=")[0].removeprefix("--").replace("-", "").isalpha() and "=" in word for word in added)
    for name, said in texts.items():
        assert any(word.partition("=")[2] == said for word in added), name


def test_what_is_stamped_on_requests_is_not_on_the_line() -> None:
    said = {"chat_id": "chat-77", "platform": "pigeon", "bot_uuid": ID}
    assert line(metadata=said) == line()
    assert build_command_line("c", ClaudeOptions(metadata=said), fmt="text", prompt="p") == build_command_line(
        "c", ClaudeOptions(), fmt="text", prompt="p"
    )


@pytest.mark.req("agents.rule.57")
def test_no_mode_is_no_flag_and_one_that_there_is_not_is_told_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert line(permission_mode="") == line()
    with caplog.at_level(logging.WARNING):
        assert line(permission_mode="yolo") == line()
    assert "there is no permission mode 'yolo'" in caplog.text


# -- root, NUL, logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.edge.25")
@pytest.mark.parametrize(
    "options", [ClaudeOptions(permission_mode="bypassPermissions"), ClaudeOptions(extra={"dangerously-skip-permissions": None})]
)
def test_root_does_not_bypass_permissions_outside_a_sandbox(options: ClaudeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for env in ({}, {"IS_SANDBOX": "0"}, {"IS_SANDBOX": ""}):
        with pytest.raises(NotAllowed, match="does not run as root with all permissions bypassed") as raised:
            check_launch(options, env, "/")
        assert "IS_SANDBOX=1" in raised.value.hint
    check_launch(options, {"IS_SANDBOX": "1"}, "/")
    check_launch(ClaudeOptions(permission_mode="acceptEdits"), {}, "/")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    check_launch(options, {}, "/")


@pytest.mark.req("agents.edge.21")
@pytest.mark.parametrize(("env", "cwd"), [({"A": "b\0"}, "/"), ({"A\0": "b"}, "/"), ({}, "/a\0b")])
def test_a_nul_is_refused(env: dict[str, str], cwd: str) -> None:
    with pytest.raises(BadSettings, match="NUL"):
        check_launch(ClaudeOptions(), env, cwd)


@pytest.mark.req("agents.edge.31")
def test_a_log_has_no_value_that_is_anybodys_secret() -> None:
    secret = "hunter2-hunter2"
    words = build_command_line(
        "/bin/claude",
        ClaudeOptions(
            model="opus", system_prompt=secret, append_system_prompt=secret, settings=json.dumps({"env": {"KEY": secret}}),
            mcp_servers={"a": {"command": "x", "env": {"TOKEN": secret}, "headers": {"Authorization": secret}}},
            allowed_tools=(f"Bash(curl {secret})",), disallowed_tools=(secret,), add_dirs=(f"/{secret}",), tools=(secret,),
            json_schema={"title": secret}, extra={"betas": secret}, resume_at=secret, session_id=ID,
        ),
        fmt="text",
        prompt=f"--{secret}",
    )  # fmt: skip
    told = redact_argv(words)
    assert sum(secret in word for word in words) == 12
    assert secret not in told
    assert told.startswith("/bin/claude --print --output-format text")
    for part in (f"--session-id={ID}", "--model=opus", "--system-prompt=[15 characters]", "-- [17 characters]"):
        assert part in told
    assert redact_argv(line()) == " ".join(line())


@given(st.lists(_WORDS.filter(lambda word: not word.startswith("-"))), st.sampled_from(["--system-prompt", "--agents", "--"]))
def test_words_behind_a_flag_are_not_shown_either(words: list[str], flag: str) -> None:
    told = redact_argv(["claude", flag, *(f"{word}§" for word in words)])
    assert told.startswith(f"claude {flag}")
    assert "§" not in told
