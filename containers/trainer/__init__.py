"""The program that trains inside a container: `python -m trainer`. Its contract is the docstring of events.py."""
