"""Memory that was freed stays with the process, for the next step asks for as much again.

As glibc has it, a buffer of some megabytes goes back to the kernel, which fills each page with zeros before it gives it
out anew: up to a sixth of a step on a CPU.
"""
import ctypes

# https://man7.org/linux/man-pages/man3/mallopt.3.html
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
MOST = 2**25  # of what is not mapped by itself: glibc takes no more


def keep():
    """Have glibc keep what is freed; another C library does as it likes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(MMAP_THRESHOLD, MOST)
