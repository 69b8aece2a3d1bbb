"""Sums over rows, one for each column."""
