"""The public functions, their arguments and what they return."""
