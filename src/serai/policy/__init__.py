"""Policy: rules that decide without a person, and the approvals that are put to one.

`rules` reads rules and says which are in force. `patterns` has the patterns over names, paths and hosts, `commands` those over
shell commands; `call_facts` is a call as rules see it. `engine` matches rules and decides, with the reasons. `approver` asks a
person where the policy says "ask", `decision_store` keeps decisions and pending approvals on disk, `suggested_rules` makes the
rule that a remembered decision is stored as.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
