"""A `claude` that pours a stream out: it tells its version, answers the one question that every host asks first, waits for the
prompt, and then is `cat` of a file until its input ends.

Nothing here needs Serai: the peers' Python imports it too.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["STREAM", "write"]

STREAM = "BENCH_STREAM"  # the variable that names the file
# The request's id is made up by the host; the answer must carry it.
_PROGRAM = f"""\
#!/bin/sh
case "$*" in *--version*|-v) echo "2.1.325 (Claude Code)"; exit;; esac
read -r line
id=${{line#*'"request_id":'}}
id=${{id#*'"'}}
id=${{id%%'"'*}}
printf '{{"type":"control_response","response":{{"subtype":"success","request_id":"%s","response":{{}}}}}}\\n' "$id"
read -r line
cat "${STREAM}"
exec cat > {os.devnull}
"""


def write(folder: str) -> str:
    """Its path."""
    program = Path(folder, "claude")
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    return str(program)
