"""A `claude` that pours a stream out: it tells its version, answers the one question that every host asks first, waits for the
prompt, and then splices a file into its output, until its input ends. The kernel moves the pages: it shares the core with the host
that is measured, and what it costs itself should be next to nothing.

Nothing here needs Serai: the peers' Python imports it too.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["STREAM", "write"]

STREAM = "BENCH_STREAM"  # the variable that names the file
_PROGRAM = f"""\
#!{sys.executable} -IS
import json, os, sys
if "--version" in sys.argv or "-v" in sys.argv:
    print("2.1.325 (Claude Code)")
    sys.exit()
asked = json.loads(sys.stdin.buffer.readline())
answer = {{"subtype": "success", "request_id": asked["request_id"], "response": {{}}}}
os.write(1, json.dumps({{"type": "control_response", "response": answer}}).encode() + b"\\n")
sys.stdin.buffer.readline()
stream = os.open(os.environ["{STREAM}"], os.O_RDONLY)
while os.splice(stream, 1, 1 << 20):
    pass
while sys.stdin.buffer.read(65536):
    pass
"""


def write(folder: str) -> str:
    """Its path."""
    program = Path(folder, "claude")
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    return str(program)
