"""Checks what was typed, and turns it into the request for a run."""
