"""Norms of released packages as subjects of the judge; each runs in the environment of its own."""
