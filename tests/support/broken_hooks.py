"""The broken hooks, each with the rule that finds it, and a good one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["TABLE", "broken", "well"]

FOLDER = Path(__file__).parents[1] / "broken_hooks"

HEAD = f"""#!{sys.executable} -S
import json, os, signal, sys
sys.path.insert(0, {str(FOLDER)!r})
from well import Well

class Hook(Well):
"""


class Broken(NamedTuple):
    """What it does otherwise than `Well`, which rules find it, whether they fail or only warn, and what is waited for in vain."""

    body: str
    failed: str = ""
    warned: str = ""
    waits: Mapping[str, float] = {}


def create(returns: str) -> str:
    return f"def create(self, box): return {returns}"


def a_file(members: str) -> str:
    return f"def file(self, box): return {members}"


TABLE = {
    # It does not answer.
    "fails": Broken("def create(self, box): sys.exit(3)", "answer"),
    "kills-itself": Broken("def create(self, box): os.kill(os.getpid(), signal.SIGKILL)", "answer"),
    "wants-arguments": Broken("def read(self): return json.loads(open(sys.argv[1]).read())", "answer"),
    "never-ends": Broken("def create(self, box): signal.pause()", "answer", waits={"run": 0.5}),
    "ignores-term": Broken(
        "def create(self, box): signal.signal(signal.SIGTERM, signal.SIG_IGN); [signal.pause() for _ in iter(int, 1)]",
        "answer",
        waits={"run": 0.5, "terminate": 0.1},
    ),
    # What it prints is no answer.
    "banner": Broken("def say(self, answer): print('minting'); super().say(answer)", "stdout"),
    "chatty": Broken("def say(self, answer): super().say(answer); print('minted')", "stdout"),
    "twice": Broken("def say(self, answer): super().say(answer); super().say(answer)", "stdout"),
    "lone-newline": Broken("def say(self, answer): print()", "stdout"),
    "array": Broken(create("[]"), "stdout"),
    "mode-is-a-number": Broken(a_file("{'mode': 0o600}"), "members"),
    "uid-is-a-string": Broken(a_file("{'uid': '1000'}"), "members"),
    "files-is-an-object": Broken(create("{'files': {'/root/token': 'x'}}"), "members"),
    "state-is-an-object": Broken(create("{'state': {'id': 'x'}}"), "members"),
    # It does not read every request.
    "waits-for-newline": Broken(
        """def read(self):
        data = b''
        while not data.endswith(b'\\n'):
            data += os.read(0, 1 << 16)
        return json.loads(data)""",
        "newline",
        waits={"run": 4.0},
    ),
    "reads-lines": Broken(
        """def read(self):
        lines = sys.stdin.read().split('\\n')[:-1]
        return json.loads(''.join(lines)) if lines else {'event': 'none'}""",
        "newline",
    ),
    "one-line": Broken("def read(self): return json.loads(sys.stdin.readline())", "any-json"),
    "reads-by-pattern": Broken(
        """def read(self):
        data = sys.stdin.read()
        event = 'box.create' if '"event":"box.create"' in data else 'box.destroy' if '"event":"box.destroy"' in data else 'none'
        return {**json.loads(data), 'event': event}""",
        "any-json",
    ),
    "wants-order": Broken("def read(self): return dict(zip(('event', 'box', 'state'), super().read().values()))", "any-json"),
    "knows-all-members": Broken(
        "def create(self, box): assert set(box) <= {'box_id', 'description'}; return super().create(box)", "any-json"
    ),
    "writes-by-hand": Broken(
        """def create(self, box):
        description = box.get('description', '')
        print('{"files":[{"path":"/etc/about","content":"%s"}]}' % description)
        sys.stdout.flush()
        os._exit(0)""",
        "any-text",
    ),
    "short-read": Broken("def read(self): return json.loads(os.read(0, 1 << 16))", "large"),
    "wants-description": Broken("def create(self, box): box['description']; return super().create(box)", "optional"),
    "wants-its-folder": Broken("def create(self, box): os.stat('wants-its-folder'); return super().create(box)", "cwd"),
    "fears-the-unknown": Broken("def unknown(self, request): sys.exit(1)", warned="unknown-event"),
    "mints-always": Broken("def unknown(self, request): return self.create(request['box'])", warned="unknown-event"),
    # What it answers with cannot be.
    "relative": Broken(a_file("{'path': 'token'}"), "paths"),
    "dot-dot": Broken(a_file("{'path': '/root/../token'}"), "paths"),
    "folder": Broken(a_file("{'path': '/root/'}"), "paths"),
    "nameless": Broken(a_file("{'path': ''}"), "paths"),
    "proc": Broken(a_file("{'path': '/proc/1/environ'}"), "paths"),
    "path-of-the-description": Broken(a_file("{'path': '/root/' + box.get('description', 'x')}"), "paths"),
    "same-path": Broken(create("{'files': [{'path': '/a', 'content': 'x'}, {'path': '/a', 'content': 'y'}]}"), warned="paths"),
    "pythonic-mode": Broken(a_file("{'mode': oct(0o600)}"), "modes"),
    "decimal-mode": Broken(a_file("{'mode': '384'}"), "modes"),
    "set-id": Broken(a_file("{'mode': '4755'}"), warned="modes"),
    "no-owner": Broken(a_file("{'uid': -1}"), "owners"),
    "high-group": Broken(a_file("{'gid': 2**32 - 1}"), "owners"),
    "no-padding": Broken(a_file("{'content': '', 'content_base64': 'aGk'}"), "contents"),
    "both-contents": Broken(a_file("{'content_base64': 'aGk='}"), warned="contents"),
    "large-state": Broken("def state(self, box): return super().state(box) * 60_000", "sizes"),
    "many-files": Broken(create("{'files': [{'path': f'/tmp/{number}'} for number in range(4097)]}"), "sizes"),
    "capitals": Broken(
        "def say(self, answer): super().say({name.title(): value for name, value in answer.items()})", warned="names"
    ),
    "more-members": Broken("def say(self, answer): super().say({**answer, 'version': 1})", warned="names"),
    "more-of-a-file": Broken(a_file("{'owner': 'root'}"), warned="names"),
    "member-twice": Broken(
        """def say(self, answer): print('{"state":"x",' + json.dumps(answer)[1:]) if answer else None""", warned="names"
    ),
    "one-state": Broken("def state(self, box): return 'sta_0123456789abcdef'", warned="own-state"),
    "one-box": Broken(
        """def create(self, box):
        os.close(os.open(__file__ + '.taken', os.O_CREAT | os.O_EXCL))
        return super().create(box)
    def destroy(self, request):
        if os.path.exists(__file__ + '.taken'):
            os.unlink(__file__ + '.taken')
        return {}""",
        "own-state",
    ),
    # It does not end well.
    "fails-at-destroy": Broken("def destroy(self, request): sys.exit(1)", "destroy"),
    "talks-at-destroy": Broken("def destroy(self, request): print('revoked'); return {}", "destroy"),
    "wants-description-at-destroy": Broken(
        "def destroy(self, request): return {'state': request['box']['description']}", "destroy"
    ),
    "fails-at-roll-back": Broken(
        "def destroy(self, request): assert 'description' not in request['box']; return super().destroy(request)", "destroy"
    ),
    "destroys-once": Broken(
        """def destroy(self, request):
        if os.path.exists(request['state']):
            sys.exit(1)
        open(request['state'], 'x').close()
        return {}""",
        warned="destroy-again",
    ),
    "prints-its-state": Broken("def destroy(self, request): print(request['state'], file=sys.stderr); return {}", "secrets"),
    "prints-its-token": Broken(
        """def create(self, box):
        answer = super().create(box)
        print('minted', answer['files'][0]['content'], file=sys.stderr)
        return answer""",
        "secrets",
    ),
    "leaves-a-child": Broken(
        "def create(self, box): import subprocess; subprocess.Popen(['sleep', '1000'], stdout=2); return super().create(box)",
        "left-behind",
        waits={"leave": 0.1},
    ),
    "leaves-a-daemon": Broken(
        "def unknown(self, request): import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True); return {}",
        "left-behind",
        waits={"leave": 0.1},
    ),
    "slow": Broken(
        "def unknown(self, request): import select; select.select([], [], [], 0.6); return {}",
        warned="in-time",
        waits={"quick": 0.5},
    ),
}


def broken(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(f"{HEAD}    {TABLE[name].body}\n\nHook().run()\n")
    path.chmod(0o755)
    return path


def well(folder: Path) -> Path:
    path = folder / "well"
    path.write_text(f"{HEAD}    pass\n\nHook().run()\n")
    path.chmod(0o755)
    return path
