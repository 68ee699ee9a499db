"""A piglet guest that still asks its host something when its input has ended is judged like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.testing.conformance import checker

PROGRAM = """
import json, os

host, us = os.fdopen(3, "rb"), os.fdopen(4, "w", buffering=1)

def send(**message):
    us.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")

for line in host:
    try:
        ask = json.loads(line)
        id, method = ask.get("id"), ask.get("method")
    except (ValueError, RecursionError, AttributeError):
        continue
    if id is None or not method:
        continue
    if method == "initialize":
        send(id=id, result={"name": "late", "version": "1"})
    elif method == "shutdown":
        send(id=id, result=None)
        break
    else:
        send(id=id, error={"code": -32601, "message": "unknown method"})
send(id=1, method="host/publish", params={"topic": "late", "data": "farewell"})
"""


@pytest.mark.slow
def test_a_guest_whose_last_word_is_a_question_passes(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("name: late\nversion: '1'\nruntime: python\nentry: late.py\n")
    (tmp_path / "late.py").write_text(PROGRAM)
    report = checker.check(tmp_path)
    assert report.ok, [(finding.rule, finding.why) for finding in report.of("failed")]
