"""Sums over rows: while backward sweeps, where those fail, and on the lattice."""
