"""Why a result is wrong: hypotheses are held against what came back, and one that fits is named.

A hypothesis is a result in float64 with one step done otherwise; the operation has them. What is
no matter of arithmetic has modules of its own here, which look at what other calls gave.
"""
