"""Exact answers and tolerances for somebody's own tests, as a call."""
