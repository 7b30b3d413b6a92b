"""What NVIDIA documents: releases, drivers, compute capabilities, versions with known holes, famous failures.

Every row has a source and says how sure it is.
"""
