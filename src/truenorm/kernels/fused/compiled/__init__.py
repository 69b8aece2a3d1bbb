"""Compiled functions and the constants they share: what is here decides what is compiled."""
