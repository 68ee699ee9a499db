"""What the kernel's interfaces answer where they are not there, or where something above us answers for them."""

from __future__ import annotations

import pytest

from serai.kernel import landlock


def test_landlock_that_has_no_version_is_landlock_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of system calls may let them all "succeed" with nothing done."""
    monkeypatch.setattr(landlock, "syscall", lambda *_args, **_options: 0)
    assert landlock.get_abi_version() == 0
    with pytest.raises(OSError, match="no version"):
        landlock.restrict()
