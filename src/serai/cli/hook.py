"""`serai hook`: for authors of box hooks. Runs one with a made-up box, and checks one against the protocol.

A hook's answer may hold a credential: neither a content nor a state is ever shown, unless a person asks for the state. `serai hook
check` shows the requests that prove each finding, and what to do.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from serai.cli import console, guest_authoring
from serai.cli.options import JSON, ExitCode, NonEmptyPath, load_user_limits, run_async
from serai.plain_text import escape_text

if TYPE_CHECKING:
    from serai.boxes.hook_process import AnswerFile
    from serai.boxes.hooks import Hook
    from serai.dialects.hookproto.messages import File, Request, Response
    from serai.errors import HookFailed
    from serai.limits import Limits


@click.command()
@click.argument("path", type=NonEmptyPath())
@click.option("--rule", "only", multiple=True, metavar="NAME", help="Only this rule; repeatable.")
@click.option("--strict", is_flag=True, help="Warnings are failures, too.")
@JSON
def check(path: str, *, only: tuple[str, ...], strict: bool, as_json: bool) -> None:
    """Check whether a hook keeps to its protocol, and say what to do.

    PATH is the program; without a slash it is looked up in the PATH, as boxes do it. It is really run, for a dozen
    boxes that do not exist, and gets back every state that it answers with: what it makes it is also told to take away.
    """
    from serai.testing.conformance import checker, hook

    console.err("the hook is really run, for a dozen boxes; every state that it answers with is given back with box.destroy")
    try:
        report = hook.check(path, only=only, environ=hook.environment(), limits=load_user_limits(), tell=console.err)
    except checker.UnknownRule as error:
        raise click.UsageError(escape_text(str(error))) from None
    if as_json:
        guest_authoring.show_json(report)
    else:
        guest_authoring.show(report)
    if not report.ok or (strict and report.of("warned")):
        raise click.exceptions.Exit(ExitCode.FAILED)


_SHORT = {"create": "box.create", "destroy": "box.destroy"}


@click.group()
def hook() -> None:
    """Try a hook of boxes, and check that it keeps to the protocol.

    A hook is a program that is run when a box is made and when it is gone: it puts files into the box, such as a token that it
    mints, and takes back what it made.
    """


hook.add_command(check)


@dataclass(slots=True)
class HookTrial:
    """What a run of a hook came to. `files` are as they would be in the box, or with why they cannot be."""

    request: Request
    seconds: float = 0.0
    files: list[dict[str, Any]] = field(default_factory=list)
    state: str = field(default="", repr=False)
    warnings: list[str] = field(default_factory=list)
    error: HookFailed | None = None
    stderr: str = ""


@hook.command("run")
@click.argument("path", type=NonEmptyPath())
@click.argument("event")
@click.option("--box-id", default="sample", show_default=True, help="The id of the made-up box.")
@click.option("--description", default="", help="Its description.")
@click.option("--image", default="", help="Its image.")
@click.option("--state", help="For box.destroy: what the hook answered with on box.create.")
@click.option("--state-file", type=click.File("rb"), help="The same from a file, - is stdin; a newline at its end does not count.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="So many seconds instead of those of the settings.")
@click.option("--show-secrets", is_flag=True, help="Print the state, too.")
@JSON
def run_(path: str, event: str, *, state: str | None, state_file: Any, timeout: float | None, **options: Any) -> None:
    """Run a hook once, for a made-up box, and show what it would do.

    PATH is the program; without a slash it is looked up in the PATH, as boxes do it. EVENT is create, destroy, or any name: a hook
    should do nothing at events that it does not know. The hook really runs: what it makes is real.
    """
    event = _SHORT.get(event, event)
    given = _read_state(event, state, state_file)
    limits = load_user_limits()
    if timeout is not None:
        limits = limits.but(hook_timeout=timeout)
    path = os.path.abspath(path) if "/" in path else path
    run_async(_run(path, event, given, limits, **options))


def _read_state(event: str, state: str | None, file: Any) -> str:
    """The state for box.destroy. Other events never have one (spec hooks 1.3)."""
    if state is not None and file is not None:
        raise click.UsageError("give --state or --state-file, not both")
    if (state is not None or file is not None) and event != "box.destroy":
        raise click.UsageError("a state goes with box.destroy only")
    if file is not None:
        try:
            return str(file.read().decode()).removesuffix("\n")
        except ValueError:
            raise click.UsageError("--state-file: it is no text in UTF-8") from None
    return state or ""


async def _run(
    path: str,
    event: str,
    state: str,
    limits: Limits,
    *,
    box_id: str,
    description: str,
    image: str,
    show_secrets: bool,
    as_json: bool,
) -> ExitCode:
    from serai.boxes.hooks import Hook
    from serai.dialects.hookproto.messages import Box, Request

    if event == "box.destroy" and not state:
        console.err("without a state: boxes run no hook on box.destroy that answered without one on box.create")
    trial = await _try_hook(Hook(path), Request(event, Box(image, box_id, description), state), limits)
    kept = _save_state(trial.state) if trial.state and not show_secrets else ""
    if as_json:
        _print_json(trial, path, kept, show_secrets=show_secrets)
    else:
        _print(trial, show_secrets=show_secrets)
    if trial.state or (event == "box.create" and trial.error is None):
        _tell_how_to_undo(trial, path, kept)
    return ExitCode.ERROR if trial.error else ExitCode.OK


# -- the run ----------------------------------------------------------------------------------------------------------------------


async def _try_hook(hook: Hook, request: Request, limits: Limits) -> HookTrial:
    """Run it as boxes do, and look at each of its files as they do."""
    from serai.boxes.hook_process import AnswerFile

    trial = HookTrial(request)
    answer = AnswerFile.create_in_memory()
    try:
        response = await _run_hook(hook, request, limits, answer, trial)
    except BaseException:  # Ctrl-C: it may have made something by then
        _rescue_state(answer, hook.path)
        raise
    finally:
        answer.close()
    if request.event == "box.create":
        trial.state = response.state
        _check_files(hook, response, limits, trial)
    elif response.files or response.state:
        trial.warnings.append(f"files and state count on box.create only; at {request.event} they are dropped")
    return trial


async def _run_hook(hook: Hook, request: Request, limits: Limits, answer: AnswerFile, trial: HookTrial) -> Response:
    """What it answered; `trial` is told why it failed, and what it said on stderr."""
    from serai.boxes.hooks import HookRunner
    from serai.wire.plain_process import PlainSpawner

    async with PlainSpawner(limits) as spawner:
        begun = time.monotonic()
        tried = await HookRunner([hook], spawner=spawner, limits=limits).run_once(hook, request, answer)
        trial.seconds = time.monotonic() - begun
    trial.error, trial.stderr = tried.failure, tried.stderr
    if trial.error is not None:
        trial.error.hint = _get_start_hint(hook.path, trial.error.hint)
    return tried.response


def _get_start_hint(path: str, hint: str) -> str:
    if "/" not in path and os.path.exists(path):
        return f"without a slash it is looked up in the PATH: name it ./{path}"
    return hint


def _check_files(hook: Hook, response: Response, limits: Limits, trial: HookTrial) -> None:
    """Each file with what it comes to; the first that cannot be is what the box fails for (spec hooks 2.2)."""
    from serai.dialects.hookproto.host_side import resolve_file
    from serai.errors import HookFailed

    refused = []
    for file in response.files:
        try:
            placed = resolve_file(file, trial.warnings.append)
            about = {"path": placed.path, "mode": f"{placed.mode:04o}", "uid": placed.uid, "gid": placed.gid}
            trial.files.append(about | {"bytes": len(placed.content), "kind": _detect_kind(placed.content)})
        except ValueError as error:
            refused.append(str(error))
            trial.files.append(_dump_file(file) | {"refused": str(error)})
    have = {
        "hook_state": len(response.state.encode()),
        "max_inject_files": len(response.files),
        "max_inject_bytes": sum(about.get("bytes", 0) for about in trial.files),
    }
    for name, much in have.items():
        if much > (most := getattr(limits, name)):
            refused.append(f"{_SIZES[name]}: {much} of at most {most} (limit {name})")
    if refused and trial.error is None:
        trial.error = HookFailed(refused[0], path=hook.path)


_SIZES = {
    "hook_state": "its state has too many bytes",
    "max_inject_files": "there are too many files",
    "max_inject_bytes": "its files have too many bytes",
}


def _dump_file(file: File) -> dict[str, Any]:
    return {"path": file.path, "mode": file.mode or "0600", "uid": file.uid, "gid": file.gid}


def _detect_kind(content: bytes) -> str:
    try:
        return "text" if "\0" not in content.decode() else "binary"
    except ValueError:
        return "binary"


# -- the state --------------------------------------------------------------------------------------------------------------------


def _save_state(state: str) -> str:
    """A file of the person alone, so that what was made can be taken back although the state is not shown."""
    descriptor, path = tempfile.mkstemp(prefix="serai-hook-", suffix=".state")
    with open(descriptor, "wb") as file:
        file.write(state.encode() + b"\n")
    return path


def _rescue_state(answer: AnswerFile, path: str) -> None:
    from serai.dialects.hookproto.host_side import BadResponse, read_response

    try:
        state = read_response(answer.read()).state
    except (BadResponse, OSError):
        return
    if state:
        console.err(f"it had answered by then; to undo it: {_format_undo(path)} --state-file {_save_state(state)}")


def _tell_how_to_undo(trial: HookTrial, path: str, kept: str) -> None:
    if not trial.state:
        console.err("the hook really ran. It has no state, so boxes will not run it on box.destroy")
    else:
        console.err(f"the hook really ran; to undo it: {_format_undo(path)} " + (f"--state-file {kept}" if kept else "--state …"))
        if kept:
            console.err("the state in that file may be a credential; remove the file afterwards")


def _format_undo(path: str) -> str:
    return f"serai hook run {shlex.quote(path)} box.destroy"


# -- telling ----------------------------------------------------------------------------------------------------------------------


def _print(trial: HookTrial, *, show_secrets: bool) -> None:
    how = "failed" if trial.error else "done"
    box = trial.request.box.box_id
    console.out(f"{trial.request.event}{f' of {box}' if box else ''}: {how} in {trial.seconds:.2f} s")
    if trial.files:
        console.print_table([_build_row(about) for about in trial.files])
    if trial.state:
        console.out(f"state: {trial.state}" if show_secrets else f"state: {len(trial.state.encode())} bytes, not shown")
    for text in trial.warnings:
        console.err(f"warning: {text}")
    for line in trial.stderr.splitlines():
        console.err(f"stderr: {line}")
    for line in _render_error(trial):
        console.err(line)


def _build_row(about: dict[str, Any]) -> tuple[str, ...]:
    last = f"refused: {about['refused']}" if "refused" in about else about["kind"]
    size = f"{about['bytes']} bytes" if "bytes" in about else ""
    return (f"  {about['path']}", about["mode"], f"{about['uid']}:{about['gid']}", size, last)


def _render_error(trial: HookTrial) -> Iterator[str]:
    if trial.error is not None:
        yield f"a box would not be made: {trial.error}" if trial.request.event == "box.create" else str(trial.error)
        yield trial.error.hint


def _print_json(trial: HookTrial, path: str, kept: str, *, show_secrets: bool) -> None:
    box = {name: value for name in ("image", "box_id", "description") if (value := getattr(trial.request.box, name))}
    form: dict[str, Any] = {"hook": path, "event": trial.request.event, "box": box, "ok": trial.error is None}
    form |= {"seconds": round(trial.seconds, 4), "files": trial.files, "state_bytes": len(trial.state.encode())}
    form |= {"warnings": trial.warnings, "stderr": trial.stderr}
    if trial.error is not None:
        form |= {"error": str(trial.error), "hint": trial.error.hint}
    form = console.mask_strings(form)
    if kept:
        form["state_file"] = kept
    if show_secrets and trial.state:
        form["state"] = trial.state
    click.echo(console.dump_json(form))
    sys.stdout.flush()
