"""Whether calls that must give the same bits do."""
