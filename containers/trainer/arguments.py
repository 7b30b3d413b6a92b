"""Parses argv, and fills in the workload's defaults for options that were not given."""
from __future__ import absolute_import, division, print_function

import argparse
import binascii
import importlib
import os
import pkgutil
import re
import sys
import time

from . import choices, feed, frameworks, teacher, trial, workloads

MOST_THREADS = 4096  # no machine has as many processors, and a hundred thousand would exhaust the system


def arguments(argv):
    parser = argparse.ArgumentParser(  # its own usage names all options, in twenty lines before every error
        prog="python -m trainer", usage="%(prog)s WORKLOAD (--out DIR | --runs DIR) [options]; -h lists them",
        description="Train a workload; see trainer/events.py.")
    parser.add_argument("workload", nargs="?", choices=names(workloads))
    parser.add_argument("--list", action="store_true", help="print the workloads as JSON")
    parser.add_argument("--out", metavar="DIR", help="the run's folder")
    parser.add_argument("--runs", metavar="DIR", help="make the run's folder in this one")
    parser.add_argument("--framework", choices=["auto"] + names(frameworks), default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--data", metavar="DIR|synthetic", default="synthetic")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=above_zero(int), help="the step to reach")
    length.add_argument("--epochs", type=above_zero(int), help="instead of --steps: train this many epochs")
    parser.add_argument("--seconds", type=above_zero(float), help="stop this many seconds after the first step")
    parser.add_argument("--batch", type=batch_size, help="images or sequences per step, or the word largest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clip", type=above_zero(float), help="clip the gradients to this global norm")
    parser.add_argument("--threads", type=above_zero(int, MOST_THREADS), help="CPU threads; default: all")
    parser.add_argument("--feed", choices=feed.FEEDS, help="how batches reach the device; see feed.py")
    parser.add_argument("--precision", choices=("auto", "float32", "tf32", "amp"), default="auto")
    parser.add_argument("--compile", action="store_true", help="compile with torch.compile or XLA")
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--channels-last", action="store_true", default=None, help="the images' memory layout")
    layout.add_argument("--channels-first", dest="channels_last", action="store_false")
    parser.add_argument("--autotune", action="store_true", help="choose the fastest settings by trial; see trial.py")
    parser.add_argument("--choices", metavar="DIR", help="where --autotune remembers what it chose")
    parser.add_argument("--trial-seconds", type=above_zero(float), default=trial.BUDGET_SECONDS,
                        help="time limit of --autotune's trials together")
    parser.add_argument("--times", type=above_zero(int), default=1, help="train N times (if the workload has TIMES)")
    parser.add_argument("--trace", type=above_zero(int), metavar="N", help="write trace.json of the first N steps")
    parser.add_argument("--log-frequency", type=above_zero(int), help="steps between lines of output")
    parser.add_argument("--queue-fraction", type=above_zero(float, 1), default=0.4)
    parser.add_argument("--gpu-memory-fraction", type=above_zero(float, 1))
    parser.add_argument("--checkpoint-seconds", type=above_zero(float), default=600.0)
    parser.add_argument("--resume", metavar="DIR", help="continue from the newest good checkpoint there")
    parser.add_argument("--no-eval", action="store_true")
    parser.add_argument("--no-dropout", action="store_true", help="leave dropout out, to compare frameworks")
    parser.add_argument("--teacher", choices=teacher.WAYS, help="where and when the teacher computes (ahead)")
    parser.add_argument("--record", action="store_true", help="write run.json, samples.jsonl and log.txt")
    parser.add_argument("--samples", type=word, metavar="NAME", help="write samples-NAME.jsonl")
    parser.add_argument("--replicas", type=above_zero(int), default=1, help="how many train together; see replicas.py")
    asked = parser.parse_args(argv)
    if not asked.list:
        if not asked.workload or bool(asked.out) == bool(asked.runs):
            parser.error("a workload and one of --out and --runs are needed")
        if not asked.data:
            parser.error("--data needs a folder, or the word synthetic")
        if asked.times > 1 and not hasattr(imported(asked.workload), "TIMES"):
            parser.error("--times does not apply to %s" % asked.workload)
        asked.nodes, asked.node = place()
        if not 0 <= asked.node < asked.nodes:
            parser.error("NGCDL_NODES must be the number of machines, and NGCDL_NODE which of them this is, from 0")
        asked.argv = sys.argv[1:] if argv is None else list(argv)
        fill(asked)
    return asked


def place():
    """Return how many machines there are, and which of them this is; (0, 0) if the environment gives no numbers."""
    try:
        return int(os.environ.get("NGCDL_NODES") or 1), int(os.environ.get("NGCDL_NODE") or 0)
    except ValueError:
        return 0, 0


def fill(asked):
    """Fill in the workload's defaults and name the run's folder."""
    workload = imported(asked.workload)
    asked.largest = asked.batch == "largest"
    asked.batch = workload.BATCH if asked.largest or not asked.batch else asked.batch
    asked.log_frequency = asked.log_frequency or getattr(workload, "LINES", 10)
    if not (asked.steps or asked.epochs or asked.seconds):
        asked.steps = workload.STEPS
    asked.is_feed_free, asked.feed = asked.feed is None, asked.feed or "ahead"
    asked.tuned, asked.variables = None, [name for name in choices.VARIABLES if name in os.environ]
    asked.data = None if asked.data == "synthetic" else asked.data
    asked.dataset = read_by(workload)
    asked.teacher = asked.teacher or ("ahead" if hasattr(workload, "TEACHER") else None)
    asked.gpu_memory_fraction = asked.gpu_memory_fraction or getattr(workload, "MEMORY_FRACTION", None)
    if asked.runs:
        made = time.strftime("%Y%m%d-%H%M%S", time.gmtime())  # UTC, as ngcdl names runs: names sort by time
        unique = binascii.hexlify(os.urandom(2)).decode("ascii")
        asked.out = os.path.join(asked.runs, "%s-%s-%s" % (made, asked.workload, unique))


def read_by(workload):
    """Return what --data must hold: "cifar10" or "pictures"; None if the workload always makes its own data."""
    return getattr(workload, "DATA_FOLDER", "cifar10" if workload.DATA == "cifar10" else None)


def batch_size(text):
    return text if text == "largest" else above_zero(int)(text)


def word(text):
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9_.-]*$", text):
        raise ValueError(text)
    return text


def above_zero(kind, most=None):
    """Return an argparse type for numbers above 0 and up to most."""
    def read(text):
        value = kind(text)
        if not 0 < value <= (most or sys.float_info.max):
            raise ValueError(text)
        return value
    read.__name__ = "positive %s" % kind.__name__ + (" up to %s" % most if most else "")
    return read


def names(package):
    """Return the sorted names of a package's modules: every module in its folder can be chosen."""
    return sorted(name.replace("_", "-") for _, name, _ in pkgutil.iter_modules(package.__path__))


def imported(name):
    return importlib.import_module("trainer.workloads." + name.replace("-", "_"))
