"""Audit of a test suite: run it with wrong kernels, and report those that pass.

A session of pytest imports only `replacing` and its imports; `running` starts these sessions.
"""
