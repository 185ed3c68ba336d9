"""The catalog: what a name stands for. Definitions are values; versions of the store hold them."""
