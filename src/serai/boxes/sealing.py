"""Hook state at rest, encrypted when a person has configured a key (spec hooks 5).

AES-256-GCM from `cryptography`, which is imported only here: who sets no key needs no library.
"""

from __future__ import annotations

import hashlib
import os
from binascii import Error, a2b_base64, b2a_base64
from typing import TYPE_CHECKING, Self

from serai.boxes.store import SEALED
from serai.errors import BadSettings, NotWritten

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KeyFile"]

_LEAST = 32  # bytes of a key file
_NONCE = 12


class KeyFile:
    """Seals with what a file holds: at least 32 bytes, best from the machine's random source, for its owner alone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._cipher: AESGCM | None = None

    def looked_at(self) -> Self:
        """Whether it can be used, said now and not when the first secret is there."""
        self._aes()
        return self

    def seal(self, text: str, about: str) -> str:
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._aes().encrypt(nonce, text.encode(), about.encode())
        return SEALED + b2a_base64(sealed, newline=False).decode()

    def open(self, sealed: str, about: str) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            raw = a2b_base64(sealed.removeprefix(SEALED))
            return self._aes().decrypt(raw[:_NONCE], raw[_NONCE:], about.encode()).decode()
        except (Error, ValueError, InvalidTag):
            raise NotWritten(
                f"the hook state of box {about} cannot be decrypted",
                who=self.path,
                hint="was the key changed? Put the old one back",
            ) from None

    def _aes(self) -> AESGCM:
        if self._cipher is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ImportError:
                raise BadSettings(
                    "`key_file` is set and the package cryptography is not there", who=self.path, hint="pip install 'serai[seal]'"
                ) from None
            self._cipher = AESGCM(hashlib.sha256(self._contents()).digest())
        return self._cipher

    def _contents(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise BadSettings("the key file can be read by others", who=self.path, hint=f"chmod 600 {self.path}")
                contents = file.read(1 << 20)
        except OSError as error:
            raise BadSettings(f"the key file cannot be read: {error.strerror}", who=self.path) from None
        if len(contents) < _LEAST:
            raise BadSettings(f"the key file has fewer than {_LEAST} bytes", who=self.path, hint="head -c 32 /dev/urandom > FILE")
        return contents
