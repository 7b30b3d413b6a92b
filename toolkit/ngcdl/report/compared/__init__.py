"""What did a comparison find? Ratios with their spread, or why there are none."""
