"""Choosing a plan: strategies, rewritings, statistics and cost."""
