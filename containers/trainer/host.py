"""What the machine and the container have, and how much is in use: /proc and the control group. None means unknown."""

from __future__ import absolute_import, division, print_function

import multiprocessing
import os
import platform

CGROUP = "/sys/fs/cgroup"
MOST_CORES = 512


def processor():
    """Return the CPU's model name."""
    return cpuinfo("model name") or platform.machine() or "CPU"


def cpuinfo(name):
    """Return the value of this name for the first processor in /proc/cpuinfo; None if there is no such line."""
    for line in (text("/proc/cpuinfo") or "").splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return None


def usable_cores():
    """Return how many cores this process may use."""
    return len(usable())


def physical_cores():
    """Return how many physical cores the usable processors are threads of; None if nothing reports it."""
    siblings = [text("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu) for cpu in usable()]
    return len(set(siblings)) if all(siblings) else None


def usable():
    """Return the indices of the processors that this process may use."""
    known = getattr(os, "sched_getaffinity", None)  # Python 2.7 has none
    return known(0) if known else range(multiprocessing.cpu_count())


def machine():
    """Return what run.json records about the machine, without its GPUs."""
    return {"hostname": platform.node(), "cpu": processor(), "cores": multiprocessing.cpu_count(),
            "memory_bytes": memory().get("MemTotal"), "kernel": platform.release()}


def jiffies():
    """Return [(busy, all)] in jiffies since the machine started, for all cores together, then for each of the first
    512; and how many other threads are running or runnable. [] and None if /proc does not report them."""
    found, running = [], None
    for line in (text("/proc/stat") or "").splitlines():
        if line.startswith("cpu") and len(found) <= MOST_CORES:
            values = [int(value) for value in line.split()[1:9]]  # not the guests' columns, which user and nice include
            found.append((sum(values) - values[3] - values[4], sum(values)))
        elif line.startswith("procs_running "):
            running = max(int(line.split()[1]) - 1, 0)  # without this thread
    return found, running


def memory():
    """Return /proc/meminfo in bytes."""
    lines = [line.split() for line in (text("/proc/meminfo") or "").splitlines()]
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if len(line) == 3}


def memory_used():
    known = memory()
    if "MemAvailable" not in known:
        return None
    return known["MemTotal"] - known["MemAvailable"]


class Container(object):
    """The control group that this process runs in: version 1 or 2, or none that can be read.

    The machine's root group counts as none, because its figures are the machine's.
    """

    def __init__(self, root=CGROUP, membership="/proc/self/cgroup"):
        self.groups = {}
        for line in (text(membership) or "").splitlines():
            _, names, path = line.split(":", 2)
            for name in names.split(","):
                self.groups[name] = os.path.join(root, names), path
        if "" in self.groups:
            self.groups[""] = root, self.groups[""][1]

    def cpu_seconds(self):
        """Return the CPU time that the container has used."""
        usage = fields(self.read("", "cpu.stat")).get("usage_usec")
        if usage is not None:
            return usage / 1e6
        usage = self.read("cpuacct", "cpuacct.usage")
        return int(usage) / 1e9 if usage else None

    def cpu_limit(self):
        """Return how many cores' time the container may use at most; None without a limit."""
        words = (self.read("", "cpu.max") or "").split()
        quota, period = words if len(words) == 2 else (
            self.read("cpu", "cpu.cfs_quota_us") or "", self.read("cpu", "cpu.cfs_period_us") or "")
        return int(quota) / int(period) if quota.strip().isdigit() and period.strip().isdigit() else None

    def memory_bytes(self):
        """Return the bytes in use, shared memory and tmpfs included, but not the file cache, which the kernel takes
        back when it needs memory."""
        used, of_all = self.read("", "memory.current"), ""
        stat = self.read("", "memory.stat")
        if not used:
            used, of_all = self.read("memory", "memory.usage_in_bytes"), "total_"
            stat = self.read("memory", "memory.stat")
        told = fields(stat)
        cache = [told.get(of_all + name) for name in ("inactive_file", "active_file")]
        return max(int(used) - sum(cache), 0) if used and None not in cache else None

    def memory_limit_bytes(self):
        """Return the most that the container can get: its limit, or without one the machine's memory."""
        limit = (self.read("", "memory.max") or self.read("memory", "memory.limit_in_bytes") or "").strip()
        total = memory().get("MemTotal")
        return min(int(limit), total) if limit.isdigit() and total else total if limit else None

    def memory_pressure_percent(self):
        """Return the share of the last 10 s in which some thread waited for memory; only version 2 reports it."""
        for line in (self.read("", "memory.pressure") or "").splitlines():
            if line.startswith("some avg10="):
                return float(line.split()[1].split("=")[1])
        return None

    def memory_oom_kills(self):
        """Return how many of the container's processes the kernel has killed because memory ran out."""
        events = self.read("", "memory.events") or self.read("memory", "memory.oom_control")
        return fields(events).get("oom_kill")

    def read(self, controller, name):
        """Read a file of the group: at its path, or, if a container sees only its own group, at the root."""
        if controller not in self.groups:
            return None
        top, path = self.groups[controller]
        for place in [top + path] * (path != "/") + [top] * self.is_own(controller, top, path):
            content = text(os.path.join(place, name))
            if content is not None:
                return content
        return None

    @staticmethod
    def is_own(controller, top, path):
        # version 2: the machine's root group has no memory.current
        # version 1: a container reads its path in membership, but has no folder there
        return os.path.exists(os.path.join(top, "memory.current")) if controller == "" else path != "/"


def fields(content):
    """Parse lines of "name number" into a dict."""
    lines = [line.split() for line in (content or "").splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def text(path):
    try:
        with open(path) as file:
            return file.read()
    except (EnvironmentError, UnicodeDecodeError):
        return None
