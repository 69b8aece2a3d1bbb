"""Kernels for graphics processors: one source in C, and who compiles and launches it."""
