"""The record that the trainer keeps itself if nothing outside watches it: compose, Slurm, Kubernetes (--record).

run.json, written whole at the start and at the end:
    format 1, id (the folder's name), status (running|finished|failed|interrupted), started, finished (null at first),
    exit_code (null|n), oom_killed (null: unknown from inside), reason (null|text), engine (NGCDL_ENGINE or "trainer"),
    image {reference (NGCDL_IMAGE), digest (NGCDL_IMAGE_DIGEST)}, dataset (cifar10|pictures|synthetic),
    machine {hostname, cpu, cores, memory_bytes, kernel, driver,
             gpus [{index, name, uuid, memory_bytes, compute_capability}] (null: no visible driver)},
    spec: what was asked for, {image (NGCDL_IMAGE), replicas (per machine), nodes (machines), workload {name, steps,
    batch, largest_batch, seed, data, device, evaluate, threads, feed, seconds, epochs, precision, compile,
    channels_last, teacher, times, clip, trace, autotune}}, overridden by NGCDL_SPEC, a JSON object; notes [text]
log.txt is what the trainer printed on stdout; sampler.py specifies samples.jsonl, events.py events.jsonl.
If run.json says "running" but no trainer is running, the run was killed.
"""
from __future__ import absolute_import, division, print_function

import json
import os
import sys
import time

from . import host, nvml
from .events import Appended, Voice, complain, line, stopped_by
from .files import write_whole
from .sampler import Sampler

FORMAT = 1


class Record(object):
    """The record of a run, kept up to date from its creation to close()."""

    def __init__(self, asked):
        self.folder = asked.out
        self.values = first(asked)
        self.save()
        self.log = Appended(os.path.join(self.folder, "log.txt"))
        self.voice = Voice(sys.stdout, self.log)
        self.sampler = Sampler(os.path.join(self.folder, "samples.jsonl"))
        self.sampler.start()

    def save(self):
        write_whole(os.path.join(self.folder, "run.json"), line(self.values))

    def close(self, exit_code, reason):
        """Write how the run ended, and return the exit code: 1 instead of 0 if that can't be written."""
        self.sampler.stop()
        self.log.close()
        status = {0: "finished", 130: "interrupted", 143: "interrupted"}.get(exit_code, "failed")
        self.values.update(status=status, finished=time.time(), exit_code=exit_code, reason=reason)
        if self.sampler.failure:
            self.values["notes"].append(self.sampler.failure)
        try:
            self.save()
        except EnvironmentError as error:
            complain(stopped_by(error, "run.json").message)
            return exit_code or 1
        return exit_code


def first(asked):
    """Return the content of run.json while the trainer runs."""
    spec, notes = specified(asked)
    return {
        "format": FORMAT, "id": os.path.basename(os.path.abspath(asked.out)),
        "status": "running", "started": time.time(), "finished": None,
        "exit_code": None, "oom_killed": None, "reason": None,
        "engine": environment("NGCDL_ENGINE") or "trainer",
        "image": {"reference": environment("NGCDL_IMAGE"), "digest": environment("NGCDL_IMAGE_DIGEST")},
        "dataset": asked.dataset if asked.data else "synthetic",
        "machine": dict(host.machine(), **graphics()), "spec": spec, "notes": notes,
    }


def environment(name):
    return os.environ.get(name) or None


def specified(asked):
    """Return what was asked for, and a note if NGCDL_SPEC could not be read."""
    workload = {name: getattr(asked, name) for name in (
        "steps", "batch", "seed", "device", "threads", "feed", "seconds", "epochs", "precision", "compile",
        "channels_last", "teacher", "times", "clip", "trace", "autotune")}
    workload.update(name=asked.workload, data=asked.data or "synthetic", evaluate=not asked.no_eval,
                    largest_batch=asked.largest)
    spec = {"image": environment("NGCDL_IMAGE"), "replicas": asked.replicas, "nodes": asked.nodes, "workload": workload}
    text = environment("NGCDL_SPEC")
    try:
        given = json.loads(text) if text else {}
        workload.update(given.pop("workload", None) or {})
        spec.update(given)
        return spec, []
    except (ValueError, AttributeError, TypeError) as error:
        return spec, ["NGCDL_SPEC is not a JSON object: %s" % error]


def graphics():
    with nvml.opened() as library:
        if library is None:
            return {"driver": None, "gpus": None}  # a container may see none of the GPUs that a machine has
        return {"driver": library.driver(), "gpus": library.cards()}
