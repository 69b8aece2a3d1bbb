"""Fast mode for float64 data: plain float64, with compensated sums."""
