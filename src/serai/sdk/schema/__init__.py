"""A function's signature as the JSON Schema that models see, and the JSON that they send as arguments for the function.

`parameters` reads signatures and docstrings and binds arguments, `hints` says what a type hint means, `values` has the kinds of
values, `validation` the JSON Schema keywords of `Annotated` and the errors of one reading.
"""
