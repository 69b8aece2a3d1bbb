"""Reports for people and for programs, and cases as files."""
