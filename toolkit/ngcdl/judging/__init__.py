"""Judges whether an image can run on this host, or on the nodes of a cluster."""
