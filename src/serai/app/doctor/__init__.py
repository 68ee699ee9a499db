"""The checks of `serai doctor`.

`checks` has one function for each section of its page, `redaction` removes secrets and private names from what is printed.
"""
