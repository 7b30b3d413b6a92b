"""Shows runs and comparisons as pages, charts and tables."""
