"""The box server: the program inside every box, which does there what we ask of it (spec hooks 4). Standard library only.

A frame is four bytes of length (big-endian) and JSON: `{"verb", "data"}`, answered by `{"data"}` or `{"err"}`; `VERBS` has them
all. After `dial`, `pty`, `putfile` and an `exec` with `stream` raw bytes follow; such a connection is closed when the request is
refused, so that raw bytes are never read as frames.

One thread, one edge-triggered poll. Each connection is a generator: it does what can be done now and yields when it has to wait,
with the latest time to resume. Any event on its descriptors or its command resumes it.

The process is forked into the box, where no module can be found any more: this module, `box_command`, `file_tree` and `frames`
import everything at the top.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import sys
from binascii import b2a_base64
from time import monotonic

from serai.boxes.programs import frames
from serai.boxes.programs.box_command import OutputHead, RunningCommand, make_terminal, processes, request_terminal, send_signal
from serai.boxes.programs.file_tree import BoxFileTree, check_replaceable, set_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Generator
    from typing import NoReturn, TypeAlias, TypeVar

    from serai.boxes.programs.frames import Data

    T = TypeVar("T")
    Wait: TypeAlias = Generator[float | None, None, T]
else:  # the public modules bring enumerations along, and they take as long to import as everything else here
    import _signal as signal
    import _socket as socket

CHUNK = 256 << 10  # bytes: one read, and what may wait for a peer that does not read
DIAL = 10.0  # seconds
SCRIPT = "/run/llmbox-init-script"
SCRIPT_TIME = 300_000_000_000  # nanoseconds


class ServedConnection:
    """Somebody who asks, and where the work for him stands."""

    def __init__(self, server: BoxServer, peer: socket.socket) -> None:
        self.server = server
        self.peer = peer
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.room = frames.FRAME + 4  # how much may be in the inbox
        self.eof = False  # nothing more will come
        self.gone = False  # and nobody is there to hear
        self.over = False
        self.moved = False  # something was read or written: there may be more
        self.until: float | None = None
        self.life = self.serve()

    def step(self) -> None:
        """Do what can be done now; with edges for events that means: again, for as long as anything moves."""
        self.moved = False
        if not self.eof and len(self.inbox) < self.room:
            data = self.pull(self.peer.fileno())
            self.eof = data == b""
            self.inbox += data or b""
        if not self.over:
            before = len(self.inbox)
            try:
                self.until = next(self.life)
            except StopIteration:
                self.over, self.until = True, None
            self.moved |= len(self.inbox) < before
        if self.outbox and not self.push(self.peer.fileno(), self.outbox):
            self.gone = self.moved = True
            self.outbox.clear()
        if self.over and not self.outbox:
            self.server.disconnect(self)
        elif self.moved:
            self.server.ready[self] = None

    def pull(self, descriptor: int) -> bytes | None:
        """Some bytes; none at the end; None when there is nothing now."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return None
        except OSError:  # such as EIO: the last program on a terminal has ended
            data = b""
        self.moved = True
        return data

    def push(self, descriptor: int, data: bytearray) -> bool:
        """Write from the front of `data` what can be written now; False when nobody reads any more."""
        try:
            del data[: os.write(descriptor, data)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.moved = True
        return True

    def answer(self, data: Data) -> None:
        self.outbox += frames.encode({"data": data})

    def serve(self) -> Wait[None]:
        try:
            while not self.gone:
                frame = frames.take_frame(self.inbox, 4, frames.FRAME) if len(self.outbox) <= CHUNK else None
                if frame is not None:
                    yield from self.serve_one(frame[4:])
                elif self.eof and not self.outbox:
                    return
                else:
                    yield None
        except frames.TooLarge as error:
            self.outbox += frames.encode({"err": str(error)})
        except frames.HungUp:
            pass
        except Exception as error:  # a defect of ours ends this connection alone; no text of it: that could be a secret
            line = error.__traceback__.tb_lineno if error.__traceback__ else 0
            os.write(2, f"porter: {type(error).__name__}, line {line}\n".encode())

    def serve_one(self, body: bytes) -> Wait[None]:
        verb, raw = "", False
        data: Data = {}
        try:
            verb, data = frames.decode(body)
            raw = verb in ("dial", "pty", "putfile") or data.get("stream") is True
            does, known = VERBS.get(verb) or reject_unknown(verb)
            work = does(self, frames.check_members(data, known))
            answer = work if isinstance(work, dict) else (yield from work)
            if answer is not None:  # else it has answered
                self.answer(answer)
            return
        except frames.Refusal as error:
            why = str(error)
        except OSError as error:
            path = data.get("path")
            why = f"{path if type(path) is str else verb}: {error.strerror}"
        except (ValueError, OverflowError, struct.error) as error:  # a NUL, half a surrogate pair, a number beyond all bounds
            why = f"{verb}: {type(error).__name__}"
        self.outbox += frames.encode({"err": why})
        if raw:
            raise frames.HungUp

    # Commands

    def exec(self, data: Data) -> Wait[Data]:
        env = self.server.build_environment(list(data["env"].items()))
        argv = frames.check_command(data["cmd"])
        if data["stream"]:
            return (yield from self.stream(argv, env, data))
        stdin = frames.decode_base64(data, "stdin")
        printed = OutputHead()
        try:
            self.server.enter(data["cwd"])
            command = RunningCommand(self, argv, env)
        except OSError as error:
            code = 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126  # as a shell has it
            return {"stdout": "", "stderr": f"{argv[0]}: {error.strerror}\n", "exit_code": code}
        command.pending += stdin
        command.ended = True
        late = yield from command.converse(printed.add, 0, data["timeout"] / 1e9 or None)
        answer = command.describe_exit() | ({"exit_code": 124, "timed_out": True} if late else {})
        for name, raw in (("stdout", printed[1]), ("stderr", printed[2])):
            answer[name] = str(raw, "utf-8", "replace")
            if answer[name].encode() != raw:  # JSON cannot say it
                answer[f"{name}_base64"] = b2a_base64(raw, newline=False).decode()
        return answer

    def stream(self, argv: list[str], env: dict[str, str], data: Data) -> Wait[NoReturn]:
        tty = frames.check_members(data["tty"], SIZE)
        size = (tty["cols"], tty["rows"]) if data["tty"] else None
        self.room = frames.PACKET + 5
        self.server.enter(data["cwd"])
        try:
            command = RunningCommand(self, argv, {"TERM": "xterm-256color", **env} if size else env, size=size)
        except OSError as error:
            raise frames.Refusal(f"{argv[0]}: {error.strerror}") from None
        self.answer({"pid": command.pid})
        yield from command.converse(self.send_packet, 3)
        self.outbox += frames.encode_packet(3, frames.encode_json(command.describe_exit()).encode())
        raise frames.HungUp

    def send_packet(self, kind: int, data: bytes) -> None:
        self.outbox += frames.encode_packet(kind, data)

    def pty(self, data: Data) -> Wait[NoReturn]:
        env = {"TERM": "xterm-256color", **self.server.build_environment([])}
        if data["cmd"]:
            argv = frames.check_command(data["cmd"])
            path = argv[0]
        else:  # a login shell
            found = (f"{folder}/bash" for folder in env["PATH"].split(":"))
            path = env.get("SHELL") or next(filter(os.path.exists, found), "sh")
            argv = [f"-{os.path.basename(path)}"]
        self.room = frames.PACKET + 5
        self.server.enter("")
        command = RunningCommand(self, argv, env, path=path, size=(data["cols"], data["rows"]))
        self.answer({})
        yield from command.converse(lambda _, data: self.outbox.extend(data), 2)
        raise frames.HungUp

    # Ports, files and the box itself

    def dial(self, data: Data) -> Wait[NoReturn]:
        port = data["port"]
        if not 1 <= port <= 65535:
            raise frames.Refusal(f"port {port} out of range")
        other = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.server.watch(other.fileno(), self)
            until = monotonic() + DIAL
            while (problem := other.connect_ex(("127.0.0.1", port))) not in (0, errno.EISCONN):
                if problem not in (errno.EINPROGRESS, errno.EALREADY) or monotonic() >= until:
                    raise frames.Refusal(f"port {port}: {os.strerror(problem)}")
                self.require_peer()
                yield until
            self.answer({})
            self.room = CHUNK
            yield from self.relay(other)
        finally:
            self.server.owners.pop(other.fileno(), None)
            other.close()
        raise frames.HungUp

    def relay(self, other: socket.socket) -> Wait[None]:
        """Bytes both ways, no faster than the slower side reads. Each way ends by itself, both when our peer is gone altogether."""
        theirs = ours = open_ = (
            True  # whether more may come from our peer, from the other, and whether our peer may still hope for it
        )
        while theirs or open_:
            if self.inbox and not self.push(other.fileno(), self.inbox):
                return
            if theirs and self.eof and not self.inbox:
                theirs = False
                other.shutdown(socket.SHUT_WR)
            if ours and len(self.outbox) <= CHUNK and (data := self.pull(other.fileno())) is not None:
                self.outbox += data
                ours = data != b""
            if open_ and not ours and not self.outbox:
                open_ = False
                self.peer.shutdown(socket.SHUT_WR)
            if self.gone and not theirs:
                return
            yield None

    def putfile(self, data: Data) -> Wait[Data]:
        """Into a draft beside it, which takes its place when all is there: an upload that breaks off leaves the old file as it was,
        and whoever reads that goes on reading it. So the file is always a new one."""
        left, path = data["size"], data["path"]
        folder, name = self.server.tree.open_folder(path, make=True)
        self.server.uploads += 1
        draft, file = f".putfile-{os.getpid()}-{self.server.uploads}", -1
        try:
            check_replaceable(name, folder, path)
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            while left:
                if self.inbox:
                    written = os.write(file, self.inbox[:left])
                    del self.inbox[:written]
                    left -= written
                else:
                    self.require_peer()
                    yield None
            os.fchmod(file, data["mode"] & 0o777)
            set_owner(file, data["uid"], data["gid"], new=True)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            return {}
        except BaseException:
            if file >= 0:
                os.unlink(draft, dir_fd=folder)
            raise
        finally:
            os.close(folder)
            if file >= 0:
                os.close(file)

    def require_peer(self) -> None:
        """Wait on only if there is somebody to wait for."""
        if self.eof:
            raise frames.HungUp

    def getfile(self, data: Data) -> Wait[None]:
        file = self.server.tree.open(data["path"])
        try:
            info = os.fstat(file)
            self.answer({"size": info.st_size, "mode": info.st_mode & 0o7777, "uid": info.st_uid, "gid": info.st_gid})
            left = info.st_size
            while left:
                while len(self.outbox) > CHUNK:
                    yield None
                some = os.read(file, min(left, CHUNK))
                if not some or self.gone:
                    raise frames.HungUp  # it has shrunk: there is no other way to say so
                self.outbox += some
                left -= len(some)
        finally:
            os.close(file)
        return None

    def init(self, data: Data) -> Wait[Data]:
        """Write the files, then run the script. `more` (ours): another `init` follows, with what did not fit into this frame."""
        server = self.server
        if server.initialised:
            raise frames.Refusal("already initialised")
        if server.busy:
            raise frames.Refusal("init is under way")
        env = frames.parse_variables([tuple(pair.split("=", 1)) if type(pair) is str else (pair, "") for pair in data["env"]])
        script = frames.decode_base64(data, "init_script")
        if any(type(file) is not dict for file in data["files"]):
            raise frames.Refusal('"files" must be a list of objects')
        files = [frames.check_members(file, FILE) for file in data["files"]]
        for file, content in [(file, frames.decode_base64(file, "Content")) for file in files]:
            try:
                server.tree.write(file["Path"], content, file["Mode"], file["UID"], file["GID"], append=file["Append"])
            except OSError as error:
                raise frames.Refusal(f"{file['Path']}: {error.strerror}") from None
        if data["more"]:
            return {}
        server.env = env
        failed, output = "", b""
        if script:
            server.busy = True
            try:
                failed, output = yield from self.run_script(script, data["init_script_timeout"] or SCRIPT_TIME)
            finally:
                server.busy = False
        server.initialised = not failed
        text = str(output, "utf-8", "replace").strip()
        return {"script_failed": bool(failed), "script_error": failed, "script_output": text}

    def run_script(self, script: bytes, time: int) -> Wait[tuple[str, bytes]]:
        """Why it failed, or nothing; and what it printed."""
        server = self.server
        server.tree.write(SCRIPT, script, 0o755, 0, 0)
        printed = OutputHead()
        env = server.build_environment([])
        server.enter("", env["HOME"])
        try:
            command = RunningCommand(self, [server.tree.resolve(SCRIPT)], env, merged=True)
        except OSError as error:
            hint = ": it needs a #! line" if error.errno == errno.ENOEXEC else ""
            return f"init script failed: {os.strerror(error.errno or 0).lower()}{hint}", b""
        late = yield from command.converse(printed.add, 0, time / 1e9)
        code = os.waitstatus_to_exitcode(command.status or 0)
        if late:
            failed = f"init script did not finish within {frames.format_duration(time)}"
        elif code > 0:
            failed = f"init script failed: exit status {code}"
        elif code < 0:
            failed = f"init script failed: signal: {(signal.strsignal(-code) or str(-code)).lower()}"
        else:
            failed = ""
        return failed, printed[1]

    def signal(self, data: Data) -> Data:
        """To all processes of the box but the box server."""
        kind, own = data["signal"], os.getpid()
        if kind not in signal.valid_signals():
            raise frames.Refusal(f"there is no signal {kind}")
        if own == 1:
            send_signal(-1, kind)  # everyone in this pid namespace but its first
            return {}
        below = {own}
        found = processes()
        for _ in found:  # parents may stand behind their children
            below |= {pid for pid, parent, _ in found if parent in below}
        for pid in below - {own}:
            send_signal(pid, kind)
        return {}

    def hello(self, _: Data) -> Data:
        return {"porter": 1, "pid": os.getpid(), "initialised": self.server.initialised}


def reject_unknown(verb: str) -> NoReturn:
    raise frames.Refusal(f'unknown verb "{verb}"')


# What may be asked: who does it, and the members that it knows, with their defaults. An absent mode is not 0, which is honoured.
SIZE: Data = {"cols": 80, "rows": 24}
FILE: Data = {"Path": "", "Content": "", "Mode": 0o600, "UID": 0, "GID": 0, "Append": False}
INIT: Data = {"files": [], "env": [], "init_script": "", "init_script_timeout": 0, "more": False}
EXEC: Data = {"cmd": [], "env": {}, "cwd": "", "timeout": 0, "stdin": "", "stream": False, "tty": {}}
VERBS: dict[str, tuple[Callable[[ServedConnection, Data], Data | Wait[Data | None]], Data]] = {
    "hello": (ServedConnection.hello, {}),
    "init": (ServedConnection.init, INIT),
    "exec": (ServedConnection.exec, EXEC),
    "pty": (ServedConnection.pty, {"cmd": [], **SIZE}),
    "dial": (ServedConnection.dial, {"port": 0}),
    "putfile": (ServedConnection.putfile, {"path": "", "size": 0, "mode": 0o644, "uid": 0, "gid": 0}),
    "getfile": (ServedConnection.getfile, {"path": ""}),
    "signal": (ServedConnection.signal, {"signal": 0}),
}


if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from serai.boxes.programs.box_command import RunningCommand
else:  # the public modules bring enumerations along, and they take as long to import as everything else here
    import _signal as signal
    import _socket as socket


RETRY = 0.1  # seconds until somebody is admitted for whom there was no descriptor
LONGEST = 3600.0  # seconds in one poll
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
LEFT = select.EPOLLHUP | select.EPOLLERR


class BoxServer:
    """All that a box server knows: who is connected, what runs for them, and what `init` said."""

    def __init__(self, listener: int, root: str, marks: Mapping[str, str], supervisor: int) -> None:
        self.tree = BoxFileTree(root)
        self.marks = marks
        self.supervisor = socket.socket(fileno=supervisor) if supervisor >= 0 else None
        self.env: dict[str, str] = {}  # as `init` gave it
        self.initialised = False
        self.busy = False  # with the init script
        self.uploads = 0
        self.connections: set[ServedConnection] = set()
        self.owners: dict[int, ServedConnection] = {}  # of descriptors
        self.children: dict[int, RunningCommand] = {}
        self.ready: dict[ServedConnection, None] = {}  # those who can go on, in order
        self.retry: float | None = None
        for descriptor in (listener, supervisor):
            if descriptor >= 0:
                os.set_inheritable(descriptor, False)  # no command may have it
        self.listener = socket.socket(fileno=listener)
        self.listener.setblocking(False)
        self.alarm, alarm = os.pipe()
        os.set_blocking(alarm, False)
        os.set_blocking(self.alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)  # one byte in it is enough
        self.poll = select.epoll()
        self.poll.register(self.listener.fileno(), select.EPOLLIN | select.EPOLLET)
        self.poll.register(self.alarm, select.EPOLLIN)

    def run(self) -> NoReturn:
        while True:
            times = [one.until for one in self.connections if one.until is not None]
            if self.retry is not None:
                times.append(self.retry)
            wait = min(max(min(times) - monotonic(), 0), LONGEST) if times else None
            for descriptor, events in self.poll.poll(0 if self.ready else wait):
                self.handle_event(descriptor, events)
            now = monotonic()
            if self.retry is not None and now >= self.retry:
                self.admit()
            self.ready.update((one, None) for one in self.connections if one.until is not None and now >= one.until)
            turn, self.ready = self.ready, {}
            for one in turn:
                if one in self.connections:
                    one.step()

    def handle_event(self, descriptor: int, events: int) -> None:
        if descriptor == self.alarm:
            self.reap()
        elif descriptor == self.listener.fileno():
            self.admit()
        elif (one := self.owners.get(descriptor)) is not None:
            if events & LEFT and descriptor == one.peer.fileno():
                one.gone = True
            self.ready[one] = None

    def reap(self) -> None:
        """Everything that has ended: also what a program of the box has left behind, whose parent the box server is now."""
        os.read(self.alarm, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            command = self.children.pop(pid, None)
            if command is not None:
                command.status = status
                self.ready[command.owner] = None

    def admit(self) -> None:
        self.retry = None
        while True:
            try:
                peer = socket.socket(fileno=self.listener._accept()[0])  # type: ignore[attr-defined]
                one = ServedConnection(self, peer)
                self.watch(peer.fileno(), one)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # no descriptor or no memory: later
                    self.retry = monotonic() + RETRY
                    return
            else:
                self.connections.add(one)
                self.ready[one] = None

    def disconnect(self, one: ServedConnection) -> None:
        self.connections.discard(one)
        self.owners.pop(one.peer.fileno(), None)
        one.peer.close()

    def watch(self, descriptor: int, one: ServedConnection) -> None:
        os.set_blocking(descriptor, False)
        self.poll.register(descriptor, EDGES)
        self.owners[descriptor] = one

    def drop(self, descriptor: int) -> None:
        self.owners.pop(descriptor, None)
        os.close(descriptor)

    def build_environment(self, pairs: list[tuple[Any, Any]]) -> dict[str, str]:
        """What a command sees: this and nothing of the box server's own (spec hooks 3.6)."""
        return {"HOME": self.tree.resolve("/root"), "PATH": PATH, **self.env, **frames.parse_variables(pairs), **self.marks}

    def open_terminal(self) -> tuple[int, int]:
        return make_terminal() if self.supervisor is None else request_terminal(self.supervisor)

    def enter(self, folder: str, *places: str) -> None:
        """Go where a command is to start: by the box's name for it, or the first of these that is there. We have one thread."""
        if folder:
            try:
                os.chdir(self.tree.resolve(folder))
            except OSError as error:
                raise frames.Refusal(f"cwd {folder}: {error.strerror}") from None
            return
        for place in (*(places or (self.tree.resolve("/workspace"), self.build_environment([])["HOME"])), self.tree.root):
            try:
                os.chdir(place)
            except OSError:
                continue
            return


class NoModules:
    """Finds no module: what lies in a box is not ours to run."""

    @staticmethod
    def find_spec(name: str, *_: object) -> NoReturn:
        raise ImportError(name)


def run(listener: int, *, root: str = "/", marks: Mapping[str, str] = {}, supervisor: int = -1) -> NoReturn:
    """Serve a box on a listening socket until killed. `root` is where its files are.

    In a plain box all commands carry `marks`, variables by which they are found when everybody else is dead, and terminals come
    from its `supervisor`.

    A signal must not end it: Python would raise one in the middle of anything, and every process of the box may send them.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(kind, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.umask(0o022)
    sys.meta_path[:] = [NoModules]
    reading, writing = os.pipe()
    for standard in (0, 1):  # there is nothing to read and nobody to print to, and no descriptor of a command may be one of these
        os.dup2(reading, standard)
    os.close(reading)
    os.close(writing)
    BoxServer(listener, root, marks, supervisor).run()


def main(arguments: list[str]) -> NoReturn:
    """`--fd N [--root DIR]`: for whoever cannot fork into a box."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    run(int(options["--fd"]), root=options.get("--root", "/"))
