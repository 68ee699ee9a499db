"""The command line. People are here; everything else is below."""

from __future__ import annotations

import signal
import sys

from serai.cli import entry

__all__ = ["main"]


def main() -> None:
    """The `serai` command; what it needs is imported only now. What fails for a known reason is said in two lines, status 1.

    Ctrl-C ends it anywhere, without a word and with the status that a shell expects; so do SIGTERM and SIGHUP.
    """
    came: list[int] = []
    try:
        entry.open_missing_streams()
        came = entry.handle_signals()
        status = _run()
        sys.stdout.flush()
    except (KeyboardInterrupt, entry.Interrupted):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left takes no time: a second one needs no words either
        status = 128 + (came[0] if came else signal.SIGINT)
    except BrokenPipeError:  # whoever read has read enough
        status = 1
    except Exception as error:
        entry.print_error(_format_error(error))
        status = 1
    entry.discard_output()
    sys.exit(status)


def _run() -> int:
    from serai.cli.command_table import serai

    try:
        serai(prog_name="serai")
    except SystemExit as end:  # how click ends, always
        return end.code if isinstance(end.code, int) else 1
    return 0


def _format_error(error: Exception) -> str:
    """What is known of it, as a terminal may show it. What nobody expected is a defect, and goes on."""
    from serai.errors import SeraiError
    from serai.plain_text import escape_line

    if isinstance(error, SeraiError):
        return "\n".join(map(escape_line, [f"serai: {error}", *error.hint.splitlines()]))
    if isinstance(error, OSError) and entry.is_unwritable(error):
        return f"serai: cannot write: {error.strerror}"
    raise error
