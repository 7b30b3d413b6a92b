"""What did one run do? Figures and known failures, from its record."""
