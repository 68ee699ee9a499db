"""Whether a guest keeps to its protocol: for authors in any language, as `serai guest check PATH` and for pytest.

    @pytest.mark.parametrize("rule", conformance.RULES)
    def test_it_conforms(rule):
        conformance.assert_conforms("my-extension", rule)

A check starts the guest many times, once for each way in which a host may treat it, and looks at every frame. It calls no tool with
arguments that fit it, unless it is given them: `check(path, calls={"weather": {"city": "Bern"}})`. Those it calls dozens of times,
so give only what does no harm.
"""

from __future__ import annotations

from serai.testing.conformance.checker import RULES, UnknownRule, assert_conforms, check, environment, rules
from serai.testing.conformance.findings import Finding, Patience, Report, Rule, Status

__all__ = [
    "RULES",
    "Finding",
    "Patience",
    "Report",
    "Rule",
    "Status",
    "UnknownRule",
    "assert_conforms",
    "check",
    "environment",
    "rules",
]
