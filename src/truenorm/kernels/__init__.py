"""The backends: what computes rows. They know rows and columns, not axes or public types."""
