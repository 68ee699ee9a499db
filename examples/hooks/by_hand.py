#!/usr/bin/env python3
"""Three files for each box, with the standard library alone: a text, a program and some bytes. It knows nothing of Serai.

It makes nothing outside of the box, so there is nothing to take back: it answers without a state, and is not run on box.destroy.
"""

from __future__ import annotations

import base64
import json
import os
import sys

GREETING = """#!/bin/sh
echo "this is the box $(cat /etc/box-id)"
"""


def main() -> None:
    request = json.load(sys.stdin.buffer)  # to the end of stdin; no newline has to come
    answer = {}
    if request["event"] == "box.create":
        box = request["box"]  # each of its members may be missing
        answer["files"] = [
            # A mode is an octal number in a string. Without one a file has 0600: nobody but its owner reads it.
            {"path": "/etc/box-id", "content": box.get("box_id", "") + "\n", "mode": "0644"},
            {"path": "/root/bin/greet", "content": GREETING, "mode": "0755"},
            # Bytes that are no text go as base64. The owner is a number, root's by default.
            {"path": "/root/.seed", "content_base64": base64.b64encode(os.urandom(32)).decode()},
        ]
    json.dump(answer, sys.stdout)  # stdout is for this alone; whatever else there is to say goes to stderr


main()
