"""Two subjects that should have equal bits: where they differ, and which is nearer."""
