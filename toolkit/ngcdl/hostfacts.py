"""What this host and its engine are, as far as an image's verdict depends on it."""
