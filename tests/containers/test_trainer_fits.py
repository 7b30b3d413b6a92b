import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from own_process import Said
from trainer_process import events, start, train, until

from trainer import __main__ as entry
from trainer import fits, nvml, replicas, short
from trainer.arguments import arguments, imported
from trainer.events import Events, Outside, Stop, Voice
from trainer.signals import Signals

STAND_IN = """
import json, os, signal, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
batch, room = int(words["--batch"]), json.loads(os.environ["ROOM"])
def tell(**event):
    open(os.path.join(words["--out"], "events.jsonl"), "a").write(json.dumps(event) + "\\n")
if batch > room.get("rows", batch):
    tell(event="error", kind="bad_argument", message="more rows than the text can fill")
    sys.exit(1)
tell(event="start", dataset_images=room.get("examples", 10**9))
size = batch + (room.get("lies_ready", 0) if int(words["--steps"]) > 2 else 0)
if size > room.get("fits", 10**9):
    if room["how"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if room["how"] == "abort":
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n")
        sys.stderr.flush()
        os.abort()
    if room["how"] == "replica":
        tell(event="error", kind="crash", message="replica 1 was killed by signal 9, without a message")
        sys.exit(1)
    if room["how"] == "sleep":
        time.sleep(600)
    if room["how"] == "unsure":
        tell(event="error", kind="crash", message=room["says"])
        sys.exit(1)
    tell(event="error", kind=room["how"], message="it says so")
    sys.exit(1)
"""


class Bench:
    """A stand-in trainer that uses no memory: the test sets beforehand what fits."""

    def __init__(self, folder, monkeypatch, **room):
        monkeypatch.setenv("ROOM", json.dumps({"how": "killed", **room}))
        (folder / "stand_in.py").write_text(STAND_IN)
        self.folder, self.lines, self.signals = folder, Said(), Signals()
        self.tries = fits.Tries(
            ["--seed", "3"], str(folder / "fits"), self.signals, command=[sys.executable, str(folder / "stand_in.py")]
        )
        self.tries.is_pressed = lambda: False  # whatever else uses this machine's memory

    def largest(self, start=16, least=1):
        return fits.largest(start, least, self.tries, Events(str(self.folder)), Voice(self.lines))

    def told(self):
        return [(event["batch"], event["fits"]) for event in events(self.folder, "oom")]


@pytest.mark.parametrize("how", ["killed", "abort", "out_of_memory", "replica"])
def test_the_largest_that_fits_is_found_whichever_way_memory_ends(tmp_path, monkeypatch, how):
    bench = Bench(tmp_path, monkeypatch, fits=100, how=how)
    batch = bench.largest()
    assert bench.lines[0] == "A batch of 16 fits\n"
    assert "A batch of 128 does not fit\n" in bench.lines
    assert bench.told()[0] == (128, 64)
    refused, fitting = bench.told()[-1]
    assert 100 - 100 // 16 <= fitting <= 100 < refused <= fitting + fitting // 16
    assert batch == fitting - fitting // 8
    assert bench.lines[-1] == f"The largest batch that fits is {fitting}; with {batch} an eighth is left free\n"
    assert not (tmp_path / "fits").exists()


@pytest.mark.parametrize("room", range(2, 70))
def test_what_is_found_is_off_by_a_sixteenth_at_most(room):
    good, bad, batch, tried = None, None, 16, 0
    while batch is not None:
        good, bad = (batch, bad) if batch <= room else (good, batch)
        batch, tried = fits.following(2, None, good, bad), tried + 1
    assert good <= room < good + max(good // 16, 1) + 1
    assert tried <= 10


def test_where_its_own_batch_does_not_fit_smaller_ones_are_tried(tmp_path, monkeypatch):
    assert Bench(tmp_path, monkeypatch, fits=3).largest() == 3


def test_the_search_begins_with_a_batch_for_all_replicas_if_the_workloads_own_is_smaller(tmp_path, monkeypatch):
    asked = arguments(["catdog", "--replicas", "9", "--batch", "largest", "--out", str(tmp_path)])
    replicas.check(asked, imported("catdog"))
    bench = Bench(tmp_path, monkeypatch, fits=100)
    bench.largest(asked.batch, replicas.least_batch(asked, imported("catdog")))
    assert bench.lines[:2] == ["A batch of 18 fits\n", "A batch of 36 fits\n"]


def test_no_batch_is_larger_than_the_data_set(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, examples=43)
    assert bench.largest() == bench.largest(start=64) == 43
    assert bench.told() == []


def test_a_batch_that_the_data_has_no_rows_for_ends_the_search_and_is_no_want_of_memory(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, rows=100)
    assert 94 <= bench.largest() <= 100
    assert "A batch of 128 is more than the data set has\n" in bench.lines
    assert bench.told() == []


def test_batches_that_lie_ready_need_memory_too(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fits=64, lies_ready=6)
    assert bench.largest() == 57 - 57 // 8
    assert bench.told()[-1] == (60, 57)


def test_what_is_left_free_is_never_more_than_the_least_batch_allows(tmp_path, monkeypatch):
    assert Bench(tmp_path, monkeypatch, fits=17).largest(least=16) == 16


def test_where_nothing_fits_it_is_out_of_memory(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fits=1)
    with pytest.raises(Stop, match="not even a batch of 2 fits") as stopped:
        bench.largest(least=2)
    assert stopped.value.kind == "out_of_memory"
    assert bench.told()[-1] == (2, None)


def test_another_failure_ends_the_search_with_its_own_words(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fits=20, how="nan")
    with pytest.raises(Stop, match="with a batch of 32: it says so; a batch of 16 fits") as stopped:
        bench.largest()
    assert stopped.value.kind == "nan"


@pytest.mark.parametrize(
    "says",
    [
        "RuntimeError: GET was unable to find an engine to execute this computation",
        "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "NotFoundError:  No algorithm worked!\n\t [[node sequential/conv2d/Relu]] [Op:__inference_train_function_800]",
    ],
)
def test_a_library_that_finds_no_way_has_found_no_memory_only_once_a_batch_has_fitted(tmp_path, monkeypatch, says):
    assert not fits.is_out_of_memory(says)
    bench = Bench(tmp_path, monkeypatch, fits=100, how="unsure", says=says, lies_ready=2)
    assert bench.largest() == 94 - 94 // 8, "of 100, that do not fit beside what lies ready, a sixteenth less"
    bench = Bench(tmp_path, monkeypatch, fits=10, how="unsure", says=says)
    with pytest.raises(Stop, match="with a batch of 16") as stopped:
        bench.largest()
    assert stopped.value.kind == "crash"


def test_a_try_that_takes_what_others_need_is_ended_and_did_not_fit(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fits=8, how="sleep")
    bench.tries.is_pressed = lambda: True
    assert bench.tries.fits(16, 2) is False


def test_a_signal_ends_the_child_too(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fits=8, how="sleep")
    seen = []

    def ask():
        seen.append(children())
        bench.signals.receive(signal.SIGTERM, None)

    bench.tries.is_pressed = lambda: ask() or False
    with pytest.raises(Stop) as stopped:
        bench.tries.fits(16, 2)
    assert (stopped.value.kind, stopped.value.exit_code) == ("interrupted", 143)
    assert len(seen[0] - children()) == 1


def children():
    listed = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
    return set(listed)


def test_the_child_offers_itself_to_the_kernel_first(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    said = tmp_path / "score"
    bench.tries.command = ["sh", "-c", f"cat /proc/$$/oom_score_adj > {said}", "sh"]
    assert bench.tries.fits(16, 2)
    assert said.read_text() == "1000\n"


def test_a_try_is_told_all_but_how_far_where_to_and_with_what_batch():
    own = "--out", "run", "--batch=largest", "--steps", "9", "--seconds", "3", "--record", "--no-eval"
    kept = "--device", "cpu", "--seed", "3"
    assert short.again(["catdog", *own, *kept]) == ["catdog", *kept]


@pytest.mark.parametrize(
    ("words", "free", "limit"),
    [
        ((), [6], ["--gpu-memory-fraction", "0.6375"]),
        (("--replicas", "2"), [6, 4], ["--gpu-memory-fraction", "0.4250"]),
        (("--replicas", "2"), [6], ["--gpu-memory-fraction", "0.6375"]),
        ((), [0], ["--gpu-memory-fraction", "0.0100"]),
        ((), [None], []),
        ((), [], []),
        (("--device", "cpu"), [6], []),
        (("--gpu-memory-fraction", "0.3"), [6], []),
    ],
)
def test_under_wsl_a_try_may_not_fill_the_card_because_nothing_would_stop_it(tmp_path, monkeypatch, words, free, limit):
    cards = [{"memory_total_bytes": 8, "memory_used_bytes": one if one is None else 8 - one} for one in free]
    monkeypatch.setattr(nvml, "read", lambda: cards)
    monkeypatch.setattr(fits, "largest", lambda _start, _least, tries, *_: tries.argv)
    asked = arguments(["cifar10", "--out", str(tmp_path), "--batch", "largest", *words])
    for place, wanted in (tmp_path, limit), (tmp_path / "nothing", []):
        monkeypatch.setattr(fits, "WSL", str(place))
        assert entry.largest(asked, imported("cifar10"), Outside(None, None, Signals())) == ["cifar10", *words, *wanted]


@pytest.mark.parametrize(
    ("words", "free", "total", "limit"),
    [
        ((), 6, 8, ["--gpu-memory-fraction", "0.6375"]),
        ((), None, 8, []),
        ((), 6, None, []),
        (("--device", "cpu"), 6, 8, []),
        (("--gpu-memory-fraction", "0.3"), 6, 8, []),
    ],
)
def test_a_try_may_not_fill_a_memory_that_card_and_machine_share_because_the_machine_would_hang(
    monkeypatch, words, free, total, limit
):
    monkeypatch.setattr(fits.driver, "is_integrated", lambda card: card == 0)
    monkeypatch.setattr(fits.driver, "total_bytes", lambda _: total)
    monkeypatch.setattr(fits.host, "memory", lambda: {} if free is None else {"MemAvailable": free, "MemTotal": 9})
    monkeypatch.setattr(nvml, "read", lambda: [{"memory_total_bytes": None, "memory_used_bytes": None}])
    assert fits.limits(arguments(["cifar10", "--out", "run", "--batch", "largest", *words])) == limit


@pytest.mark.parametrize(
    "said",
    [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "ResourceExhaustedError: OOM when allocating tensor with shape[32,128,64,64] and type float on GPU:0 by "
        "allocator GPU_0_bfc",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 132426121216 bytes. Error code 12 (Cannot allocate memory)",
        "InternalError: Dst tensor is not initialized.\n\t [[{{node _arg_input/x-input_0_1}}]]",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (9, 9)",
    ],
)
def test_what_frameworks_say_when_memory_ends_is_known(said):
    assert fits.is_out_of_memory(said)


def test_other_errors_are_not_taken_for_it():
    assert not fits.is_out_of_memory("InvalidArgumentError: Incompatible shapes: [32] vs. [16]")
    assert not fits.is_out_of_memory("CUDA error: an illegal memory access was encountered")


@pytest.mark.torch
@pytest.mark.parametrize("replicas", [(), ("--replicas", 2)])
def test_a_resumed_training_keeps_the_batch_that_was_found(tmp_path, replicas):
    said = "--framework", "pytorch", "--device", "cpu", "--no-eval", "--steps"
    train("batch-sweep", "--out", tmp_path, *said, 1, "--batch", 24)
    train("batch-sweep", *said, 2, "--batch", "largest", "--resume", tmp_path, "--out", tmp_path, *replicas)
    assert [event["batch"] for event in events(tmp_path, "start")] == [24, 24]


@pytest.mark.torch
def test_sigterm_while_it_looks_leaves_an_interrupted_run(tmp_path):
    process = start("fcn-r", "--out", tmp_path, "--framework", "pytorch", "--device", "cpu", "--batch", "largest")
    until((tmp_path / "fits" / "events.jsonl").exists, "it looks")
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert [event["kind"] for event in events(tmp_path, "error")] == ["interrupted"]
    assert not (tmp_path / "fits").exists()


def test_the_last_try_is_told_before_it_begins_because_it_may_take_minutes(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch, fits=40)
    assert bench.largest() == 35
    assert any(f"is tried once more, for {fits.SURE_STEPS} steps" in line for line in bench.lines)
