"""The `serai` command and the table of its sub-commands; each is imported when it is called, so that `--help` is quick."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

from serai import __version__
from serai.cli.entry import Interrupted

# Name: its home, and its line in the help. A test compares the line with the first of the command's own help.
COMMANDS = {
    "agent": ("serai.cli.agent:agent", "List the agents there are, whether each can be used here, and what it can do."),
    "box": ("serai.cli.box:box", "Make, use, halt and destroy boxes: sandboxes with hooks at their birth and death."),
    "command": ("serai.cli.command:command", "List the commands that guests offer, and run one."),
    "completion": ("serai.cli.completion:completion", "Print the script that lets a shell complete commands, options and values."),
    "config": ("serai.cli.config:config", "Show what is set here and where each value comes from."),
    "demo": ("serai.cli.demo:demo", "Tell one run of Serai as a story, with real child processes."),
    "doctor": (
        "serai.cli.doctor:doctor",
        "Look at all that Serai needs here: what works, what would be used and why, what is broken.",
    ),
    "ext": ("serai.cli.guest:ext", "The same as `serai guest`, in the words of extensions' authors."),
    "guest": ("serai.cli.guest:guest", "Show, add, remove and switch guests, read their logs; begin and check one of your own."),
    "hook": ("serai.cli.hook:hook", "Try a hook of boxes, and check that it keeps to the protocol."),
    "mcp-attach": ("serai.cli.mcp_attach:mcp_attach", "Bring an agent's MCP client to the tools of a running Serai."),
    "model": ("serai.cli.model:model", "List the models there are, what they need, and which one would be used."),
    "policy": ("serai.cli.policy:policy", "Try the rules, list them, and answer what waits for an approval."),
    "record": ("serai.cli.record:record", "Show, export, replay and remove recordings: every frame on every wire."),
    "run": ("serai.cli.run:run_command", "Have an agent do something, with the guests of this place."),
    "session": ("serai.cli.session:session", "List, show and export sessions: the conversations with agents."),
    "tool": ("serai.cli.tool:tool", "List the tools that guests offer, and call one."),
    "trust": ("serai.cli.trust:trust", "Let a project start its guests and bring its rules and settings, as they are now."),
}


class LazyCommand(click.Command):
    """Stands for a command until it is called, so that the help of all does not import any."""

    def __init__(self, name: str, home: str, line: str) -> None:
        super().__init__(name, short_help=line)
        self.home = home

    def load(self) -> click.Command:
        module, attribute = self.home.split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The real command's; click goes on with what the context belongs to."""
        return self.load().make_context(info_name, args, parent, **extra)


class RootGroup(click.Group):
    """Lets a Ctrl-C through to `serai.cli.main`, which ends the command with it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="serai %(version)s")
@click.pass_context
def serai(context: click.Context) -> None:
    """Takes in any extension, drives any coding agent, under one policy, with every wire on record."""
    context.color = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


for _name, (_home, _line) in COMMANDS.items():
    serai.add_command(LazyCommand(_name, _home, _line))
