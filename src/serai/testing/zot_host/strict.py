"""What a strict stand-in host is made of, whatever it speaks: it waits no longer than it may, and tells what is wrong."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn

from serai.testing.zot_host.process import GuestProcess, Misbehaved

__all__ = ["StrictHost"]

_TAIL = 2000  # of stderr, where something is wrong


class StrictHost(ABC):
    """One extension, started; used as a context, which leaves no process behind."""

    process: GuestProcess
    patience: float  # seconds for what has to come

    @property
    @abstractmethod
    def who(self) -> str:
        """The name of the extension, in a complaint."""
        ...

    @abstractmethod
    def _take(self, line: bytes | None) -> object:
        """Read a line of the extension."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()

    @property
    def stderr(self) -> str:
        return self.process.stderr

    def write(self, raw: bytes) -> None:
        """Bytes as they are, for what is no frame."""
        try:
            self.process.write(raw, self.patience)
        except TimeoutError:
            self._complain("does not read its input")
        except BrokenPipeError:
            while (line := self._line("end", ends=True)) is not None:  # what it said last is the better complaint
                self._take(line)
            self._complain("has closed its input")

    def _line(self, awaited: str, *, ends: bool = False) -> bytes | None:
        try:
            line = self.process.line(self.patience)
        except TimeoutError:
            self._complain(f"no {awaited} within {self.patience:g} s")
        if line is None and not ends:
            self._complain(f"ended without {awaited}, exit status {self.process.wait(self.patience)}")
        return line

    def _exit_status(self) -> int:
        status = self.process.wait(self.patience)
        return self._complain(f"did not end within {self.patience:g} s") if status is None else status

    def _complain(self, why: str) -> NoReturn:
        stderr = self.stderr[-_TAIL:].strip()
        tail = [f"its stderr: {stderr}"] if stderr else []
        raise Misbehaved("\n".join([f"{self.who}: {why}", *self.process.shown(), *tail]))
