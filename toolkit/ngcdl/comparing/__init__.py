"""The same training or command with one thing varied."""
