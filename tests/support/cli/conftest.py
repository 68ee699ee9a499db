"""What the tests of the fork server share."""

from __future__ import annotations

from tests.support.cli.shell import shell

__all__ = ["shell"]
