"""The filter of system calls, run step by step as the kernel does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.boxes.programs import confinement

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = 0x50001, 0x50000 | 38, 0x50000 | 97

machines = pytest.mark.parametrize("machine", ARCHITECTURES)


def verdict(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel's own machine would say. It only goes forward, so it ends."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("=HBBI", code))
    at = accumulator = 0
    while True:
        operation, yes, no, operand = steps[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x06:
            return int(operand)
        else:
            test = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: bool(accumulator & operand)}[operation]
            at += yes if test else no


@machines
def test_every_call_of_the_table_is_denied(machine: str) -> None:
    code, column = confinement.build_box_filter(machine), list(ARCHITECTURES).index(machine)
    for name, columns in confinement._DENIED.items():
        if columns[column] >= 0:
            assert verdict(code, ARCHITECTURES[machine], columns[column]) == EPERM, name


@machines
def test_another_architecture_is_killed_and_x32_refused(machine: str) -> None:
    code = confinement.build_box_filter(machine)
    assert verdict(code, 0x40000003, 20) == KILL
    if machine == "x86_64":
        assert verdict(code, ARCHITECTURES[machine], 0x40000000 | 1) == EPERM


@machines
@given(flags=st.integers(0, 2**64 - 1))
def test_no_clone_makes_a_namespace(machine: str, flags: int) -> None:
    clone, unshare = {"x86_64": (56, 272), "aarch64": (220, 97)}[machine]
    code = confinement.build_box_filter(machine)
    assert verdict(code, ARCHITECTURES[machine], clone, flags) == (EPERM if flags & 0x7E020000 else ALLOW)
    assert verdict(code, ARCHITECTURES[machine], unshare, flags) == (EPERM if flags & 0x7E020080 else ALLOW)
    assert verdict(code, ARCHITECTURES[machine], 435, flags) == ENOSYS


@machines
@given(family=st.integers(0, 2**32 - 1))
def test_only_known_families_of_sockets_are_made(machine: str, family: int) -> None:
    number = {"x86_64": 41, "aarch64": 198}[machine]
    with_sockets = verdict(confinement.build_box_filter(machine), ARCHITECTURES[machine], number, family)
    assert with_sockets == (ALLOW if family in (1, 2, 10, 16) else EAFNOSUPPORT)
    assert verdict(confinement.build_box_filter(machine, plain=True), ARCHITECTURES[machine], number, family) == EAFNOSUPPORT


@machines
@given(high=st.integers(0, 2**32 - 1), low=st.sampled_from([0x5412, 0x541C, 0x5413, 0x540E, 0]))
def test_nothing_is_typed_into_a_terminal_whatever_the_upper_half_says(machine: str, high: int, low: int) -> None:
    number = {"x86_64": 16, "aarch64": 29}[machine]
    found = verdict(confinement.build_box_filter(machine), ARCHITECTURES[machine], number, 0, high << 32 | low)
    assert found == (EPERM if low in (0x5412, 0x541C) else ALLOW)


@machines
def test_what_programs_need_is_allowed(machine: str) -> None:
    code = confinement.build_box_filter(machine)
    needed = {"x86_64": (0, 1, 2, 59, 101, 310, 157, 165 + 300), "aarch64": (63, 64, 56, 221, 117, 270, 167)}[machine]
    for number in needed:  # read, write, open, execve, ptrace, process_vm_readv, prctl
        assert verdict(code, ARCHITECTURES[machine], number) == ALLOW


# Numbers on x86_64 and aarch64; 0: there is no such call.
OTHERS = {
    "prlimit64": ((302, 261), (7,), (0,)),
    "sched_setparam": ((142, 118), (7,), (0,)),
    "sched_setscheduler": ((144, 119), (7,), (0,)),
    "sched_setattr": ((314, 274), (7,), (0,)),
    "sched_setaffinity": ((203, 122), (7,), (0,)),
    "setpriority": ((141, 140), (0, 7), (0, 0)),
    "setpriority of a user": ((141, 140), (2, 0), (0, 0)),
    "ioprio_set": ((251, 30), (1, 7), (1, 0)),
    "ioprio_set of a user": ((251, 30), (3, 0), (1, 0)),
}
MODES = {
    "chmod": ((90, 0), (0,)),
    "fchmod": ((91, 52), (0,)),
    "fchmodat": ((268, 53), (0, 0)),
    "fchmodat2": ((452, 452), (0, 0)),
    "creat": ((85, 0), (0,)),
    "mknod": ((133, 0), (0,)),
    "mknodat": ((259, 33), (0, 0)),
    "open": ((2, 0), (0, 0o101)),
    "openat": ((257, 56), (0, 0, 0o101)),
    "openat without a name": ((257, 56), (0, 0, 0o20000001)),
}


@machines
@pytest.mark.parametrize("name", OTHERS)
def test_a_plain_box_changes_no_limits_and_priorities_but_its_own(machine: str, name: str) -> None:
    columns, others, own = OTHERS[name]
    architecture, number = ARCHITECTURES[machine], columns[list(ARCHITECTURES).index(machine)]
    plain = confinement.build_box_filter(machine, plain=True)
    assert verdict(plain, architecture, number, *others) == EPERM
    assert verdict(plain, architecture, number, *own) == ALLOW
    assert verdict(confinement.build_box_filter(machine), architecture, number, *others) == ALLOW


@machines
@pytest.mark.parametrize("name", MODES)
@given(mode=st.integers(0, 0o7777))
def test_a_plain_box_makes_no_program_that_runs_as_its_owner(machine: str, name: str, mode: int) -> None:
    columns, before = MODES[name]
    architecture, number = ARCHITECTURES[machine], columns[list(ARCHITECTURES).index(machine)]
    if number:
        found = verdict(confinement.build_box_filter(machine, plain=True), architecture, number, *before, mode)
        assert found == (EPERM if mode & 0o6000 else ALLOW)
        assert verdict(confinement.build_box_filter(machine), architecture, number, *before, mode) == ALLOW


@machines
def test_a_file_that_is_only_opened_has_no_mode(machine: str) -> None:
    code = confinement.build_box_filter(machine, plain=True)
    assert verdict(code, ARCHITECTURES[machine], {"x86_64": 257, "aarch64": 56}[machine], 0, 0, 0o2, 0o6777) == ALLOW


@machines
def test_what_a_plain_box_does_without_is_refused_to_it_alone(machine: str) -> None:
    column = list(ARCHITECTURES).index(machine)
    for calls, expected in ((confinement._UNKNOWN_IF_PLAIN, ENOSYS), (confinement._UNSUPPORTED_IF_PLAIN, 0x50000 | 95)):
        for name, columns in calls.items():
            if columns[column] >= 0:
                number, architecture = columns[column], ARCHITECTURES[machine]
                assert verdict(confinement.build_box_filter(machine, plain=True), architecture, number) == expected, name
                assert verdict(confinement.build_box_filter(machine), architecture, number) == ALLOW, name
