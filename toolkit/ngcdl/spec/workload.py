"""A bundled training as it is asked for."""

from __future__ import annotations

from ngcdl.frozen import dataclass

# The feed, the precision, and the place of `distill`'s teacher: containers/trainer/events.py says what each word means.
FEEDS = ("ahead", "plain", "resident", "constant", "input")
PRECISIONS = ("auto", "float32", "tf32", "amp")
TEACHERS = ("together", "before", "ahead", "kept", "none")


@dataclass(frozen=True)
class Workload:
    """A bundled training. `steps` is the step to reach, `batch` examples per step, `data` auto, synthetic or a folder.

    `steps` None: as many as `epochs` contain, or as fit into `seconds`; `seconds` beside either of them: whichever
    comes first. With `largest_batch` the trainer finds the largest that fits, and `batch` has no meaning.
    `device` is auto, gpu or cpu: what the framework must compute on, whatever cards it sees. `resume` is the id of the
    run that it continues from, at its last checkpoint. `threads` CPU threads compute; None: as many as there are.
    `feed` is one of FEEDS, `precision` of PRECISIONS, `teacher` of TEACHERS; None leaves the choice to the trainer, as
    it does for `channels_last`. It trains `times` times, each from scratch and with the next seed.
    `clip` is the upper limit of the gradients' global norm. A timeline of the first `trace` steps is kept. With
    `autotune` the trainer runs a trial to choose `threads`, `feed` and `channels_last` where they are None.
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
