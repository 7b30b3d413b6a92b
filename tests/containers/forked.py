"""A process with a framework loaded and the synthetic images made, which forks a trainer on each request.

    forked.py FRAMEWORK

Each line of stdin is JSON: [arguments, images, path for stdout, path for stderr]; each answer is the trainer's exit
code. images: {split: how many to make instead}. Forking pays because loading a framework and making the images takes
as long as most tests' training; start() tests `python -m trainer` itself.
"""

import functools
import importlib
import json
import os
import sys

from trainer import __main__ as entry
from trainer import data


def main(framework):
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1"}
    importlib.import_module("trainer.frameworks." + framework)
    data.synthetic = functools.lru_cache(data.synthetic)
    for split in data.SYNTHETIC:
        data.synthetic(split)
    for line in sys.stdin:
        child = os.fork() or trained(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def trained(words, images, *places):
    """Run the trainer in this process and exit with its code."""
    cached, fresh = data.synthetic, data.synthetic.__wrapped__
    data.SYNTHETIC.update((split, (count, data.SYNTHETIC[split][1])) for split, count in images.items())
    data.synthetic = lambda split: (fresh if split in images else cached)(split)
    for number, path in enumerate(places, 1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    try:
        code = entry.main(words)
    except SystemExit as stop:
        code = stop.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
