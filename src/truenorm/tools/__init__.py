"""What commands, benchmarks and the judge share: text, JSON, the machine, progress, a stopwatch.

It is the lowest floor: it imports nothing of the package, and everything may import it. Its files
need the standard library alone, but for those that say so.
"""
