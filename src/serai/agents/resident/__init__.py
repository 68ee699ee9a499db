"""The resident: Serai's own agent loop over a model.

`driver` has the driver and its background runs, `factory` opens a session with defaults. `run` is the work of one prompt:
`model_call` asks the model, `tool_calls` decides and runs its calls, `compaction` shortens the conversation. `run_context` has
what a run works with, `conversation` the messages and what they cost.
"""
