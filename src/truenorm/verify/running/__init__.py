"""Run a subject on a case: in this process, in another one, or as a program."""
