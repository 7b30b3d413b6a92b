"""What goes into and comes out of the trainer: THE CONTRACT for whatever starts it or reads its output.

ARGV   python -m trainer WORKLOAD (--out DIR | --runs DIR) [options], with the folder above `trainer` on PYTHONPATH
       python -m trainer --list   prints the workloads as JSON: [{"name", "summary", "source", "data" ("cifar10", or
                                  what the synthetic data stands for), "unit" (what an example is), "steps", "batch",
                                  "input" (an example's shape), "parameters", "forward_macs" (multiply-accumulates per
                                  example), "flops_per_example" (of a training step; of a forward pass where nothing is
                                  trained), "frameworks"}]
       --out DIR                  the run's folder, created if missing
       --runs DIR                 instead of --out: create DIR/<YYYYmmdd-HHMMSS>-<workload>-<4 hex>, UTC
       --framework NAME           auto (the default: one that can be imported), tf1, tf2, pytorch
       --device NAME              auto (gpu if the framework sees one, else cpu), cpu (keeps off a GPU), gpu (or fails)
       --data DIR|synthetic       default synthetic. For CIFAR-10 a folder that is, or contains, cifar-10-batches-bin or
                                  cifar-10-batches-py; if DATA_FOLDER is "pictures", a folder of images (pictures.py);
                                  otherwise refused
       --steps N --batch N        the step to reach, examples per step; default: the workload's own
       --batch largest            find the largest batch that fits (fits.py), then train with it; with --resume, use the
                                  batch of the checkpoint
       --epochs N                 instead of --steps: stop after the last step of epoch N; refused for workloads without
                                  epochs
       --seconds S                stop S seconds after the end of this attempt's first step, which includes start-up and
                                  compilation; with --steps or --epochs, whichever comes first; alone, nothing else ends
                                  the training
       --precision NAME           auto (tf32 if the card has it, else float32; the default), float32, tf32 (refused
                                  without a card that has it), amp (computing.py; not tf1)
       --compile                  with torch.compile or XLA (not tf1). An epoch's smaller last batch is not compiled, so
                                  that only the first step includes a compilation
       --channels-last, --channels-first    memory layout of images. Channels first needs pytorch, and is its default on
                                  a GPU in float32 (not tf32); elsewhere the default is channels last
       --seed N                   of weights, order, distortions and dropout (0)
       --clip NORM                clip the gradients by their global norm; not for workloads that train nothing, nor for
                                  cifar10-94
       --threads N                CPU threads to compute with, default all; other threads make the batches
       --feed NAME                how batches reach the device (feed.py): ahead (threads prefetch them, the default),
                                  plain (each is made, and copied, when it is needed), resident (the data set is put on
                                  the device once, and batches are gathered there), constant (one batch on the device,
                                  over and over), input (batches are made and dropped, nothing is trained). The last two
                                  leave no result: no checkpoint, no epoch, no evaluation, and no --resume
       --autotune                 choose by trial whichever of --threads, --channels-last and --feed (ahead or resident)
                                  was not typed, and whether TensorFlow 2 uses oneDNN on a CPU: settings that change the
                                  speed but not the training (trial.py). Only for long trainings, and not on several
                                  machines
       --choices DIR              where --autotune remembers its choices, for the same machine and training (choices.py)
       --trial-seconds S          time limit of all trials together (60); a training that is shorter has none
       --trace N                  write trace.json (trace.py) of this attempt's first N steps: when batches were made
                                  and waited for, and steps done, by thread; not for cifar10-94
       --log-frequency N          steps between lines; default: the workload's own, else 10
       --queue-fraction F         size of the shuffle buffer, as a share of 50,000 images (0.4)
       --gpu-memory-fraction F    the largest share of the GPU's memory to take
       --checkpoint-seconds S     between checkpoints (600); also saved at the end and on SIGTERM
       --resume DIR               continue from the newest good checkpoint in DIR/checkpoints or DIR; refused if its
                                  workload, batch, seed, queue, data, dropout or clip differ, or its teacher is missing;
                                  any framework, precision or device can continue it: all saved arrays are float32
       --teacher NAME             only for workloads with a TEACHER (teacher.py): together (in turn on the student's
                                  device), before (on the CPU before each step), ahead (on the CPU ahead of the student,
                                  the default), kept (all outputs computed once beforehand), none
       --no-eval                  do not test the trained network; cifar10-94 always does, within its reported time
       --times N                  only for workloads with TIMES: train N times (1), each time from scratch, with the
                                  next seed; --steps and --epochs stretch the schedule of cifar10-94, which ends with
                                  the last step
       --no-dropout               leave dropout out. Each framework draws its own random numbers, so two frameworks give
                                  the same losses from the same weights only without dropout
       --record                   write run.json, samples.jsonl and log.txt (record.py)
       --samples NAME             write samples-NAME.jsonl (sampler.py), with or without the rest of --record
       --replicas N               N data-parallel replicas (1) train on this machine, each on its part of every batch:
                                  --batch is the global batch (replicas.py, group.py). Each takes one GPU, if there are
                                  any; too few GPUs are the error "no_gpu". Without --threads each has its share of the
                                  processors. Losses equal those of one process, except with batch norm, whose
                                  statistics cover each replica's own part (replica 0's are kept), and with dropout,
                                  which each replica draws by itself.
                                  TensorFlow 1 has towers in one process instead. Not for workloads that train nothing,
                                  nor with a teacher. A checkpoint can be resumed with any number of replicas

ENVIRONMENT
       NGCDL_NODES, NGCDL_NODE    how many machines, and which of them (from 0) this is; each has --replicas replicas,
                                  and all need the same arguments and data; folders may have other names
       MASTER_ADDR, MASTER_PORT   where the others find node 0. All share the run's folder, but only node 0 writes there
                                  (apart from --samples) and prints; not with TensorFlow 1. If one fails, all stop, and
                                  the error names it
       NGCDL_REPLICA              set by the trainer for the replicas that it starts (group.py)

STDOUT one line each for the device and the data, then what the TensorFlow tutorial prints, each line flushed. The line
       about the queue is only for workloads with the tutorial's pipeline, and says SYNTHETIC for CIFAR if the images
       are synthetic; a workload whose data is noise is not tested.
       Still loading tf2 (after five seconds, once; before all the others)
       It takes 1000 steps of 128 images (not if only --seconds ends it; with --resume: ", of which 500 are done")
       Filling queue with 20000 CIFAR images before starting to train.
       Still computing the first step (after five seconds, once)
       2018-02-16 18:21:30.123456: step 230, loss = 3.72 (592.6 examples/sec; 0.216 sec/batch)
       Testing the network on 10000 other images
       Still testing: 1024 of them in 5 s (after five seconds, once)
       2018-02-16 18:26:30.123456: precision @ 1 = 0.860
       If the workload counts accuracy, the means of each epoch, as Keras prints them, and the loss of the test:
       2018-02-16 18:25:30.123456: epoch 1, loss = 1.4528, accuracy = 0.4710 (226 s)
       2018-02-16 18:26:30.123456: precision @ 1 = 0.581, loss = 1.1812
       For a workload that trains nothing (forward passes only; no checkpoint, no --resume):
       2018-02-16 18:21:30.123456: step 230 (592.6 examples/sec; 0.216 sec/batch)
       Times are local; the rate covers the steps since the previous line, in the first line including start-up.
       A training that --seconds ends prints a line for its last step too.
       Before all this, the search for the largest batch prints a line for each try:
       A batch of 32 fits
       A batch of 64 does not fit
       A batch of 48 is tried once more, for 8 steps
       The largest batch that fits is 48; with 42 an eighth is left free
       With several machines, node 0's first line, if the others have not come for five seconds:
       Waiting, at most 600 s, for others at MASTER_PORT 29500: of 3 nodes, these have not connected yet: 1, 2
       With --autotune:
       Trying other settings for at most 60 s before the training begins (--autotune)
       Tried: the default, 1012.3 examples/sec (1003.1 to 1020.0 in 4 trials)
       Tried: fed resident, 1133.6 examples/sec (1125.0 to 1140.2 in 4 trials)
       Chosen (--autotune): fed resident, 1133.6 examples/sec (1125.0 to 1140.2 in 4 trials), 1.12 times the default
STDERR what frameworks print, and why the trainer stopped; from node 1 on also which node is waited for.

FILES in the run's folder
       events.jsonl               below; a resumed run appends, beginning with a start event; if a step is reported
                                  twice, the later report counts
       checkpoints/step-<n>.npz   the last three (checkpoint.py)
       trace.json                 of --trace
       lock                       held while a trainer works here

EVENTS one JSON object per line, written whole. Every one has "event" and "t", seconds since the epoch. NaN and Infinity
       are null. Durations come from a monotonic clock.
       Examples are what "unit" says: images, or sequences of tokens.
       "step" of a step event is the index of the batch, from 0; elsewhere it is how many steps are done.
  start       format 1, workload, framework (tf1|tf2|pytorch), framework_version, python, device (cpu|gpu),
              devices [name], batch (the whole data set, if it is smaller than the batch requested),
              steps (the step to reach; null if only --seconds ends it), seed, parameters,
              dataset (cifar10|pictures|synthetic; null: there is none), dataset_images (examples), dataset_sha256 (of
              the concatenated training files; for folders of images, of names and sizes; null if synthetic),
              dataset_note (null|text), resumed_from_step (null|n), threads (null|n), dropout (true|false; null: the
              network has none), replicas (on all machines), nodes (machines),
              precision (float32|tf32|float16|bfloat16: what is computed in), compiled (true|false),
              channels_last (true|false; null: no images), teacher (null|name), pid,
              winograd (whether 3 x 3 convolutions may be computed by winograd.c: on a CPU, with gcc),
              autotune (null: not requested; else {chosen: settings, {} for the default, else some of threads,
              channels_last, feed, onednn; measured (when, seconds since the epoch), remembered (from an earlier
              trial), kept (for a later one), seconds (of the trials), skipped (null, or why nothing was decided),
              tries [{way, name, trials, failed (null|text), and if one was timed examples_per_second (the median),
              least, most}], the default first})
              feed, epoch_copied_bytes (how much is copied to the device while each example is trained on once:
              computed, not measured; 0 on a CPU; for resident only an epoch's order, as the examples are copied once
              beforehand), flops_per_example (operations of a step per example; null: nothing is computed),
              share_of_3x3 (the share of the operations in 3 x 3 convolutions with stride 1: 0..1)
  step        step, loss, examples_per_second, seconds_per_batch, learning_rate
              (examples_per_second and seconds_per_batch are null in an attempt's first step event, which includes
              start-up; loss and learning_rate are null if nothing is trained, and the line on stdout has no loss then);
              with a teacher, teacher_seconds_per_batch: the teacher's own mean since the previous step event (null: it
              computed nothing, or ran on a GPU, where nothing waits for the teacher alone);
              if nothing is trained, latency_seconds: one number for each full batch since the previous step event, from
              the request for the batch until its results are in host memory. That includes making and copying the
              batch, or waiting for it if it was prefetched. The first step event has no latency_seconds, and a batch
              smaller than the others has no number;
              if something is trained, input_seconds_per_batch: the part of seconds_per_batch in which the training
              waited for its batch, but not for the device to take it (null in the first step event)
  teacher     examples, seconds: for --teacher kept, before the first step
  epoch       step, epoch (from 1), examples, loss, accuracy (0..1), seconds: means over the epoch, computed during
              training; a resumed run's first covers the rest of an epoch; only if the workload counts accuracy
  checkpoint  step, path (relative to the folder), seconds
  replicas    step, identical (true|false: all replicas have the same weights, bit for bit), weights_least and
              weights_most (of each replica's sum of absolute weights): before each checkpoint, if several processes
              train. If they differ by more than rounding explains, the training stops with "replicas_differ", and this
              checkpoint is not written
  smoke       product [[4 numbers]], device (cpu|gpu), place (the framework's name for where the product was), devices
              [name], first_seconds, second_seconds, memory_fraction (the limit on the card's memory), refused
              (whether more was refused); both null if that could not be tried. It comes between start, whose
              dataset is null, and finish: smoke trains nothing and has no steps
  eval        step, precision_at_1 (0..1), examples, seconds (null: the test is timed with the training),
              loss (the mean of the tested examples'; null or missing: the workload does not count accuracy)
  raced       seed, seconds (from just the images on the device to the predictions for all test images),
              precision_at_1 (0..1), graphs (whether steps were CUDA graphs): for each training of cifar10-94, after its
              step and eval events; on a GPU all its steps have the mean rate, as it waits for none
  certified   times, seconds_mean, seconds_deviation, seconds_median, accuracy_mean, accuracy_deviation, bound, chance
              (the p-value of a one-sided t-test against the bound; null: all accuracies were equal): after --times of
              more than one
  stages      stages [{name, examples_per_second}]: after --feed input, how fast the first one, two, ... stages of the
              pipeline are on one thread
  oom         batch (the smallest that did not fit), fits (the largest that did; null: none yet): before start, while
              --batch largest searches; the last one counts
  finish      step, seconds (since the start event)
  error       kind (no_gpu|nan|smoke|data|disk_full|out_of_memory|bad_argument|checkpoint|interrupted|replicas_differ|
              crash), message, step (null|n; for nan the index of the batch)

EXIT   0 done; 1 stopped, with an error event; 2 argv was not understood (no event)
       143 after SIGTERM, 130 after SIGINT: the step is finished, a checkpoint saved and the error "interrupted"
       written; a second signal ends at once
       If another trainer works in the folder, this one says so on stderr and exits with 1, but writes no event:
       events.jsonl belongs to the other trainer.
"""
from __future__ import absolute_import, division, print_function

import collections
import ctypes
import errno
import io
import json
import os
import sys
import threading
import time
from contextlib import closing, contextmanager

FORMAT = 1
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
QUIET_SECONDS = 5.0  # of waiting, before it is said what for

MONOTONIC = 1  # Linux' number of this clock


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def by_c_library():
    """Return what Python 3 has as time.monotonic: when the wall clock is set, no duration may be wrong, or negative."""
    ask = getattr(ctypes.CDLL(None), "clock_gettime", None)

    def monotonic():
        told = Timespec()
        ask(MONOTONIC, ctypes.byref(told))
        return told.seconds + told.nanoseconds / 1e9

    return monotonic if ask else time.time


clock = getattr(time, "monotonic", None) or by_c_library()


# What a training tells, and what may end it: an Events, or what stands for one; a Voice; a signals.Signals.
Outside = collections.namedtuple("Outside", "events voice signals")


class Stop(Exception):
    """The training cannot continue: one of the kinds above, and a message for people."""

    def __init__(self, kind, message, step=None, exit_code=1):
        Exception.__init__(self, message)
        self.kind, self.message, self.step, self.exit_code = kind, message, step, exit_code


class Events(object):
    """Appends events to DIR/events.jsonl."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "events.jsonl")
        self.append(b"")
        if torn(self.path):
            self.append(b"\n")  # the last attempt was killed mid-line: its half line must not swallow the next event

    def write(self, event, **fields):
        """Append one event; raise Stop("disk_full") if the disk is full."""
        fields.update(event=event, t=time.time())
        try:
            self.append(line(fields))
        except EnvironmentError as error:
            raise stopped_by(error, self.path)

    def append(self, content):
        with closing(Appended(self.path)) as file:
            file.write(content)


class Appended(object):
    """A file to which lines are appended, each whole and at once, or not at all."""

    def __init__(self, path):
        self.file = io.open(path, "ab", 0)  # unlike open(), its write() returns a count on Python 2.7, too

    def write(self, content):
        """Write all of it. If that fails, cut off what was written and raise: a nearly full disk takes a part without
        an error, and fails at the next write."""
        size = self.file.seek(0, os.SEEK_END)
        try:
            while content:
                content = content[self.file.write(content):]
        except EnvironmentError:
            self.file.truncate(size)
            raise

    def close(self):
        self.file.close()


def torn(path):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if not file.tell():
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def line(value):
    return (json.dumps(finite(value), sort_keys=True) + "\n").encode("ascii")


def finite(value):
    """Return the same value with null for what JSON can't represent: NaN and the infinities. On Python 2.7 paths are
    bytes, which JSON takes only as UTF-8: invalid bytes are replaced."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def stopped_by(error, path, kind="crash"):
    """Turn a file system error into the Stop that it means."""
    return Stop("disk_full" if error.errno in FULL else kind, "%s: %s" % (path, error.strerror or error))


class Voice(object):
    """Prints lines to stdout, flushed, and to a log file if there is one. If stdout is closed, the training goes on."""

    def __init__(self, stdout, log=None):
        self.stdout, self.log = stdout, log

    def say(self, text):
        try:
            if self.log is not None:
                self.log.write((text if isinstance(text, bytes) else text.encode("utf-8", "replace")) + b"\n")
        except EnvironmentError as error:
            raise stopped_by(error, "log.txt")
        try:
            if self.stdout is not None:
                self.stdout.write(said(text, self.stdout) + "\n")
                self.stdout.flush()
        except EnvironmentError as error:
            if error.errno != errno.EPIPE:
                raise stopped_by(error, "stdout")
            self.stdout = None

    @contextmanager
    def still(self, doing):
        """Say once that this is still being done, if what is done meanwhile takes more than QUIET_SECONDS."""
        said("", self.stdout)  # Python 2.7 imports the codec for it, which a thread can't while a framework is imported
        waiting = threading.Timer(QUIET_SECONDS, self.whisper, ["Still " + doing])
        waiting.daemon = True
        waiting.start()
        try:
            yield
        finally:
            waiting.cancel()
            waiting.join()

    def whisper(self, text):
        try:
            self.say(text)
        except Stop:
            pass  # the next line fails, too, and where that is reported


def complain(text):
    """Print a line to stderr; it is lost if that fails. stderr may be a closed pipe, or a file on the very disk that is
    full, and the record must still be closed."""
    try:
        print(text, file=sys.stderr)
    except EnvironmentError:
        pass


def said(text, stream):
    """Return the text in a form that the stream can write: a path may not be text, or not in the stream's encoding."""
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
        return text
    except UnicodeError:
        return text if isinstance(text, bytes) else text.encode("ascii", "replace").decode("ascii")
