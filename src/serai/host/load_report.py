"""The load report: who came in, who did not, and why; one root cause for each (design rule 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from serai.host.guest import Guest, GuestState

if TYPE_CHECKING:
    from serai.host.host import Host

# A start that took longer is worth a word, in seconds.
_SLOW = 2.0
_TRUST = "`serai trust` in that folder lets it start"


class LoadReportRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One guest."""

    id: str
    state: str
    folder: str
    scope: str
    version: str = ""
    guard: bool = False
    seconds: float = 0.0
    pid: int = 0
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    intercepts: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    why: str = ""  # the error in one paragraph, with exit status, limit and the last of its stderr
    error: dict[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.id} {self.state}" + (f" (slow: {self.seconds:.1f} s)" if self.seconds > _SLOW else "")
        return f"{self.folder}: {self.id} is {self.state}: {self.why}"


class LoadReport(msgspec.Struct, frozen=True):
    """All of them, in load order; `problems` are folders that gave no guest, `untrusted` those that nobody has allowed.

    `refused` are those that were granted as something else than they are now.
    """

    guests: tuple[LoadReportRow, ...] = ()
    problems: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    guards_down: str = ""

    @classmethod
    def of(cls, host: Host) -> LoadReport:
        found = host.found
        remarks: dict[str, list[str]] = {}
        for entry in host.table.shadowed:
            remarks.setdefault(entry.guest, []).append(str(entry))
        for name, tool in host.table.tools.items():
            if tool.problem:
                remarks.setdefault(tool.owner.id, []).append(f"its tool {name} goes unvalidated: {tool.problem}")
        return cls(
            guests=tuple(_row(guest, remarks.get(guest.id, [])) for guest in host.guests.values()),
            problems=tuple(map(str, found.problems)),
            untrusted=tuple(f"{aside.manifest.id} in {aside.manifest.folder}: {aside.reason}" for aside in found.untrusted),
            refused=tuple(f"{aside.manifest.id} in {aside.manifest.folder}: {aside.reason}" for aside in found.refused),
            disabled=tuple(manifest.id for manifest in found.disabled),
            guards_down=host.guards_down(),
        )

    @property
    def failed(self) -> tuple[LoadReportRow, ...]:
        return tuple(row for row in self.guests if row.state != GuestState.READY)

    @property
    def ok(self) -> bool:
        """Nothing to tell: everybody found is ready."""
        return not (self.failed or self.problems or self.refused or self.guards_down)

    def lines(self) -> list[str]:
        """What a person should know, one thing a line; nothing when all is well."""
        told = [f"extension load: {problem}" for problem in self.problems]
        told += [f"extension load: {row}{_hint(row)}" for row in self.failed]
        told += [f"{row.id}: {remark}" for row in self.guests for remark in row.remarks]
        told += [f"not trusted: {one}; {_TRUST}" for one in self.untrusted]
        told += [f"refused: {one}" for one in self.refused]
        return told + ([f"guard: {self.guards_down}"] if self.guards_down else [])


def _hint(row: LoadReportRow) -> str:
    """What to do about it, if that is known."""
    hint = "" if row.error is None else row.error.get("hint", "")
    return f"; {hint}" if hint else ""


def _row(guest: Guest, remarks: list[str]) -> LoadReportRow:
    manifest, offers = guest.manifest, guest.contributions
    running = guest.running
    if running is not None:
        remarks += running.complaints
    remarks += guest.unseeded
    if asked := manifest.settings.asked:
        remarks.append(f'it asks for {", ".join(asked)}; the settings under [guest."{guest.id}"] grant it')
    why = "" if guest.error is None else str(guest.error).removeprefix(f"{guest.id}: ")
    if why and guest.state is GuestState.READY:
        remarks.append(f"its reload failed, so the earlier process serves on: {why}")
    return LoadReportRow(
        id=guest.id,
        state=str(guest.state),
        folder=str(manifest.folder),
        scope=manifest.scope,
        version=manifest.version,
        guard=guest.guard,
        seconds=round(guest.seconds, 3),
        pid=0 if running is None else running.pid,
        tools=tuple(spec.name for spec in guest.tools),
        commands=tuple(command.name for command in offers.commands),
        intercepts=tuple(sorted({stage for one in offers.interceptors for stage in one.stages})),
        events=tuple(sorted({kind for one in offers.event_handlers for kind in one.events})),
        why=why,
        error=None if guest.error is None else guest.error.to_json(),
        remarks=tuple(remarks),
    )
