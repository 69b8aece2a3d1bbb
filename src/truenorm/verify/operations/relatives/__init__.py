"""Relatives of the norms: grouped, gated and modulated ones, and those of partial variance."""
