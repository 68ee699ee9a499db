"""What a plugin's interpreter cannot do is an ordinary error once it is sealed. In a process of its own: there is no way back."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, sys
write = os.write
from serai.sdk import Extension
from serai.sdk.adapters.yoi import exports
from serai.sdk.adapters.yoi import seal
ext = Extension("some")

@ext.tool
def do(code: str) -> str:
    found = {}
    exec(code, found)
    return str(found.get("value", "done"))

exported = exports(ext)
seal()
exported.start("null")
for line in json.loads(sys.argv[1]):
    write(1, exported.handle_tool("do", json.dumps({"code": line})).encode() + b"\\n")
write(1, exported.handle_tool("do", '{"cod": 1}').encode() + b"\\n")
"""

REFUSED = {
    "import time; time.time()": "OSError: a plugin has no clock",
    "import time; time.sleep(1)": "OSError: a plugin has no clock",
    "import os; os.urandom(4)": "OSError: a plugin has no randomness",
    "import uuid; uuid.uuid4()": "OSError: a plugin has no randomness",
    "open('/etc/passwd')": "OSError: a plugin has no files",
    "import pathlib; pathlib.Path('x').read_text()": "OSError: a plugin has no files",
    "import os; os.listdir('.')": "OSError: a plugin has no files",
    "import sqlite3": "ModuleNotFoundError: sqlite3 was not imported when the plugin was built",
    "import nothing_of_that_name": "ModuleNotFoundError: nothing_of_that_name was not imported",
}
ALLOWED = {
    "print('hello')": "done",
    "import sys; sys.stderr.write('hello')": "done",
    "import logging; logging.getLogger('x').error('hello')": "done",
    "import json; value = json.dumps([1])": "[1]",
    "import sys, serai; value = []; sys.addaudithook(lambda event, about: value.append(about) if event == 'open' else None)\n"
    "try: serai.SeraiError\nexcept ImportError: pass": "[]",
    "import re, math, datetime, hashlib; value = hashlib.sha256(b'').hexdigest()[:4]": "e3b0",
    "import traceback\ntry: 1 / 0\nexcept Exception: value = 'ZeroDivisionError' in traceback.format_exc()": "True",
}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, str]]:
    lines = [*REFUSED, *ALLOWED]
    command = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    texts = [json.loads(line) for line in ran.stdout.splitlines()]
    return dict(zip([*lines, "bad"], texts, strict=True))


@pytest.mark.parametrize("line", REFUSED)
@pytest.mark.req("yoi.rule.095")
def test_what_would_trap_raises(answers: dict[str, dict[str, str]], line: str) -> None:
    assert answers[line]["summary"] == "tool error: failed"
    assert REFUSED[line] in json.loads(answers[line]["content"])["error"]["message"]


@pytest.mark.parametrize("line", ALLOWED)
def test_what_does_no_harm_goes_on(answers: dict[str, dict[str, str]], line: str) -> None:
    assert answers[line]["summary"] == ALLOWED[line]


def test_what_the_sdk_imports_late_is_there(answers: dict[str, dict[str, str]]) -> None:
    assert "did you mean code?" in answers["bad"]["content"]
