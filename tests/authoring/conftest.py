"""What the tests of `serai.authoring` share."""

from __future__ import annotations

from tests.support.cli.shell import shell

__all__ = ["shell"]
