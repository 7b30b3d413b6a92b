"""How are runs and comparisons shown? Pages, charts and tables."""
