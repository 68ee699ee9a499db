"""What a shell command runs, as far as it can be seen without running it: for the rules of the policy engine.

Two questions have two answers. What an allow rule may match is decided by a small strict scanner (`CommandReading.simple`). What a
deny rule finds is searched everywhere, with bash's grammar if it is installed, and behind wrappers; where that is not certain, the
answer is `maybe`.

`reader` is the way in and has the pattern of a rule, `shell_text` the words, the lexer and the scanners, `grammar` uses
tree-sitter. `wrappers`, `arguments` and `shell_builtins` find commands inside commands.
"""

from serai.policy.commands.reader import CommandPattern, read_command
from serai.policy.commands.shell_text import CommandReading, ShellCommand, ShellWord

__all__ = ["CommandPattern", "CommandReading", "ShellCommand", "ShellWord", "read_command"]
