"""The backend "reference": NumPy and Python integers, for portability and for reading.

Each level of docs/error-analysis.md has its file: `working_precision` (float64 with a rounding
test), `pairs` (double-double), `integers` (exact). `structure` knows what needs no arithmetic.
"""
