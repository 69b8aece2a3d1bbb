"""Exact answers: the one place that is asked for them, how they are rounded, and kept."""
