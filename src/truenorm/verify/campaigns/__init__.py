"""Many cases, drawn from the families: of each, numbers are kept, and of some that fail, more."""
