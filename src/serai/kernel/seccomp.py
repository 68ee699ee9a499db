"""Filters of system calls: tables of calls become the program that the kernel runs for each call.

Which calls to allow is not decided here: `boxes.programs.confinement` decides for boxes, and
`host.adapters.yoi.program.confinement` for the workers of plugins.
"""

from __future__ import annotations

import ctypes
import struct

from .syscalls import MACHINE, PrctlOption, prctl, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Columns = tuple[int, int]  # the number of a call on x86_64 and on aarch64; -1: there is no such call
Test = tuple[int, int, int, str, str]  # which argument, operation, operand, and where to go on yes and on no

EQUAL, AT_LEAST, ANY_BIT = 0x15, 0x35, 0x45  # operations of a test
_LOAD, _RETURN = 0x20, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; the lower half of an argument comes first

_EPERM, _ENOSYS, _EOPNOTSUPP, _EAFNOSUPPORT = 1, 38, 95, 97
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_VERDICTS = {
    "allow": _ALLOW,
    "deny": _ERRNO | _EPERM,
    "unknown": _ERRNO | _ENOSYS,
    "unsupported": _ERRNO | _EOPNOTSUPP,
    "no family": _ERRNO | _EAFNOSUPPORT,
    "kill": _KILL,
}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # the number of every call of the x32 interface has this bit
_SET_MODE_FILTER, _TSYNC, _MODE_FILTER = 1, 1, 2


def is_supported() -> bool:
    """Whether the tables have a column for this kind of machine."""
    return MACHINE in _ARCHITECTURES


def build_value_tests(argument: int, values: Iterable[int], refusal: str) -> tuple[Test, ...]:
    """Tests that allow a call with one of these values as that argument."""
    return (*((argument, EQUAL, value, "allow", "") for value in values), (argument, AT_LEAST, 0, refusal, refusal))


def assemble(
    machine: str,
    calls: Iterable[tuple[Mapping[str, Columns], str]],
    by_argument: Mapping[str, tuple[Columns, tuple[Test, ...]]],
    otherwise: str,
) -> bytes:
    """The program: tables of calls, each with its verdict; calls that their arguments decide; and the verdict on all others."""
    column, architecture = _ARCHITECTURES[machine]
    steps: list[tuple[int, int, str, str]] = []  # operation, operand, and where to go on yes and on no: a label, or the next step
    labels: dict[str, int] = {}

    def add_step(operation: int, operand: int, yes: str = "", no: str = "") -> None:
        steps.append((operation, operand, yes, no))

    def compute_distance(label: str, at: int) -> int:
        return labels[label] - at - 1 if label else 0

    add_step(_LOAD, _ARCH_AT)
    add_step(EQUAL, architecture, "", "kill")  # the other interface of the same kernel has other numbers
    add_step(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        add_step(AT_LEAST, _X32, "deny")
    for table, verdict in calls:
        for columns in table.values():
            if columns[column] >= 0:
                add_step(EQUAL, columns[column], verdict)
    for name, (columns, tests) in by_argument.items():
        if columns[column] >= 0:
            add_step(EQUAL, columns[column], "", f"not {name}")
            for argument, operation, operand, yes, no in tests:
                add_step(_LOAD, _ARGUMENTS_AT + 8 * argument)
                add_step(operation, operand, yes, no)
            labels[f"not {name}"] = len(steps)
    add_step(_RETURN, _VERDICTS[otherwise])
    for name, value in _VERDICTS.items():
        labels[name] = len(steps)
        add_step(_RETURN, value)
    return b"".join(
        struct.pack("=HBBI", operation, compute_distance(yes, at), compute_distance(no, at), operand)
        for at, (operation, operand, yes, no) in enumerate(steps)
    )


def install_filter(code: bytes, *, all_threads: bool = False) -> None:
    """From now on, for this thread and all that come from it, or for the whole process. It must have no_new_privs already."""
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    if not all_threads:
        prctl(PrctlOption.SECCOMP, _MODE_FILTER, head)
    elif thread := syscall("seccomp", _SET_MODE_FILTER, _TSYNC, head):
        raise OSError(f"the thread {thread} cannot have the filter")
