"""An extension, as its author writes it."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

from serai.errors import BadExtension
from serai.sdk import adapters, stdio
from serai.sdk.book import Book
from serai.sdk.calls import Call, current
from serai.sdk.host import Host
from serai.sdk.named import checked_text
from serai.sdk.offers import Offers
from serai.sdk.remarks import Remarks
from serai.sdk.speaking import Speaking

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from serai.sdk.adapters import Adapter
    from serai.sdk.ending import Ending
    from serai.sdk.serving import Serving

__all__ = ["BadExtension", "Extension"]

LEVELS = ("info", "success", "warn", "error")

_BY_HAND = """\
{name} is an extension: a host starts it and talks to it over its standard input and output.
To try it, go to its folder and say

    serai tool list --guest .      # what it offers
    serai guest check .            # whether it does what a host expects
"""


class Extension(Offers):
    """What a host takes in: handlers under names. `main` serves them.

    `concurrency` is how many sync tools run at once, each on a thread; async ones share one event loop and have no limit.
    `stdin` and `stdout` are binary streams to use instead of the program's own.
    """

    def __init__(
        self, name: str, version: str = "", *, concurrency: int = 32, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None
    ) -> None:
        if not checked_text(name, "the name of an extension").strip():
            raise BadExtension("an extension needs a name", hint='write Extension("weather")')
        if concurrency < 1:
            raise BadExtension(f"concurrency is {concurrency}", who=name, hint="1 runs one tool at a time")
        self.name = name
        self.version = str(version)
        self.host = Host()
        self._remarks = Remarks(name)
        book = Book(name, self.version)
        super().__init__(book, Speaking(book, self._remarks))
        self._concurrency = concurrency
        self._stdin, self._stdout = stdin, stdout
        self._log: logging.Logger | None = None
        self._folder = os.getcwd()  # a host starts a program in its folder (spec zot 2.1, piglet 2.1)
        self._choice = adapters.choose(sys.argv[1:], os.environ)
        if stdin is not None or stdout is not None:
            self._choice = self._choice._replace(descriptors=(0, 1))
        caller = sys._getframe(1)
        if _is_second_copy(caller):
            self._remarks.say("the program is imported a second time, and what that offers is not served: move `ext` to a module")
        wire = self._choice.descriptors
        if stdin is stdout is None and caller.f_globals.get("__name__") == "__main__" and stdio.from_host(wire):
            stdio.take(wire)  # a program: from here on nothing that it prints may get on the wire

    def __repr__(self) -> str:
        return f"<extension {self.name}>"

    # -- what it can say and ask --------------------------------------------------------------------------------------------------

    def notify(self, level: str, message: str) -> None:
        """A short word to the person, at any time: info, success, warn or error."""
        if level not in LEVELS:
            raise ValueError(f"{level!r} is no level of a notice: there are {', '.join(LEVELS)}")
        if not isinstance(message, str):
            raise TypeError(f"a notice is text, not {type(message).__name__}")
        self._say(lambda adapter: adapter.notify(level, message))

    @property
    def log(self) -> logging.Logger:
        """A logger of the standard library, to stderr, where the host keeps a log."""
        if self._log is None:
            import logging

            self._log = logging.getLogger(f"serai.extension.{self.name}")
            if not self._log.handlers:
                handler = logging.StreamHandler()
                handler.setFormatter(logging.Formatter(f"[{self.name.replace('%', '%%')}] %(levelname)s %(message)s"))
                self._log.addHandler(handler)
                self._log.setLevel(logging.INFO)
                self._log.propagate = False
        return self._log

    @property
    def call(self) -> Call | None:
        """What the running handler serves, whatever kind it is; nothing where nobody waits for an answer."""
        return current.get()

    @property
    def data_dir(self) -> Path:
        """Where it may keep what it wants to find again: as the host says, else its own folder. It may have to be made."""
        from pathlib import Path

        return Path(self.host.data_dir or self.host.extension_dir or self._folder)

    @property
    def config_dir(self) -> Path:
        """Where a person's settings for it are: as the host says, else `data_dir`."""
        from pathlib import Path

        return Path(self.host.config_dir) if self.host.config_dir else self.data_dir

    @property
    def cwd(self) -> Path:
        """Where the agent works, once the host has said so; until then where the program runs."""
        from pathlib import Path

        return Path(self.host.cwd or self._folder)

    # -- its life -----------------------------------------------------------------------------------------------------------------

    def main(self) -> None:
        """Serve until the host says goodbye: the last statement of a program. What stands behind it runs when all has ended.

        At the end of a module that is only imported, as by a test, it does nothing.
        """
        caller = sys._getframe(1)
        if self._stdin is None and caller.f_code.co_name == "<module>" and caller.f_globals.get("__name__") != "__main__":
            return
        self.run()

    def run(self) -> None:
        """`main` without a look at who calls."""
        if self._stdin is None and self._choice.descriptors == (0, 1) and os.isatty(0):
            sys.stderr.write(_BY_HAND.format(name=self.name))
            sys.exit(2)
        try:
            reading, writer, adapter, ending = self._open(watch=True)
        except BadExtension as error:
            sys.exit(f"[{self.name}] {error}; {error.hint}")
        from serai.sdk.ending import serve

        serve(self._serving(writer, adapter), reading, ending)

    async def arun(self) -> None:
        """`run` inside a running event loop, which the async handlers then share."""
        from serai.sdk.ending import serve_on_loop

        reading, writer, adapter, ending = self._open(watch=False)
        await serve_on_loop(self._serving(writer, adapter), reading, ending)

    def _open(self, *, watch: bool) -> tuple[stdio.Source, stdio.Writer, Adapter, Ending]:
        """Say hello and all the rest, before anything slow is imported; or wait for the host, if that comes first."""
        from serai.sdk.ending import Ending

        wire = self._choice.descriptors
        reading: stdio.Source = stdio.take(wire)[0] if self._stdin is None else self._stdin
        writer = stdio.take(wire)[1] if self._stdout is None else stdio.Writer(self._stdout)
        if not self._choice.named and isinstance(reading, stdio.Reader) and (first := adapters.recognised(reading.waiting())):
            self._choice = adapters.Choice(first)
        adapter = adapters.load(self._choice.dialect)
        self.host.dialect = adapter.dialect
        ending = Ending(writer)
        if watch:
            ending.watch()
        if not adapter.host_first:
            self._say.open(adapter, writer, offer=True)
        return reading, writer, adapter, ending

    def _serving(self, writer: stdio.Writer, adapter: Adapter) -> Serving:
        from serai.sdk.serving import Serving

        serving = Serving(self._book, adapter, self.host, writer, self._remarks, self._concurrency)
        if not self._choice.named:
            serving.on_first = lambda line: self._recognise(line, serving, writer)
        self._join(serving, adapter, writer)
        return serving

    def _recognise(self, line: bytes, serving: Serving, writer: stdio.Writer) -> None:
        """A host that speaks first did so after we had said hello, which means nothing to it (spec piglet FIX-2)."""
        name = adapters.recognised(line)
        if name and adapters.DIALECTS[name].module:
            adapter = adapters.load(name)
            self.host.dialect = adapter.dialect
            self._say.wait()
            serving.speak(adapter)
            self._join(serving, adapter, writer)

    def _join(self, serving: Serving, adapter: Adapter, writer: stdio.Writer) -> None:
        """What the dialect has beyond tools, commands, questions, events and panels; what it has not is told once."""
        for missing in adapter.missing(self._book):
            self._remarks.say(f"the host speaks {adapter.dialect}: {missing}")
        if adapter.asking is None:
            return
        from serai.sdk.asking import Line
        from serai.sdk.further import Further
        from serai.sdk.services import Services

        serving.line = line = Line(self._say, adapter.asking)
        line.deliver, line.remark = serving.deliver, self._remarks.say
        self.host.connect(Services(line))
        further = Further(serving, self._book, adapter, self.host, writer)
        further.begin = lambda: self._say.open(adapter, writer, offer=False)
        further.offer = self._say.offer
        serving.further = further


def _is_second_copy(caller: FrameType) -> bool:
    """Whether a module that is the program already is imported under its own name as well."""
    name, file = caller.f_globals.get("__name__"), caller.f_globals.get("__file__")
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    return name not in ("__main__", "__mp_main__") and file is not None and program is not None and os.path.abspath(program) == file
