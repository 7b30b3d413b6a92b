"""Freed memory stays with the process, because the next step needs as much again.

By default glibc returns a buffer of some megabytes to the kernel, which fills each page with zeros before it hands it
out again: up to a sixth of a step on a CPU.
"""
import ctypes

# https://man7.org/linux/man-pages/man3/mallopt.3.html
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
MOST = 2**25  # the largest mmap threshold that glibc accepts


def keep():
    """Make glibc keep freed memory; other C libraries are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(MMAP_THRESHOLD, MOST)
