"""Can this image run here: on this host, or on the nodes of a cluster?"""
