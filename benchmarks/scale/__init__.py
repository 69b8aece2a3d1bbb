"""What exact sums of gradients cost on many ranks, and how often a column is undecided."""
