"""Grading: what came back is held against the exact answers, and becomes a report."""
