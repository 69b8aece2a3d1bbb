"""Gradients of gamma and beta over some rows of a batch, which merge exactly.

See docs/use/scale.md.
"""
