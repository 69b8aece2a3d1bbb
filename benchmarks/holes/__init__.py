"""Tests with the inputs and tolerances of other projects, and what ``truenorm audit`` says.

Each file here imitates the tests of one project: shapes, distributions and tolerances are theirs,
the arithmetic is NumPy's, and no line of theirs is in it. What is tested are the right kernels of
`benchmarks.holes.kernels`; so nothing is said of the kernels of these projects.
"""
