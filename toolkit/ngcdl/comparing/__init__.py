"""Runs the same training or command several times, with one thing varied."""
