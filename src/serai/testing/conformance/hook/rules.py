"""The rules about a hook: that it answers, that it reads every request, what it answers with, and what it leaves behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from serai.dialects.hookproto.host_side import HIGHEST_ID, PERMISSIONS, encode_request, resolve_file
from serai.dialects.hookproto.messages import Box, File, Request, fold_case, loads, quote
from serai.testing.conformance.findings import Finding, Skip, Unopened, fail, warn
from serai.testing.conformance.hook.examination import OPENING, HookExamination, HookRun, find_secrets

if TYPE_CHECKING:
    from serai.dialects.hookproto.messages import Json

NO_SUCH_EVENT: Final = "box.serai-check"
TEXT: Final = 'it\'s "quoted" \\ <b>&amp;</b> $(exit 3) `exit 3` %s\n\ttwo lines, Grüße, 日本, 🏨, \u2028'
LARGE: Final = 1_000_000
_RESPONSE = frozenset({"files", "state"})
_FILE = frozenset({"path", "content", "content_base64", "mode", "uid", "gid"})

_PARSER = "read the request with a real JSON parser"
_WRITER = "make the answer with a real JSON writer, and put no text into a command line"


def opening(rule: str) -> Callable[[HookExamination], Iterator[Finding]]:
    """The rule of that name: why there is no response to a usual create."""

    def judge(examination: HookExamination) -> Iterator[Finding]:
        _, wrong, problem = examination.opening
        if problem is not None and wrong == rule:
            yield problem
        elif problem is not None and OPENING.index(wrong) < OPENING.index(rule):
            raise Unopened("it does not answer", problem, see=f"`{wrong}`")

    return judge


# -- what it reads ----------------------------------------------------------------------------------------------------------------


def newline(examination: HookExamination) -> Iterator[Finding]:
    first = examination.first
    hint = "read to the end of stdin: `request=$(cat)`, not `read line`; there need not be a newline"
    if examination.newline:
        yield fail("it answers only when a newline ends the request", hint=hint, frames=first.quote_frames())
    else:
        with examination.create_box(form=lambda request: encode_request(request) + b"\n") as run:
            yield from _compare_run(examination, run, "with a newline at the end of the request", hint)


def _reverse(request: Request) -> bytes:
    value = json.loads(encode_request(request))
    return json.dumps({"box": dict(reversed(value["box"].items())), "event": value["event"]}).encode()


def _indent(request: Request) -> bytes:
    return json.dumps(json.loads(encode_request(request)), indent=2).encode()


def _add_unknown(request: Request) -> bytes:
    value = json.loads(encode_request(request))
    return json.dumps({"serai_check": [{"event": "none"}], **value, "box": {"serai_check": None, **value["box"]}}).encode()


def _escape(request: Request) -> bytes:
    def escape(value: str) -> str:
        units = value.encode("utf-16-be").hex()
        return '"' + "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)) + '"'

    box = json.loads(encode_request(request))["box"]
    members = ",".join(f"{escape(name)}:{escape(value)}" for name, value in box.items())
    return f"{{{escape('event')}:{escape(request.event)},{escape('box')}:{{{members}}}}}".encode("ascii")


FORMS: Final = {
    "with its members in another order": _reverse,
    "with blanks and line ends between its parts": _indent,
    "with an escape for every character": _escape,
    "with members that it does not know": _add_unknown,
}


def any_json(examination: HookExamination) -> Iterator[Finding]:
    for how, form in FORMS.items():
        with examination.create_box(form=form) as run:
            yield from _compare_run(examination, run, f"the same request {how}", _PARSER)


def any_text(examination: HookExamination) -> Iterator[Finding]:
    yield from _check_text(examination, TEXT, "with quotes, backslashes, line ends and more than ASCII in the description", _WRITER)


def large(examination: HookExamination) -> Iterator[Finding]:
    hint = "read to the end of stdin before you answer, and put no text into a command line: that is too short for it"
    yield from _check_text(examination, "x" * LARGE, f"with a description of {LARGE} bytes", hint)


def optional(examination: HookExamination) -> Iterator[Finding]:
    hint = 'a request has `description` and `image` only where there is one: in jq `.box.description // ""`'
    yield from _check_text(examination, "", "without a description", hint)


def _check_text(examination: HookExamination, description: str, what: str, hint: str) -> Iterator[Finding]:
    with examination.create_box(Box(box_id=examination.box.box_id, description=description)) as run:
        yield from _compare_run(examination, run, what, hint)


def cwd(examination: HookExamination) -> Iterator[Finding]:
    with examination.create_box(cwd=examination.scratch) as run:
        hint = 'it starts wherever Serai was started: in sh `cd "$(dirname "$0")"`, in Python Path(__file__).parent'
        yield from _compare_run(examination, run, "started in another folder than its own", hint)


def unknown_event(examination: HookExamination) -> Iterator[Finding]:
    with examination.create_box(event=NO_SUCH_EVENT) as run:
        hint = "answer {} and exit 0 to each event that you do not know: there may be more of them one day"
        if run.wrong:
            yield warn(f"at an event that it does not know, {run.why}", hint=hint, frames=run.quote_frames())
        elif run.shape != (0, False):
            why = f"at an event that it does not know, it answers with {run.shaped}"
            yield warn(why, hint=hint, frames=run.quote_frames())


def _compare_run(examination: HookExamination, run: HookRun, what: str, hint: str) -> Iterator[Finding]:
    """Whether the same box, told otherwise, is another one to it."""
    if run.wrong:
        yield examination.report_problem(run, what, hint)
    elif run.shape != (usual := examination.first).shape:
        yield fail(f"{what}, it answers with {run.shaped}, else with {usual.shaped}", hint=hint, frames=run.quote_frames())


# -- what it answers with ---------------------------------------------------------------------------------------------------------


def files(look: Callable[[File], Iterable[Finding]]) -> Callable[[HookExamination], Iterator[Finding]]:
    """A rule about each file of each answer. What is wrong with many answers is told once."""

    def judge(examination: HookExamination) -> Iterator[Finding]:
        told: set[str] = set()
        for run in examination.iter_creates():
            for finding in (finding for file in run.response.files for finding in look(file)):
                if finding.why not in told:
                    told.add(finding.why)
                    yield finding
            if look is path:
                yield from _check_duplicates(run, told)

    return judge


def path(file: File) -> Iterator[Finding]:
    try:
        resolve_file(File(file.path), lambda _: None)
    except ValueError as error:
        hint = "a path is absolute, has no `..`, names a file, and lies outside of /proc, /sys, /dev and /run/llmbox"
        yield fail(str(error), hint=hint)


def _check_duplicates(run: HookRun, told: set[str]) -> Iterator[Finding]:
    for name, count in Counter(file.path for file in run.response.files).items():
        why = f"{quote(name)} comes {count} times: the last one counts"
        if count > 1 and why not in told:
            told.add(why)
            yield warn(why, hint="answer with each file once")


def mode(file: File) -> Iterator[Finding]:
    try:
        bits = file.file_mode() & ~PERMISSIONS
    except ValueError as error:
        yield fail(str(error), hint='a mode is an octal number in a string, such as "0600" or "0755"; left out it is 0600')
    else:
        if bits:
            why = f"{quote(file.path)} was to have mode {quote(file.mode)}: set-id and sticky bits are never set"
            yield warn(why, hint="ask for the bits of 0777 only")


def owner(file: File) -> Iterator[Finding]:
    for name, number in (("uid", file.uid), ("gid", file.gid)):
        if not 0 <= number <= HIGHEST_ID:
            yield fail(f"{quote(file.path)} is to have the {name} {number}", hint=f"ids are between 0 and {HIGHEST_ID}")


def content(file: File) -> Iterator[Finding]:
    if file.content and file.content_base64:
        why = f"{quote(file.path)} has both content and content_base64: the latter counts"
        yield warn(why, hint="text goes into content, bytes go into content_base64: give one of them")
    try:
        file.bytes()
    except ValueError as error:
        yield fail(str(error), hint="base64 in the usual alphabet (+ and /), with its padding; only line ends may stand in it")


def sizes(examination: HookExamination) -> Iterator[Finding]:
    limits = examination.limits
    worst = dict.fromkeys(("hook_state", "max_inject_files", "max_inject_bytes"), 0)
    for run in examination.iter_creates():
        have = (len(run.response.state.encode()), len(run.response.files), sum(map(_count_bytes, run.response.files)))
        worst = {name: max(before, now) for (name, before), now in zip(worst.items(), have, strict=True)}
    what = {
        "hook_state": ("its state has {} bytes, more than {}", "keep the large thing elsewhere, and its name in the state"),
        "max_inject_files": ("it answers with {} files, more than {}", "let the init script of the box fetch what is so much"),
        "max_inject_bytes": ("its files have {} bytes, more than {}", "let the init script of the box fetch what is so much"),
    }
    for name, (why, hint) in what.items():
        if worst[name] > getattr(limits, name):
            yield fail(why.format(worst[name], getattr(limits, name)), hint=hint)


def _count_bytes(file: File) -> int:
    try:
        return len(file.bytes())
    except ValueError:
        return 0


def names(examination: HookExamination) -> Iterator[Finding]:
    told: set[str] = set()
    for run in examination.iter_creates():
        if not run.ran.stdout:
            continue
        for why in _find_misnamed(loads(run.ran.stdout, alone=True)):
            if why not in told:
                told.add(why)
                hint = "the members are files and state; of a file path, content, content_base64, mode, uid and gid"
                yield warn(why, hint=hint, frames=run.quote_frames())


def _find_misnamed(value: Json) -> Iterator[str]:
    yield from _find_odd_names(value, _RESPONSE, "the response")
    for name, inner in value if isinstance(value, tuple) else ():
        if fold_case(name) == "files" and isinstance(inner, list):
            for file in inner:
                yield from _find_odd_names(file, _FILE, "a file")


def _find_odd_names(value: Json, known: frozenset[str], what: str) -> Iterator[str]:
    counts = Counter(name for name, _ in value) if isinstance(value, tuple) else {}
    for name, count in counts.items():
        if name in known and count > 1:
            yield f"{name} comes {count} times in {what}: the last one counts"
        elif name not in known and fold_case(name) in known:
            yield f"{quote(name)} in {what} is {fold_case(name)}, in another letter case"
        elif name not in known:
            yield f"{quote(name)} in {what} means nothing, and is passed over"


def own_state(examination: HookExamination) -> Iterator[Finding]:
    if not examination.first.response.state:
        raise Skip("it has no state")
    other = Box(box_id=f"{examination.box.box_id}-2", description=examination.box.description)
    with examination.create_box() as one, examination.create_box(other) as two:
        for run in (run for run in (one, two) if run.wrong):
            hint = "boxes are made while others live: keep them apart by box_id"
            yield examination.report_problem(run, "with two boxes at a time", hint)
        if one.response.state and one.response.state == two.response.state:
            hint = "let the state name what was made for this box alone, such as the id of its token"
            yield warn("two boxes get the same state", hint=hint)


# -- how it ends ------------------------------------------------------------------------------------------------------------------


def destroy(examination: HookExamination) -> Iterator[Finding]:
    if not examination.first.response.state:
        raise Skip("it has no state, so boxes do not call it on destroy")
    for run in examination.iter_destroys():
        if run.wrong and run.request.state:
            hint = "box.destroy has the state, and of the box nothing but its id; answer {} and exit 0"
            yield examination.report_problem(run, "at box.destroy", hint)
            return
    undone = examination.roll_back_box()
    if undone is not None and undone.wrong:
        hint = "box.destroy has the description, too, when the box could not be made after all; answer {} and exit 0"
        yield examination.report_problem(undone, "at the box.destroy of a box that could not be made", hint)


def destroy_again(examination: HookExamination) -> Iterator[Finding]:
    first = examination.first
    if not first.response.state:
        raise Skip("it has no state, so boxes do not call it on destroy")
    if any(run.wrong for run in examination.iter_destroys()):
        raise Skip("it does not even destroy once: see `destroy`")
    run = examination.destroy_box(first.request.box, first.response.state)
    if run.wrong:
        hint = "what is gone already is no error: after a crash Serai may give the same state back again"
        why = f"at the same box.destroy once more, {run.why}"
        yield warn(why, hint=hint, frames=run.quote_frames())


def secret(examination: HookExamination) -> Iterator[Finding]:
    _require_start(examination)
    known = {line for run in examination.runs for line in find_secrets(run)}
    for run in examination.runs:
        if any(line in run.ran.stderr for line in known):
            why = f"at {run.request.event} its stderr has a line of its state or of its files"
            yield fail(
                why,
                hint="stderr goes into logs and error messages: print nothing there that is secret",
                stderr=examination.quote_stderr(run),
            )
            return


def left_behind(examination: HookExamination) -> Iterator[Finding]:
    _require_start(examination)
    for run in examination.runs:
        if run.ran.left:
            why = f"at {run.request.event} it left behind: {', '.join(run.ran.left)}"
            yield fail(why, hint="wait for what you start: boxes kill what is left, and wait for whoever holds stdout")
            return


def in_time(examination: HookExamination) -> Iterator[Finding]:
    _require_start(examination)
    slowest = max(examination.runs, key=lambda run: run.ran.seconds)
    if slowest.ran.seconds > examination.patience.quick:
        why = f"it took {slowest.ran.seconds:.1f} s at {slowest.request.event}"
        yield warn(why, hint="each new box waits for it: give what it calls a shorter time limit, or prepare things beforehand")


def _require_start(examination: HookExamination) -> None:
    """What a hook does can be judged also when it does not answer, but not when it does not run."""
    _, wrong, problem = examination.opening
    if problem is not None and wrong == "start":
        raise Unopened("it cannot be started", problem, see="`start`")
