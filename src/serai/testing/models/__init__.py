"""Fakes of the model APIs on loopback: Anthropic's Messages, OpenAI's Chat Completions and Responses.

The real SDKs and the real agent programs run against them. The prompt itself says what is answered, in the script language
of `serai.agents.models.parrot`, so the fakes keep no state and the same request gets the same bytes; requests are checked
as the real APIs check them. `python -m serai.testing.models` runs them by themselves. Needs h11, which the SDKs bring.
"""

from __future__ import annotations

from serai.testing.models.reply import FAULTS, Fault
from serai.testing.models.server import FakeModels, Seen

__all__ = ["FAULTS", "FakeModels", "Fault", "Seen"]
