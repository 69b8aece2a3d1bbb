"""Grouped, gated and modulated norms, and norms of partial variance."""
