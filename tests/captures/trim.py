"""Makes the captures here from recordings of the real program: `python tests/captures/trim.py FOLDER` reads FOLDER/claude-*.jsonl.

A capture is a file of JSON lines with `dir`: `meta` (the first has the arguments, the last how it exited), `out` and `err` (what
the program wrote), `in` (what its host wrote; `eof`: the host closed it). `serai.testing.claude` replays them. What is left out:
times, the environment, long lists that differ between machines, most of what is null, the middle of long texts. Ids become short
ones, by the order in which they come, so that running this again changes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "claude"
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?:msg|toolu|req)_[0-9a-f]{10,}")
LONGEST = 400  # characters of one text
LISTS = frozenset(("agents", "commands", "models", "plugins", "skills", "slash_commands", "terminal_slash_commands"))
DROPPED = frozenset(  # what tells of the machine or of money, and no neutral event needs
    (
        "account",
        "additional_directories",
        "analytics_disabled",
        "apiKeySource",
        "available_output_styles",
        "cacheCreationEphemeral1hInputTokens",
        "cacheCreationEphemeral5mInputTokens",
        "cache_creation",
        "canonicalModel",
        "context_management",
        "costBasis",
        "current_permission_mode",
        "fallback_credit",
        "fast_mode_disabled_reason",
        "fast_mode_state",
        "feedback_mode",
        "first_content_frame_ms",
        "first_request_cache_read_input_tokens",
        "first_request_input_tokens",
        "ide_rc_auto_enable_gate",
        "inference_geo",
        "iterations",
        "memory_paths",
        "messaging_socket_path",
        "original_cwd",
        "other_hook_ask_outranks_host",
        "output_style",
        "output_tokens_details",
        "per_turn_effort_active",
        "pid",
        "product_feedback_disabled",
        "provider",
        "remote_control_auto_connect_default",
        "remote_control_auto_enable",
        "remote_control_auto_on_by_default",
        "remote_control_available",
        "request_sent_wall_ms",
        "safety_stops",
        "server_tool_use",
        "service_tier",
        "speed",
        "subagent_stats",
        "thinkingTokens",
        "thinking_display",
        "time_to_request_ms",
        "timestamp",
        "ttft_ms",
        "ttft_stream_ms",
        "ultrathink_available",
        "ultrathink_typed_raises",
        "user_output_styles_dir",
        "webSearchRequests",
    )
)
NULLS = frozenset(("hooks", "matcher", "session_id", "stop_reason"))  # of the empty ones, these are kept as they were
ZEROS = frozenset(("cache_creation_input_tokens", "cache_read_input_tokens"))
BLOCKS = (("thinking", "thinking"), ("tool_use_id", "tool_result"), ("input", "tool_use"), ("text", "text"))


class Ids:
    """Ids in short, by the order in which they come: `u1`, `msg_1`, `toolu_1`, …"""

    def __init__(self) -> None:
        self._short: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def shortened(self, text: str) -> str:
        return ID.sub(lambda found: self._of(found[0]), text)

    def _of(self, id: str) -> str:
        if id not in self._short:
            kind = next((kind for kind in ("msg_", "toolu_", "req_") if id.startswith(kind)), "u")
            self._counts[kind] += 1
            self._short[id] = f"{kind}{self._counts[kind]}"
        return self._short[id]


def main(folder: str) -> None:
    HERE.mkdir(exist_ok=True)
    for path in sorted(Path(folder).glob("claude-*.jsonl")):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        rows = list(convert_sdk_rows(rows)) if any(row["dir"] == "event" for row in rows) else rows
        ids = Ids()
        text = "".join(json.dumps(trim_row(row, ids), ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        (HERE / path.name.removeprefix("claude-")).write_text(text, "utf-8")


def trim_row(row: dict[str, Any], ids: Ids) -> dict[str, Any]:
    if row["dir"] != "meta":
        return {"dir": row["dir"], "eof": True} if row.get("eof") else {"dir": row["dir"], "line": trim(row["line"], ids)}
    if "cmd" in row:
        return {"dir": "meta", "cmd": ["claude", *(ids.shortened(word) for word in row["cmd"][1:])]}
    return {"dir": "meta", **{key: row[key] for key in ("note", "exit") if key in row}}


def trim(value: Any, ids: Ids, key: str = "") -> Any:
    match value:
        case dict():
            kept = {name: each for name, each in value.items() if name not in DROPPED and (each is not None or name in NULLS)}
            return {name: trim(each, ids, name) for name, each in kept.items() if not (each == 0 and name in ZEROS)}
        case list() if key in LISTS or (key in ("tools", "capabilities") and value and isinstance(value[0], str)):
            return []
        case list():
            return [trim(each, ids) for each in value]
        case str() if len(value) > LONGEST and key != "partial_json":
            return ids.shortened(f"{value[: LONGEST // 2]}… ({len(value)} characters) …{value[-LONGEST // 4 :]}")
        case str():
            return ids.shortened(value)
    return value


def convert_sdk_rows(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the vendor's own SDK handed on, put back into the shape of the wire: it was recorded behind the SDK's parser."""
    yield {"dir": "meta", "cmd": ["claude", "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]}
    yield {"dir": "in", "line": {"type": "control_request", "request_id": "init-1", "request": {"subtype": "initialize"}}}
    yield {"dir": "in", "line": {"type": "user", "message": {"role": "user", "content": "go"}}}
    reply = {"subtype": "success", "request_id": "init-1", "response": {"commands": []}}
    yield {"dir": "out", "line": {"type": "control_response", "response": reply}}
    for row in rows:
        if row["dir"] == "event":
            yield {"dir": "out", "line": frame(row["line"])}
        elif row["dir"] == "approval-callback":
            yield from approval(row["line"])
    yield {"dir": "in", "eof": True}
    failed = rows[-1]["line"]["is_error"]
    yield {"dir": "meta", "exit": int(failed)}


def frame(line: dict[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in line.items() if key != "class"}
    match line["class"]:
        case "SystemMessage":
            return dict(line["data"])
        case "StreamEvent":
            return {"type": "stream_event", **fields}
        case "AssistantMessage":
            message = {"id": line["message_id"], "type": "message", "role": "assistant", "model": line["model"]}
            message |= {"content": blocks(line["content"]), "stop_reason": line["stop_reason"], "usage": line["usage"]}
            rest = {key: line[key] for key in ("parent_tool_use_id", "session_id", "uuid")}
            return {"type": "assistant", "message": message, **rest, **({"error": line["error"]} if line["error"] else {})}
        case "UserMessage":
            rest = {key: line[key] for key in ("parent_tool_use_id", "uuid", "tool_use_result")}
            return {"type": "user", "message": {"role": "user", "content": blocks(line["content"])}, **rest}
        case "ResultMessage":
            usage = {"modelUsage": fields.pop("model_usage")}
            return {"type": "result", **{key: value for key, value in fields.items() if value is not None}, **usage}
    raise ValueError(f"an event of class {line['class']} has no frame here")


def blocks(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": next(kind for key, kind in BLOCKS if key in block), **block} for block in content]


def approval(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    request = {"subtype": "can_use_tool", "tool_name": line["tool"], "input": line["input"]}
    call = line["ctx"].partition("tool_use_id='")[2].partition("'")[0]
    yield {"dir": "out", "line": {"type": "control_request", "request_id": "ask-1", "request": {**request, "tool_use_id": call}}}
    answer = {"subtype": "success", "request_id": "ask-1", "response": {"behavior": "allow", "updatedInput": line["input"]}}
    yield {"dir": "in", "line": {"type": "control_response", "response": answer}}


if __name__ == "__main__":
    main(sys.argv[1])
