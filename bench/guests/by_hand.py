"""A guest without the SDK, as short as can be: the yardstick for what the SDK costs."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
for frame in (
    {"type": "hello", "name": "echo", "version": "1"},
    {"type": "register_tool", "name": "echo", "schema": SCHEMA},
    {"type": "ready"},
):
    sys.stdout.write(json.dumps(frame) + "\n")
sys.stdout.flush()
for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "shutdown":
        break
    if frame["type"] == "tool_call":
        content = [{"type": "text", "text": frame["args"]["text"]}]
        sys.stdout.write(json.dumps({"type": "tool_result", "id": frame["id"], "content": content}) + "\n")
        sys.stdout.flush()
