"""Exact answers: compute, round and cache what each case must give."""
