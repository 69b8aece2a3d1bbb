"""Commands that measure time; README.md says what each measures and how to read it."""
