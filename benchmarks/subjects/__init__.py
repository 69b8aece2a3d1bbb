"""Subjects of `benchmarks.world` and `benchmarks.recipes`.

The first two load a file by its path, in the Python environment that has its package.
"""
