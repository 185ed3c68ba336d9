"""The catalog: names and their definitions, which are values held by the store's versions."""
