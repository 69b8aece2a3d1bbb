"""Norms whose results are quantized: codes of a few bits, with scales."""
