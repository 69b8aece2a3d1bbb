"""The backend "reference": NumPy and Python integers, for portability and for reading.

Each level of docs/error-analysis.md has its file: `narrow` (float64 with a rounding
test), `pairs` (double-double) and, for fast mode, `single`. `structure` knows what needs no
arithmetic.
"""
