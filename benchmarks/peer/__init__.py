"""What ``python -m benchmarks.peers`` is made of.

`worker`, `inputs` and `implementations` run in the environment of a peer, with NumPy and that peer
alone; the other modules run in the command's own process and need the standard library alone.
"""
