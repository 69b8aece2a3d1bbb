"""Level 2: rows in double-double."""
