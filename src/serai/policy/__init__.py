"""Rules that decide without a person, and what is asked of one.

`rules` (as they are written) and `loading` (which are in force); `commands`, `paths`, `hosts`, `globs` (what patterns mean);
`subject` and `matching` (whether a rule means a call); `engine` (which decides, and why); `memory` and `approvals` (what was
decided and what waits, on disk); `remembering` (what an answer is about); `desk` (asks whoever can answer) and `rulings` (what
came of it); `permissions` and `permitting` (the same in the words of seed 002).
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.policy.desk import Desk, Ruling
    from serai.policy.engine import Judgement, Policy, Remembered
    from serai.policy.loading import load
    from serai.policy.memory import Decisions, Pending
    from serai.policy.remembering import remember, rule_as
    from serai.policy.rules import Rule, Rules
    from serai.policy.subject import Situation

__all__ = [
    "Decisions",
    "Desk",
    "Judgement",
    "Pending",
    "Policy",
    "Remembered",
    "Rule",
    "Rules",
    "Ruling",
    "Situation",
    "load",
    "remember",
    "rule_as",
]

_HOMES = {
    "Decisions": "memory",
    "Desk": "desk",
    "Judgement": "engine",
    "Pending": "memory",
    "Policy": "engine",
    "Remembered": "engine",
    "Rule": "rules",
    "Rules": "rules",
    "Ruling": "desk",
    "Situation": "subject",
    "load": "loading",
    "remember": "remembering",
    "rule_as": "remembering",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
