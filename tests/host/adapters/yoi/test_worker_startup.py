"""What a component must be before any code of it runs, and what a worker is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serai.errors import BadManifest, OversizeFrame, PeerGone, PeerTimeout
from serai.host.adapters.yoi import worker as module
from serai.host.adapters.yoi.compiler import build_command
from serai.plugins.manifest import INSTANCE, TOOL
from serai.wire import process_tree
from serai.wire.process import Child, Launch
from tests.conftest import PATIENT
from tests.support.yoi import components
from tests.support.yoi.workers import WorkerHarness

EXPORTS = [(INSTANCE, name) for name in ("start", "handle-tool", "handle-ingress", "status", "stop")] + [(TOOL, "call")]


def shorten(world: str) -> str:
    return "tool" if world == TOOL else "instance"


@pytest.mark.req("yoi.conform.59")
@pytest.mark.parametrize(("world", "name"), EXPORTS)
async def test_a_missing_export_is_refused(harness: WorkerHarness, world: str, name: str) -> None:
    with pytest.raises(BadManifest) as caught:
        await harness.open(components.missing_export(name, shorten(world)), world=world)
    assert caught.value.message.startswith(f"component does not export expected `{world}` {name} function: ")


@pytest.mark.req("yoi.rule.005")
@pytest.mark.parametrize(("world", "name"), EXPORTS)
async def test_an_export_of_another_type_is_refused_before_anything_runs(harness: WorkerHarness, world: str, name: str) -> None:
    """Its core start function would trap: that it does not shows that it was not run."""
    with pytest.raises(BadManifest) as caught:
        await harness.open(components.mistyped_export(name, shorten(world)), world=world)
    assert caught.value.message.startswith(f"component does not export expected `{world}` {name} function: ")
    assert not any(b'"go"' in frame for frame in harness.wires.sent)


@pytest.mark.req("yoi.conform.58")
@pytest.mark.parametrize("name", ["wasi:cli/environment@0.2.0", "yoi:host/fs@2.0.0", "yoi:host/exec@1.0.0", "other:host/fs@1.0.0"])
async def test_any_other_import_is_refused(harness: WorkerHarness, name: str) -> None:
    with pytest.raises(BadManifest) as caught:
        await harness.open(components.unknown_import(name))
    why = "no WASI filesystem, ambient network, environment, or other imports are available"
    assert caught.value.message == f"unsupported component import `{name}`; {why}"


async def test_an_import_of_ours_with_another_type_is_refused(harness: WorkerHarness) -> None:
    """wasmtime does not look at the types of what we provide: a mistyped argument would be read as what it is not."""
    wrong = '(import "yoi:host/fs@1.0.0" (instance (export "read" (func (param "p" u64) (result string)))))'
    with pytest.raises(BadManifest, match="component is incompatible: read in `yoi:host/fs@1.0.0`"):
        await harness.open(components.Guest().more(wrong).build())
    more = '(import "yoi:host/fs@1.0.0" (instance (export "remove" (func (param "p" string) (result string)))))'
    with pytest.raises(BadManifest, match="component is incompatible: there is no remove"):
        await harness.open(components.Guest().more(more).build())
    function = '(import "yoi:host/fs@1.0.0" (func))'
    with pytest.raises(BadManifest, match="is no interface"):
        await harness.open(components.Guest().more(function).build())


@pytest.mark.req("yoi.conform.60")
@pytest.mark.req("yoi.edge.32")
@pytest.mark.parametrize(
    "data",
    [b"", b"placeholder", b"(component)", b"(module)", b"\x00asm", b"\x00asm\x01\x00\x00\x00", b"\x00asm\x0d\x00\x02\x00"],
)
async def test_what_is_no_component_never_reaches_the_compiler(harness: WorkerHarness, data: bytes) -> None:
    started: list[object] = []
    harness.spawner = _Nobody(started)
    with pytest.raises(BadManifest, match="^yoi:test: component is incompatible: "):
        await harness.open(data)
    assert started == []


class _Nobody:
    def __init__(self, started: list[object]) -> None:
        self._started = started

    async def spawn(self, launch: Launch) -> Child:
        self._started.append(launch)
        raise AssertionError


@pytest.mark.req("yoi.conform.60")
async def test_a_core_module_is_told_as_such(harness: WorkerHarness) -> None:
    with pytest.raises(BadManifest, match="component is incompatible: these are the bytes of a core module"):
        await harness.open(components.core_module())


async def test_a_damaged_component_is_refused_by_the_compiler(harness: WorkerHarness) -> None:
    whole = components.echo()
    with pytest.raises(BadManifest, match="component is incompatible: "):
        await harness.open(whole[:-20])
    with pytest.raises(BadManifest, match="component is incompatible: "):
        await harness.open(whole[:200] + b"\xff" * 50 + whole[250:])


@pytest.mark.req("yoi.rule.077")
async def test_a_worker_has_nothing_of_its_surroundings(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "not for a plugin")
    worker = await harness.open(components.all_imports())
    proc = Path(f"/proc/{worker.pid}")
    names = [entry.partition(b"=")[0] for entry in proc.joinpath("environ").read_bytes().split(b"\0") if entry]
    assert names in ([], [process_tree.TAG.encode()])  # by that the watchdog knows it
    assert os.readlink(proc / "cwd") == "/"
    links = {int(entry): os.readlink(proc / "fd" / entry) for entry in os.listdir(proc / "fd")}
    assert {number: links[number].partition(":")[0] for number in (0, 1)} == {0: "pipe", 1: "pipe"}
    assert all(link.endswith(".cwasm") or "memfd" in link for number, link in links.items() if number > 2)
    assert os.readlink(proc / "exe") == os.path.realpath(sys.executable)


@pytest.mark.req("yoi.rule.077")
async def test_what_of_its_confinement_holds_is_told(harness: WorkerHarness) -> None:
    worker = await harness.open(components.echo())
    status = Path(f"/proc/{worker.pid}/status").read_text(encoding="ascii")
    said = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert ("no_new_privs" in worker.confined) == (said["NoNewPrivs"] == "1")
    assert ("seccomp" in worker.confined) == (said["Seccomp"] == "2")
    assert {"CORE", "AS", "DATA", "NOFILE"} <= set(worker.confined)
    for thread in os.listdir(f"/proc/{worker.pid}/task"):  # each of them
        state = Path(f"/proc/{worker.pid}/task/{thread}/status").read_text(encoding="ascii")
        assert f"Seccomp:\t{said['Seccomp']}" in state


ESCAPES = {
    "open": "open('/etc/passwd')",
    "write": "open('/tmp/never', 'w')",
    "list": "os.listdir('/')",
    "socket": "__import__('_socket').socket()",
    "fork": "os.fork()",
    "exec": "os.execv('/bin/true', ['true'])",
    "kill": "os.kill(os.getppid(), 0)",
    "thread": "__import__('_thread').start_new_thread(print, ())",
    "executable memory": "mmap.mmap(-1, 4096, prot=7)",
    "ptrace": "check(libc.ptrace(16, os.getppid(), 0, 0))",
    "signals by a descriptor": "fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())",
    "which signal": "fcntl.fcntl(1, 10, 9)",  # F_SETSIG
    "signals at input": "fcntl.fcntl(1, fcntl.F_SETFL, os.O_ASYNC)",
    "another descriptor": "fcntl.fcntl(1, fcntl.F_DUPFD, 0)",
}


@pytest.mark.req("yoi.rule.077")
@pytest.mark.parametrize("what", ESCAPES)
def test_a_confined_worker_can_do_nothing_but_read_and_write(what: str) -> None:
    """The same confinement, and then not wasm but Python behind it: as if the engine had a hole."""
    code = f"""
import ctypes, fcntl, mmap, os, sys, _socket
sys.path[:0] = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), "no")
from program.confinement import filter_calls, give_up_files, set_resource_limit
held = give_up_files()
set_resource_limit("NPROC", 0)
sealed = filter_calls()
if not sealed and what not in ("open", "write", "list"): print("unknown"); os._exit(0)
try:
    {ESCAPES[what]}
except (OSError, RuntimeError) as error: print("refused")
else: print("done")
sys.stdout.flush()
os._exit(0)
""".replace("what not in", f"{what!r} not in")
    folders = build_command("main")[5:7]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *folders], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout.strip() in ("refused", "unknown"), run.stderr
    assert run.returncode == 0


_BEHIND = """
import ctypes, errno, fcntl, os, sys
sys.path[:0] = sys.argv[1:3]
from program.confinement import filter_calls, give_up_files
give_up_files()
if not filter_calls(compiler=sys.argv[3] == "compiler"): print("unknown"); sys.stdout.flush(); os._exit(0)
"""


def run_filtered(code: str, who: str, log: Path) -> str:
    """What this code says behind the filter of a worker or a compiler, whose log is that file."""
    argv = [sys.executable, "-I", "-S", "-c", f"{_BEHIND}{code}\nsys.stdout.flush(); os._exit(0)", *build_command("main")[5:7], who]
    with log.open("ab") as stderr:
        run = subprocess.run(argv, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60, check=False)
    assert run.returncode == 0, log.read_text()
    return run.stdout.strip()


@pytest.mark.req("yoi.rule.077")
@pytest.mark.parametrize("who", ["worker", "compiler"])
def test_nobody_behind_the_filter_erases_the_log(who: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a remark\n")
    code = """
for fd in (0, 1, 2):
    try: os.ftruncate(fd, 0)
    except OSError as error: print(error.errno == errno.EPERM)
    else: print("done")
"""
    assert run_filtered(code, who, log).split() in (["True"] * 3, ["unknown"])
    assert log.read_text() == "a remark\n"


@pytest.mark.parametrize("who", ["worker", "compiler"])
def test_files_in_memory_are_made_sized_and_sealed_behind_the_filter(who: str, tmp_path: Path) -> None:
    """As wasmtime does for the image of a guest's memory: without them an instance would cost more, or not begin."""
    code = """
file = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.write(file, b"abc")
os.ftruncate(file, 4096)
seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
flags = fcntl.fcntl(file, fcntl.F_GETFD)
fcntl.fcntl(file, fcntl.F_SETFD, flags)
size = os.lseek(file, 0, os.SEEK_END)
print(size, fcntl.fcntl(file, fcntl.F_GET_SEALS) == seals, fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE)
"""
    assert run_filtered(code, who, tmp_path / "log") in (f"4096 True {os.O_RDWR}", "unknown")


async def test_without_seccomp_and_landlock_it_goes_on_and_says_so(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine whose kernel has neither: the worker is told that it is one."""
    argv = build_command("main")
    missing = "seccomp.MACHINE = 'other'; syscalls._SAME['landlock_create_ruleset'] = 999"
    spoiled = argv[4].replace("from program.main", f"from kernel import seccomp, syscalls; {missing}; from program.main")
    monkeypatch.setattr(module, "build_command", lambda entry: [*argv[:4], spoiled, *argv[5:]])
    worker = await harness.open(components.echo())
    assert "seccomp" not in worker.confined
    assert "landlock" not in worker.confined
    assert await harness.tool(worker, "raw", "x") == "x"


async def test_where_the_bindings_look_different_the_public_way_is_taken(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = build_command("main")
    strange = "import program.component as c; c._get_string_kind = lambda: 99"
    spoiled = argv[4].replace("from program.main", f"{strange}; from program.main")
    monkeypatch.setattr(module, "build_command", lambda entry: [*argv[:4], spoiled, *argv[5:]])
    worker = await harness.open(components.caller("fs", "read", components.INPUT))
    assert harness.wires.has(b'"direct":false')
    assert await harness.tool(worker, "raw", "é") == "é"
    assert "done" in await harness.tool(worker, "call", "{}")
    big = await harness.open(components.huge(70000))
    with pytest.raises(OversizeFrame):
        await harness.tool(big)


async def test_the_quick_way_is_taken_with_the_wasmtime_that_is_here(harness: WorkerHarness) -> None:
    await harness.open(components.echo())
    assert harness.wires.has(b'"direct":true')


async def test_a_worker_that_cannot_begin_says_why(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "build_command", lambda entry: [sys.executable, "-I", "-S", "-c", "import nothing_of_that_name"])
    with pytest.raises(PeerGone, match="nothing_of_that_name"):
        await harness.open(components.echo())


async def test_a_mute_worker_is_given_up(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "build_command", lambda entry: [sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"])
    with pytest.raises(PeerTimeout, match="did not begin"):
        await harness.open(components.echo(), limits=PATIENT.but(hello=0.2))
