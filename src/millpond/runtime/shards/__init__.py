"""A group of derivations advanced in shards: by several workers, each with a part of the keys."""
