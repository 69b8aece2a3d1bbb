"""Sums of integers on one lattice: exact, and the same whatever the order of the rows."""
