"""How cases are put to a subject: one by one, or by the workers of an executor."""
