"""The reference backend: NumPy and Python integers, for portability and for reading."""
