"""The C core: float32 rows, correctly rounded and fast, on several threads."""
