"""Find the likely cause of a wrong result: compare hypotheses with the evidence."""
