"""Fast mode: the last bit for speed."""
