"""INVOKE: the rows that windows hold at the instant of an answer."""
