"""Cases of one's own, measured some rows at a time: no exact answer is larger than a row."""
