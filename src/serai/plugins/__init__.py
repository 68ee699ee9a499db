"""WASM plugins on disk: manifests, packages, grants and what they allow. It imports no dialect.

`manifest`, `package` and `untrusted_text` read what a plugin brings; `grants`, `resolution` and `authorization` say what it may
do; `targets` compares URLs, `bounds` has the limits. Only `package_store` and `grants_file` touch files; the others are data in,
data out.
"""
