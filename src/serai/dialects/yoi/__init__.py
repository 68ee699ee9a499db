"""The dialect `yoi`: WASM component plugins with grants (seed 003)."""
