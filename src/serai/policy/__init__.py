"""Rules that decide without a person, and what is asked of one.

`rules` (as they are written) and `loading` (which are in force); `commands`, `paths`, `hosts`, `globs` (what patterns mean);
`subject` and `matching` (whether a rule means a call); `engine` (which decides, and why); `memory` and `approvals` (what was
decided and what waits, on disk); `remembering` (what an answer is about); `desk` (asks whoever can answer) and `rulings` (what
came of it); `permissions` and `permitting` (the same in the words of seed 002).
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
