"""Norms: options, cases, exact answers, scales, recipes and hypotheses."""
