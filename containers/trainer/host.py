"""What the machine and the container have, and how much of it is in use; from /proc and the control group. None is unknown."""
from __future__ import absolute_import, division, print_function


def processor():
    """Give the CPU's model name."""
    for line in (text("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "CPU"


def text(path):
    try:
        with open(path) as file:
            return file.read()
    except (EnvironmentError, UnicodeDecodeError):
        return None
