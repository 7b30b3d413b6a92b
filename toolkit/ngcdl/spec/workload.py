"""A bundled training as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass

# How a training is fed, what it is computed in, and where `distill`'s teacher is: containers/trainer/events.py has what
# each word means.
FEEDS = ("ahead", "plain", "resident", "constant", "input")
PRECISIONS = ("auto", "float32", "tf32", "amp")
TEACHERS = ("together", "before", "ahead", "kept", "none")


@dataclass(frozen=True)
class Workload:
    """A bundled training. `steps` is the number to reach, `batch` examples a step, `data` auto, synthetic or a folder.

    `steps` None: as many as `epochs` have, or as fit into `seconds`; where `seconds` stand beside one of them, what
    comes first. With `largest_batch` the trainer looks for the largest that fits, and `batch` says nothing.
    `device` is auto, gpu or cpu: what the framework must compute on, whatever cards it is shown. `resume` is the id of
    the run whose last checkpoint it goes on from. `threads` processor threads compute, None: as many as there are.
    `feed` is one of FEEDS, `precision` of PRECISIONS, `teacher` of TEACHERS; None is the trainer's own choice, as it
    is of `channels_last`. `times` it is trained, each time from nothing and with the next seed.
    `clip` is the most that the gradients' common norm may be. Of the first `trace` steps a timeline is kept. With
    `autotune` the trainer chooses by a trial what of `threads`, `feed` and `channels_last` is None.
    """

    name: str
    steps: int | None = 1000
    batch: int = 128
    seed: int = 0
    data: str = "auto"
    device: str = "auto"
    evaluate: bool = True
    resume: str | None = None
    threads: int | None = None
    feed: str | None = "ahead"
    precision: str = "auto"
    compile: bool = False
    channels_last: bool | None = None
    seconds: float | None = None
    epochs: int | None = None
    teacher: str | None = None
    largest_batch: bool = False
    times: int = 1
    clip: float | None = None
    trace: int | None = None
    autotune: bool = False
