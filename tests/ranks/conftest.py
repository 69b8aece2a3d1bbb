"""Settings of the tests that start ranks."""

collect_ignore = ["merging.py"]
"""A program, whose import would start MPI in the process of pytest."""
