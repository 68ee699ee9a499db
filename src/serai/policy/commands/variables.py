"""Variables that are more than data: to set one of them is to run something, or to change what a command's name means."""

from __future__ import annotations

import re
from typing import Final

from serai.policy.commands.reading import Command, Word
from serai.policy.commands.unwrapping import Inside, is_input

__all__ = ["declared", "evaluated", "special"]

# The value is a command that some program runs.
_RUN: Final = frozenset(
    {"EDITOR", "VISUAL", "PAGER", "BROWSER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "SUDO_ASKPASS", "SSH_ASKPASS", "PROMPT_COMMAND"}
    | {"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF"}
    | {"GIT_PROXY_COMMAND", "SHELL", "SUDO_EDITOR", "FCEDIT", "SYSTEMD_EDITOR", "SYSTEMD_PAGER", "SVN_EDITOR", "HGEDITOR"}
    | {"RSYNC_RSH", "CVS_RSH", "RSH", "TAPE_RSH", "NULLCMD", "READNULLCMD", "npm_config_script_shell", "npm_config_call"}
    | {"BAT_PAGER", "DELTA_PAGER", "GH_PAGER", "GH_EDITOR", "AWS_PAGER", "PSQL_PAGER", "PSQL_EDITOR", "MAILER"}
)
# A shell expands the value: when it shows a prompt, or to find the file that it reads first.
_EXPANDED = re.compile(r"R?PS[0-9]?|R?PROMPT[0-9]?|SPROMPT|MAILPATH|ENV")
# Whatever the value is, what runs from then on is not what the words say.
_CHANGES = re.compile(
    r"PATH|BASH_ENV|BASH_FUNC_.*|BASH_CMDS|BASH_ALIASES|BASHOPTS|SHELLOPTS|LD_.*|DYLD_.*|GCONV_PATH|FPATH|ZDOTDIR|TAR_OPTIONS"
    r"|GIT_CONFIG|GIT_CONFIG_(?!NOSYSTEM$).*|GIT_EXEC_PATH|GIT_TEMPLATE_DIR|GIT_ALLOW_PROTOCOL|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS"
    r"|EXINIT|VIMINIT|aliases|galiases|saliases|functions|commands",
    re.DOTALL,
)
# In zsh these are the same as PATH and FPATH; as plain variables they are common names elsewhere.
_TIED: Final = frozenset({"path", "fpath"})
_KNOWN_SHELLS = re.compile(r"(?:/usr)?(?:/local)?(?:/bin/)?(?:ba|da|z|k|mk|fi)?sh")


def special(name: str) -> bool:
    """Whether a variable of this name must not be set to what nobody sees."""
    return name in _RUN or _EXPANDED.fullmatch(name) is not None or _CHANGES.fullmatch(name) is not None


def evaluated(assigned: Word) -> Inside:
    """What runs because a variable is set like this."""
    name, _, value = assigned.text.partition("=")
    name = name.removesuffix("+")
    if _CHANGES.fullmatch(name) or (name in _TIED and value.startswith("(")):
        if value == "/dev/null" and name.startswith("GIT_CONFIG"):
            return Inside()
        return Inside(hidden=(f"`{name}` changes what is run from then on",))
    if name in _RUN:
        if not assigned.known:
            return Inside(hidden=(f"`{name}` is a command that is known only when it runs",))
        if name != "SHELL":
            return Inside(texts=(value,))
        # No text but a program, of which some take the base name alone.
        return Inside() if _KNOWN_SHELLS.fullmatch(value) else Inside((Command((Word(value),), more=True),))
    if _EXPANDED.fullmatch(name) and (not assigned.known or re.search(r"[$`]", value) or (name == "ENV" and is_input(value))):
        return Inside(hidden=(f"a shell expands `{name}`, and may run what it says",))
    return Inside()


def declared(assigned: Word, by: str) -> Inside:
    """What runs because `declare` and its kin set a variable: they read `(…)` as an array and expand it, quoted or not."""
    value = assigned.text.partition("=")[2]
    unknown = not assigned.known and by not in ("export", "readonly") and not re.match(r"[A-Za-z0-9_./:-]", value)
    if value.startswith("(") or unknown:
        return Inside(hidden=(f"`{by}` may expand a value once more",), assigned=(assigned,))
    return Inside(assigned=(assigned,))
