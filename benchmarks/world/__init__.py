"""The table of released packages: their norms, judged as people install them."""
