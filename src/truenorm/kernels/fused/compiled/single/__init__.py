"""Fast mode: rows in float32 where they allow it."""
