"""What drivers of agent programs share; no agent is known here."""
