"""The part of `serai demo` that shows boxes: a hook mints a token for one, commands run in it, the token is revoked with it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from serai.boxes import Box, Boxes, Hook
from serai.cli.demo_guests import examples
from serai.errors import HookFailed

if TYPE_CHECKING:
    from serai.cli.demo import Stage

__all__ = ["boxes"]

COMMANDS = (
    'echo "box $(hostname), as uid $(id -u); processes in sight: $(ls /proc | grep -c "^[0-9]")"',
    "stat -c '%n has mode %a and %s bytes' /root/.config/token",
    "echo homes of this machine in sight: $(ls -A /home | wc -l), network interfaces: $(sed -n 's/: .*//p' /proc/net/dev)",
)


async def boxes(stage: Stage) -> None:
    stage.say("\nA box with a hook", bold=True)
    tokens = stage.place / "tokens"
    tokens.mkdir()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])  # the hook needs our Python
    hook = Hook(str(examples("hooks") / "token_sdk.py"), "token", {"TOKENS_DIR": str(tokens), "PATH": path})
    async with Boxes(str(stage.place / "boxes"), recorder=stage.recorder) as house:
        if missing := house.backend("namespaces").missing:
            stage.say(f"  not on this machine: {missing}")
            return
        async with house.box("demo", hooks=[hook], description="for the demonstration") as box:
            stage.say(f"  made, with {len(os.listdir(tokens))} token at the server, minted by the hook {hook.name}")
            for command in COMMANDS:
                await _show(stage, box, command)
        stage.say(f"  destroyed, with {len(os.listdir(tokens))} tokens at the server: the hook was given its state back")
        failing = stage.place / "fails"
        failing.write_text("#!/bin/sh\necho the licence server is down >&2; exit 3\n")
        failing.chmod(0o755)
        try:
            await house.create("second", hooks=[hook, Hook(str(failing), "licence")])
        except HookFailed as error:
            stage.say(f"  a second one fails: {error.message}; {len(os.listdir(tokens))} tokens are left of it", fg="red")


async def _show(stage: Stage, box: Box, command: str) -> None:
    result = await box.exec(command)
    stage.say(f"    {(result.text or result.stderr.decode(errors='replace')).strip()}", dim=True)
