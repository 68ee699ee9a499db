"""Real hooks for tests: small scripts in a folder, and a runner for them that keeps what it was told."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from serai.boxes.hooks import Hook, HookResults, HookRunner
from serai.dialects.hookproto.messages import Box
from serai.limits import Limits
from serai.record import Recorder
from serai.wire.plain_process import PlainSpawner

# What is expected to happen has much time, what never happens is given up soon.
PATIENT = Limits().but(hook_timeout=30.0, hook_grace=15.0, hook_eof=15.0)
BOX = Box(box_id="a", description="mine")


class Hooks:
    """Makes hooks in a folder and runs them."""

    def __init__(self, folder: Path, spawner: PlainSpawner) -> None:
        self.folder = folder
        self.answers = folder / "answers"
        self.answers.mkdir(mode=0o700)
        self.kept: list[tuple[str, str]] = []
        self._spawner = spawner

    def sh(self, name: str, body: str) -> str:
        """A shell script; its folder is `$HERE`."""
        return self._write(name, f'#!/bin/sh\nHERE="{self.folder}"\n{body}\n')

    def python(self, name: str, body: str) -> str:
        """A Python script; its folder is `HERE`, and `answer(value)` answers with a state that shows the value."""
        start = "import json, os, sys\ndef answer(value): print(json.dumps({'state': json.dumps(value)}), flush=True)\n"
        return self._write(name, f"#!{sys.executable} -IS\n{start}HERE = {str(self.folder)!r}\n{body}\n")

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def runner(
        self,
        *hooks: str | Hook,
        limits: Limits = PATIENT,
        environ: Mapping[str, str] | None = None,
        recorder: Recorder | None = None,
    ) -> HookRunner:
        made = [Hook(hook) if isinstance(hook, str) else hook for hook in hooks]
        return HookRunner(made, spawner=self._spawner, limits=limits, environ=environ, recorder=recorder)

    async def create(self, *hooks: str | Hook, limits: Limits = PATIENT, environ: Mapping[str, str] | None = None) -> HookResults:
        return await self.runner(*hooks, limits=limits, environ=environ).create(BOX, str(self.answers / "answer"), self.on_state)

    async def on_state(self, key: str, state: str) -> None:
        self.kept.append((key, state))

    def left(self) -> list[str]:
        """The answers that were not removed."""
        return sorted(os.listdir(self.answers))

    def _write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def hooks(tmp_path: Path, spawner: PlainSpawner) -> Hooks:
    return Hooks(tmp_path, spawner)
