"""One run, from its choice of cards to its closed record."""
