"""Exact answers that were computed once, and are kept."""
