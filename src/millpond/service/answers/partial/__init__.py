"""Answers in parts: `INVOKE query BUDGET …` gives the most promising part of an answer first."""
