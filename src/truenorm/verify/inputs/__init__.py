"""Inputs of cases: patterns that fill arrays, families of cases, and named cases."""
