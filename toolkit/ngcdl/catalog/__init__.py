"""What NVIDIA documents: releases, drivers, compute capabilities, vulnerable versions, well-known failures.

Every row names its source and how certain it is.
"""
