"""Exact answers: the one place that is asked for them, and how a number is rounded once."""
