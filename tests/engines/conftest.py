"""Settings of the tests that start engines."""

collect_ignore = ["told.py"]
"""A program, whose import would start MPI in the process of pytest."""
