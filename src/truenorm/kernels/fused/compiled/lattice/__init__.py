"""dgamma on the lattice: terms as integers."""
