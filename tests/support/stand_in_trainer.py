"""Behaves like `python -m trainer` (containers/trainer/events.py) to the outside, but trains nothing.

STAND_IN selects the behaviour: finish (default), fail, nan, wait (until a signal: 143 with event "interrupted"),
deaf (until killed), go (until the file STAND_IN_GO exists, then finish). STAND_IN_DEVICE: cpu (default), gpu,
or asked: as --device says, eight times as fast on the GPU. On a cluster only the first node (NGCDL_NODE 0) writes
events. steps: ten of them, a checkpoint after each; before the sixth it waits for STAND_IN_GO; with --resume it
goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

folder = Path(sys.argv[sys.argv.index("--out") + 1])
is_first = os.environ.get("NGCDL_NODE", "0") == "0"
does = os.environ.get("STAND_IN", "finish")
if does == "nan" and not is_first:
    does = "deaf"  # the first node detects it; the others wait in a collective, deaf to signals, and are killed
stop = threading.Event()
rate = 512.0
signal.alarm(200)  # so that a failed test leaves no process behind


def event(name: str, **fields: Any) -> None:
    if not is_first:
        return
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": name, "t": time.time(), **fields}) + "\n")


def interrupted() -> None:
    event("error", kind="interrupted", message="SIGTERM", step=1)
    sys.exit(143)


def steps() -> None:
    kept = folder / "checkpoints"
    kept.mkdir(exist_ok=True)
    done = [int(path.stem.removeprefix("step-")) for path in kept.glob("step-*.npz") if "--resume" in sys.argv]
    for step in range(max(done, default=0), 10):
        while step == 5 and not Path(os.environ["STAND_IN_GO"]).exists():
            if stop.wait(0.05):
                interrupted()
        event("step", step=step, loss=4.0, examples_per_second=rate, seconds_per_batch=128 / rate, learning_rate=0.1)
        if is_first:
            (kept / f"step-{step + 1}.npz").touch()
    event("finish", step=10, seconds=1.0)
    sys.exit(0)


def finish() -> None:
    event("step", step=1, loss=4.0, examples_per_second=rate, seconds_per_batch=128 / rate, learning_rate=0.1)
    event("finish", step=2, seconds=1.0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if does == "deaf" else lambda *_: stop.set())
if "STAND_IN_SAYS" in os.environ:  # lets a test see what it was given
    Path(os.environ["STAND_IN_SAYS"]).write_text(json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ)}))
device = os.environ.get("STAND_IN_DEVICE", "cpu")
if device == "asked":
    device = sys.argv[sys.argv.index("--device") + 1]
    rate = 4096.0 if device == "gpu" else rate
event("start", format=1, workload="cifar10", device=device, dataset="synthetic", dataset_note=None, pid=os.getpid())
if does == "steps":
    steps()
if is_first:
    print("2018-02-16 03:25:08.344427: step 0, loss = 4.68 (595.8 examples/sec; 0.215 sec/batch)", flush=True)
event("step", step=0, loss=4.68, examples_per_second=None, seconds_per_batch=None, learning_rate=0.1)
if does == "nan":
    event("error", kind="nan", message="the loss is NaN", step=1)
    sys.exit("the loss is NaN")
if does == "fail":
    sys.exit(7)
if does in ("wait", "deaf"):
    while not stop.wait(0.05):
        pass
    interrupted()
if does == "go":
    while not Path(os.environ["STAND_IN_GO"]).exists() and not stop.wait(0.05):
        pass
finish()
