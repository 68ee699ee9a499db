"""What a shell command runs, as far as it can be seen without running it: for the rules of the policy engine.

Two different questions are answered, each by what can be trusted with it. What an allow rule may match is decided by a small strict
scanner (`Reading.simple`). What a deny rule finds is looked for everywhere, with the grammar if it is installed, and behind
wrappers; where that is not certain, the answer is `maybe`.
"""

from serai.policy.commands.command_pattern import CommandPattern
from serai.policy.commands.reader import read_command
from serai.policy.commands.shell_text import CommandReading, ShellCommand, ShellWord

__all__ = ["CommandPattern", "CommandReading", "ShellCommand", "ShellWord", "read_command"]
