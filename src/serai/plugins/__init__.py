"""WASM plugins on disk: manifests, packages, grants and what they allow. No dialect is known here.

Only `package_store` touches files; everything else is data in, data out.
"""
