"""Pages: a report for people and for programs, and cases as files."""
