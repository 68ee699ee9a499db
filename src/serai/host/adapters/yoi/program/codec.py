"""Lines of JSON on the descriptors 0 and 1, with as little as possible in between."""

from __future__ import annotations

import os
from json.decoder import JSONDecoder
from json.encoder import encode_basestring
from typing import Any

__all__ = ["Wire", "quoted"]

_READ = 1 << 16
_scan = JSONDecoder().raw_decode

quoted = encode_basestring


class Wire:
    """Blocking, both ways: a worker does one thing at a time. Its parent's end is the end of the process."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self) -> dict[str, Any]:
        data = self._rest
        end = data.find(b"\n")
        while end < 0:
            chunk = os.read(0, _READ)
            if not chunk:
                os._exit(0)
            at = chunk.find(b"\n")
            end = at if at < 0 else len(data) + at
            data = data + chunk if data else chunk
        self._rest = data[end + 1 :]
        frame: dict[str, Any] = _scan(data[:end].decode())[0]
        return frame

    def write(self, line: str) -> None:
        data = line.encode()
        done = os.write(1, data)
        while done < len(data):
            done += os.write(1, data[done:])
