"""Level 1: rows of at most float32, in float64 with the rounding test."""
