"""Findings that are known: a file of them, and a report held against it."""
