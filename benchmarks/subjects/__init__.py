"""Subjects of `benchmarks.world`, `benchmarks.recipes` and `benchmarks.campaign`.

The first two load a file by its path, in the Python environment that has its package.
"""
