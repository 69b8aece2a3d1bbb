"""One driver for all backends: what happens to rows, whoever computes them.

Backends see finite parameters and say what became of each row. What has no result, what is not
finite, what the rounding test refused and what has changed since forward is dealt with here.
"""
