"""Somebody's own tests, run with wrong kernels in the place of theirs: which of them pass.

Of this package a session of pytest imports `replaced` and what that needs; `running` starts those
sessions and tells what came of them.
"""
