"""The program behind `serai.testing.claude`: plays a script as Claude Code would. Standard library only, so that it starts quickly.

A script is a file of JSON lines, each with `dir`:

    meta   the first has `cmd`, the last `exit`: a status, a negative number for a signal, or "killed" (it never ends by itself)
    out    a line that it writes: `line` is an object, or a text that goes out as it stands
    err    a line on stderr
    in     a line that the host writes, and that is waited for; `eof`: the host closes our stdin
    call   a tool call that goes as far as the host lets it: `hook` and `asks` are the requests, `told` is its result; without
           a content in that, the command of the call is really run

A host's line fits when it is of the same kind: a prompt, an answer to the same request of ours, a request of the same subtype.
Where the recorded host had ids of its own, the present host's stand in for them in what is written: request ids, the ids of hooks
by their event, the id of the conversation. A hook that the present host has none for is not asked. Requests that the script does
not foresee are answered as such: `{}` to `initialize`, an error to all others.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from typing import Any

VERSION = "2.1.325 (Claude Code)"
Json = dict[str, Any]
STUCK = 97  # its exit status when the host does not do what the script waits for


def parse_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m serai.testing.claude", description="A scripted Claude Code.", allow_abbrev=False
    )
    parser.add_argument("script", help="a file of JSON lines: a capture")
    parser.add_argument("--given", default="", help="write here what it is given: arguments, names of the environment, lines")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds that a line of the host is waited for")
    parser.add_argument("--noise", action="store_true", help="lines that are no JSON stand between the frames")
    parser.add_argument("--truncate", action="store_true", help="its last line ends in the middle, and it exits")
    parser.add_argument("--huge", type=int, default=0, help="a frame of that many bytes comes before the last line")
    parser.add_argument("--stay", action="store_true", help="it never exits by itself")
    parser.add_argument("--ignore-term", action="store_true", help="SIGTERM and SIGINT do nothing to it")
    parser.add_argument("--die", type=int, default=-1, help="it is gone after that many lines")
    parser.add_argument("--die-with", type=int, default=-9, help="how: a status, or a negative number for a signal")
    parser.add_argument("--close-stdout", action="store_true", help="its stdout is closed before it exits, and it stays")
    parser.add_argument("--grandchild", action="store_true", help="a child in a session of its own holds its stdout open")
    parser.add_argument("--flood", type=int, default=0, help="bytes on stderr, before anything else")
    parser.add_argument("--deaf", action="store_true", help="it reads nothing, and waits for nothing")
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW", help="in everything that it writes")
    return parser.parse_args(words)


class HostInput:
    """What the host wrote: read by a thread of its own, so that it is never kept waiting."""

    def __init__(self, given: StartLog, foreseen: set[str], answer: StdoutWriter) -> None:
        self.lines: list[Json] = []
        self.over = False
        self.changed = threading.Condition()
        self._given = given
        self._foreseen = foreseen
        self._answer = answer

    def read(self) -> None:
        for line in sys.stdin.buffer:
            self._given.write({"line": line.decode(errors="replace").rstrip("\n")})
            try:
                frame = json.loads(line)
            except ValueError:
                frame = {}
            if get_kind(frame).startswith("control_request") and get_kind(frame) not in self._foreseen:
                self._answer.answer_unforeseen(frame)
                continue
            with self.changed:
                self.lines.append(frame)
                self.changed.notify_all()
        self._given.write({"eof": True})
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def take(self, kind: str, patience: float, *, loose: bool = False) -> Json | None:
        """The first line of that kind; `loose`: any line will do. None: the host closed our stdin instead."""
        end = time.monotonic() + patience
        with self.changed:
            while True:
                for line in self.lines:
                    if loose or get_kind(line) == kind:
                        self.lines.remove(line)
                        return line
                if self.over:
                    return None
                if not self.changed.wait(max(end - time.monotonic(), 0)) and time.monotonic() >= end:
                    raise TimeoutError(
                        f"no {kind} from the host within {patience:g} s; it wrote {[get_kind(one) for one in self.lines]}"
                    )


class StartLog:
    """What it was given, as JSON lines for the test to read."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else -1

    def write(self, row: Json) -> None:
        if self._fd >= 0:
            write(self._fd, json.dumps(row).encode() + b"\n")


class StdoutWriter:
    """What goes to stdout, whole lines by whoever writes them."""

    def __init__(self, changes: list[tuple[str, str]]) -> None:
        self.changes = changes
        self.written = 0
        self._lock = threading.Lock()

    def encode_line(self, line: Json | str) -> bytes:
        text = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        for old, new in self.changes:
            text = text.replace(old, new)
        return text.encode() + b"\n"

    def write(self, data: bytes) -> None:
        with self._lock:
            write(1, data)
            self.written += 1

    def answer_unforeseen(self, frame: Json) -> None:
        answer: Json = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
        if frame["request"]["subtype"] == "initialize":
            answer["response"] = build_hook_flags(frame)
        else:
            answer = {
                "subtype": "error",
                "request_id": frame["request_id"],
                "error": f"{frame['request']['subtype']}: not in the script",
            }
        self.write(self.encode_line({"type": "control_response", "response": answer}))


class ScriptPlayer:
    def __init__(self, options: argparse.Namespace, argv: list[str]) -> None:
        self.options = options
        with open(options.script, encoding="utf-8") as file:
            self.rows: list[Json] = [json.loads(line) for line in file if line.strip()]
        self.given = StartLog(options.given)
        self.given.write({"argv": argv, "env": sorted(os.environ), "cwd": os.getcwd(), "pid": os.getpid()})
        self.answer = StdoutWriter([tuple(pair.partition("=")[::2]) for pair in options.replace] + self._find_session_changes(argv))
        foreseen = {get_kind(row["line"]) for row in self.rows if row["dir"] == "in" and isinstance(row.get("line"), dict)}
        self.host = HostInput(self.given, foreseen, self.answer)
        self.hooks: dict[str, str] = {}  # recorded ids of hooks: the present host's; "" where it has none
        self.ids: dict[str, str] = {}  # recorded ids of requests: the present host's
        self.unasked: set[str] = set()  # requests of ours that were left out

    def _find_session_changes(self, argv: list[str]) -> list[tuple[str, str]]:
        """The conversation has the id that it is told, unless a fork of it is wanted."""
        recorded = [row["line"].get("session_id") for row in self.rows if row["dir"] == "out" and isinstance(row["line"], dict)]
        old = next((one for one in recorded if one), "")
        for option in ("--session-id", "--resume"):
            for n, word in enumerate(argv):
                name, _, value = word.partition("=")
                told = value or (argv[n + 1] if n + 1 < len(argv) and not argv[n + 1].startswith("-") else "")
                if name == option and told and (option == "--session-id" or "--fork-session" not in argv):
                    return [(f'"session_id":"{old}"', f'"session_id":"{told}"')] if old else []
        return []

    def run(self) -> None:
        options = self.options
        if options.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(143))  # as the real one, which does not die of the signal
        if options.grandchild:
            self.given.write({"grandchild": fork_grandchild()})
        if options.flood:
            write(2, (b"x" * 79 + b"\n") * (options.flood // 80 + 1))
        if not options.deaf:
            threading.Thread(target=self.host.read, daemon=True).start()
        outs = [n for n, row in enumerate(self.rows) if row["dir"] == "out"]
        self.last = outs[-1] if outs else -1
        for n, row in enumerate(self.rows):
            self._play(n, row)
        self._end()

    def _play(self, n: int, row: Json) -> None:
        match row["dir"]:
            case "out":
                self._write_line(n, row["line"])
            case "err":
                write(2, row["line"].encode() + b"\n")
            case "in" if not self.options.deaf and isinstance(row.get("line"), dict):
                self._wait_for_line(row["line"])
            case "in" if not self.options.deaf and row.get("eof"):
                self._wait_for_eof(n)
            case "call":
                self._play_call(n, row)

    def _play_call(self, n: int, row: Json) -> None:
        """First the host's hook, then the host itself; what they make of it is what runs."""
        asks, told = row["asks"], row["told"]
        said = self._ask_host(n, row["hook"]).get("hookSpecificOutput", {})
        how, why = said.get("permissionDecision", "ask"), said.get("permissionDecisionReason", "")
        given = said.get("updatedInput", asks["request"]["input"])
        if how == "ask":
            reason = {"decision_reason": why, "decision_reason_type": "hook"} if said else {}
            said = self._ask_host(n, {**asks, "request": {**asks["request"], **reason, "input": given}})
            how, why, given = said.get("behavior", "deny"), said.get("message", ""), said.get("updatedInput", given)
        [block] = told["message"]["content"]
        if how != "allow":
            block |= {"content": why, "is_error": True}
        elif block["content"] is None:
            block |= run_command(given["command"])
        self._write_line(n, told)

    def _ask_host(self, n: int, frame: Json) -> Json:
        """The host's answer to a request of ours; empty where it gives none, or has no such hook."""
        self._write_line(n, frame)
        if frame["request_id"] in self.unasked:
            return {}
        line = self.host.take(f"control_response {frame['request_id']}", self.options.patience)
        answer = {} if line is None else line["response"].get("response", {})
        return answer if isinstance(answer, dict) else {}

    def _write_line(self, n: int, line: Json | str) -> None:
        if self.options.die == self.answer.written:
            exit_as(self.options.die_with)
        if isinstance(line, dict):
            made = self._translate_ids(line)
            if made is None:
                return
            line = made
        if self.options.noise:
            write(1, b"[debug] this is no frame\n\n")
        if n == self.last and self.options.huge:
            frame = {"type": "system", "subtype": "huge", "session_id": "", "padding": ""}
            frame["padding"] = "x" * (self.options.huge - len(self.answer.encode_line(frame)))
            self.answer.write(self.answer.encode_line(frame))
        data = self.answer.encode_line(line)
        if n == self.last and self.options.truncate:
            write(1, data[: len(data) // 2])
            os._exit(0)
        self.answer.write(data)

    def _translate_ids(self, line: Json) -> Json | None:
        """A recorded line with the present host's ids; None where this host would not get it."""
        if line.get("type") == "control_response":
            response = line["response"]
            return {**line, "response": {**response, "request_id": self.ids.get(response["request_id"], response["request_id"])}}
        request = line.get("request") if line.get("type") == "control_request" else None
        if request is None or request["subtype"] != "hook_callback":
            return line
        present = self.hooks.get(request["callback_id"], "")
        if not present:
            self.unasked.add(line["request_id"])
            return None
        return {**line, "request": {**request, "callback_id": present}}

    def _wait_for_line(self, recorded: Json) -> None:
        kind = get_kind(recorded)
        if kind.startswith("control_response") and recorded["response"]["request_id"] in self.unasked:
            return
        line = self.host.take(kind, self.options.patience)
        if line is None and kind == "user":  # nobody wants anything any more
            self._end()
        if line is None or not kind.startswith("control_request"):
            return
        self.ids[recorded["request_id"]] = line["request_id"]
        if kind == "control_request initialize":
            self._handle_initialize(recorded, line)

    def _handle_initialize(self, recorded: Json, line: Json) -> None:
        present = {event: list_hook_ids(matchers) for event, matchers in (line["request"].get("hooks") or {}).items()}
        for event, matchers in (recorded["request"].get("hooks") or {}).items():
            for id in list_hook_ids(matchers):
                self.hooks[id] = next(iter(present.get(event, [])), "")
        for row in self.rows:  # its answer, wherever that stands
            if row["dir"] == "out" and isinstance(row["line"], dict) and row["line"].get("type") == "control_response":
                response = row["line"]["response"]
                if response["request_id"] == recorded["request_id"] and isinstance(response.get("response"), dict):
                    response["response"] |= build_hook_flags(line)

    def _wait_for_eof(self, n: int) -> None:
        """The host's closing. In the middle of a script another line may come instead: a host that does not close then."""
        after = self.rows[n + 1 :]
        if any(row["dir"] == "meta" and "note" in row for row in self.rows[:n]) or self._ends_by_itself():
            return
        if any(row["dir"] == "out" for row in after):
            self.host.take("", self.options.patience, loose=True)
        else:
            while self.host.take("end of input", 3600) is not None:
                pass

    def _ends_by_itself(self) -> bool:
        """It was over before its host closed its stdin: it told why on stderr."""
        return any(row["dir"] == "err" for row in self.rows)

    def _end(self) -> None:
        how = self.rows[-1].get("exit", 0) if self.rows else 0
        if self.options.close_stdout:
            os.close(1)
        if self.options.stay or self.options.close_stdout or how == "killed":
            pause_forever()
        exit_as(how)


def get_kind(frame: Any) -> str:
    if not isinstance(frame, dict):
        return "?"
    match frame.get("type"):
        case "control_request":
            return f"control_request {frame['request']['subtype']}"
        case "control_response":
            return f"control_response {frame['response']['request_id']}"
    return str(frame.get("type", "?"))


def list_hook_ids(matchers: Any) -> list[str]:
    return [id for matcher in matchers for id in matcher.get("hookCallbackIds", ())]


def build_hook_flags(initialize: Json) -> Json:
    """What the program adds to its answer for a host that has hooks."""
    return {"hooks_applied": True, "hook_on_failure_supported": True} if initialize["request"].get("hooks") else {}


def write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except BrokenPipeError:  # nobody reads it any more
        pass


def run_command(command: str) -> Json:
    import subprocess  # seldom needed, and slow to import

    done = subprocess.run(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return {"content": done.stdout.decode(errors="replace").rstrip("\n"), "is_error": done.returncode != 0}


def fork_grandchild() -> int:
    """One that outlives its parent and holds its stdout."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        pause_forever()
    return pid


def pause_forever() -> None:
    while True:
        signal.pause()


def exit_as(how: Any) -> None:
    if isinstance(how, int) and how < 0:
        os.kill(os.getpid(), -how)
        pause_forever()
    os._exit(how if isinstance(how, int) else 1)


def main(words: list[str], argv: list[str]) -> None:
    """`words` are this program's own options, `argv` what Claude Code is called with."""
    if "--version" in argv or "-v" in argv:
        write(1, VERSION.encode() + b"\n")
        return
    try:
        ScriptPlayer(parse_options(words), argv).run()
    except TimeoutError as error:
        write(2, f"scripted Claude: {error}\n".encode())
        os._exit(STUCK)
