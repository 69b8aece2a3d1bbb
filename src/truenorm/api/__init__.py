"""The public functions: check their arguments, choose a backend, run it."""
