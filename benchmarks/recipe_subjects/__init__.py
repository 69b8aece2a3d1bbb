"""What ``python -m benchmarks.recipes`` looks at that needs a file; most are paths to real code.

Each file is executed in the process of a subject, by the Python that has its package.
"""
