"""Grading: compare records with exact answers, and write a report."""
