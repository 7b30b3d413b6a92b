"""NVIDIA's training containers in one line: sign in, pull, launch, train, measure, record."""

__version__ = "0.1.0"
