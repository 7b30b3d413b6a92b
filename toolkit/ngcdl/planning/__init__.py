"""What was typed, checked, as the request of a run."""
