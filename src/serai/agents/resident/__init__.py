"""Our own agent loop.

`resident` is the driver, `run` one prompt's work, made of `asking` (the model), `calling` (its tools) and `compacting`;
`background` runs on the side. Values in, values out: `history`, `prompting`, `toolset`, `spending`. `house` is what it works
with, `joining` says what the app may join it with, `opening` chooses the rest.
"""
