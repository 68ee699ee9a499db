"""An agent that plays a script, without program, model or network: for demos and for tests of code around an agent.

`script` has the steps of a script and their TOML and JSON forms, `driver` plays them.
"""
