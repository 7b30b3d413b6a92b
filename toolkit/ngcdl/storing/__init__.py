"""What is kept of runs and comparisons, and how it is found again."""
