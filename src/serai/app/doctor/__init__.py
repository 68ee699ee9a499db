"""The checks of `serai doctor`: `checks` has one function for each section of its page.

`model_choice` says which model would run and why, `redaction` removes secrets and private names from what is printed.
"""
