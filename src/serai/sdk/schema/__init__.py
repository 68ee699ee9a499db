"""A function's signature as the JSON Schema that models see, and what they send read back into arguments for it.

`parameters` joins the parts: `signatures` (what a function takes), `hints` (what a type hint means), `kinds` and `shapes` (the
values it lets in), `keywords` (what `Annotated` adds), `docstrings`, and `reading` (one reading of what a model
sent).
"""
