"""Runs: a case is put to a subject, in this process, in another one, or as a program."""
