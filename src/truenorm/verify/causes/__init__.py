"""Why a result is wrong: hypotheses are held against what came back, and one that fits is named.

A hypothesis is a result in float64 with one step done otherwise; the operation has them.
"""
