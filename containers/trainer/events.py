"""What goes in and out of the trainer: THE CONTRACT. Who starts it or reads what it leaves is written against this.

ARGV   python -m trainer WORKLOAD (--out DIR | --runs DIR) [options], with the folder above `trainer` on PYTHONPATH
       python -m trainer --list   prints the workloads as JSON: [{"name", "summary", "source", "data" ("cifar10", or
                                  what the made-up data stands for), "unit" (what an example is), "steps", "batch",
                                  "input" (an example's shape), "parameters", "forward_macs" (multiply-accumulates of an
                                  example), "flops_per_example" (of a training step; of a step forward
                                  where nothing is trained), "frameworks"}]
       --out DIR                  the run's folder, made if missing
       --runs DIR                 instead of --out: make DIR/<YYYYmmdd-HHMMSS>-<workload>-<4 hex>, UTC
       --framework NAME           auto (what can be imported, the default), tf1, tf2, pytorch
       --device NAME              auto (gpu if the framework sees one, else cpu), cpu (keeps off a GPU), gpu (or fails)
       --data DIR|synthetic       default synthetic. For CIFAR-10 a folder with or above cifar-10-batches-bin or
                                  cifar-10-batches-py; for catdog one of pictures (pictures.py); else refused
       --steps N --batch N        the number of the step to reach, examples a step; default: the workload's own
       --batch largest            look for the largest batch that fits (fits.py), then train with it; with --resume
                                  the checkpoint's
       --epochs N                 instead of --steps: the step to reach is N epochs' last; refused where a workload
                                  counts none
       --seconds S                stop when S seconds have passed since the end of this attempt's first step, in which
                                  start-up and compilation hide; beside --steps or --epochs what comes first, alone
                                  there is no other end
       --precision NAME           auto (tf32 where the card has it, else float32; the default), float32, tf32 (refused
                                  without a card that has it), amp (computing.py; not tf1)
       --compile                  by torch.compile, or XLA (not tf1). A batch that is smaller than the others is not
                                  compiled: the figures hold no other compilation than the first step's
       --channels-last, --channels-first    how pictures lie; first with pytorch alone; default last, but first with
                                  pytorch on a GPU in float32 (not tf32)
       --seed N                   of weights, order, distortions and dropout (0)
       --clip NORM                scale all gradients down where their common norm is more; not of what trains nothing,
                                  nor of cifar10-94
       --threads N                processor threads that compute, default all; the batches are made by others
       --feed NAME                how it is fed (feed.py): ahead (batches are made by threads beforehand, the default),
                                  plain (each made, and copied, when it is needed), resident (the data set is put on the
                                  device once and batches are gathered there), constant (one batch, on the device, again
                                  and again), input (batches are made and dropped, nothing is trained). The last two
                                  leave no result: no checkpoint, no epoch, no evaluation, and no --resume
       --autotune                 choose by trial what nobody has typed of --threads, --channels-last and --feed (ahead
                                  or resident), and whether TensorFlow 2 has oneDNN on a CPU: what changes the speed
                                  and not the training (trial.py). Not of what is no long training, nor on several
                                  machines
       --choices DIR              where --autotune remembers what it chose, for the same machine and training
                                  (choices.py)
       --trial-seconds S          that all trials may take together (60); a training that is shorter has none
       --trace N                  write trace.json (trace.py) of the first N steps: when batches were made and waited
                                  for, and steps done, by thread; not of cifar10-94
       --log-frequency N          steps between lines; default: the workload's own, else 10
       --queue-fraction F         share of 50,000 images that are mixed (0.4)
       --gpu-memory-fraction F    share of the GPU's memory to take at most
       --checkpoint-seconds S     between checkpoints (600); there is one at the end and one on SIGTERM as well
       --resume DIR               go on from the newest good checkpoint in DIR/checkpoints or DIR; one of another
                                  workload, batch, seed, queue, data, dropout, clip or without its teacher is refused;
                                  of another framework, precision or device it is good: all that is kept is float32
       --teacher NAME             of distill alone (teacher.py): together (on the student's device in turn), before (on
                                  the CPU before each step), ahead (on the CPU ahead of the student, the default), kept
                                  (all answers computed once beforehand), none
       --no-eval                  do not test the trained network; cifar10-94 always does, within the time it tells
       --times N                  of cifar10-94 alone: train so often (1), each time from nothing, with the next seed;
                                  its --steps and --epochs stretch the plan, which ends with the last
       --no-dropout               leave dropout out: each framework draws its own random numbers, and so only without it
                                  the same weights give the same losses in two frameworks
       --record                   write run.json, samples.jsonl and log.txt (record.py)
       --samples NAME             write samples-NAME.jsonl (sampler.py), with or without the rest of --record
       --replicas N               so many (1) train together on this machine, each on its part of every batch: --batch
                                  is what all have together (replicas.py, group.py). Each takes one GPU, if there are
                                  any; fewer is "no_gpu". Without --threads each has its share of the processor's.
                                  Losses are those of one process, but where there is batch norm, whose statistics are
                                  of each one's own part (those of the first are kept), or dropout, which each draws by
                                  itself. TensorFlow 1 has towers in one process instead. Not of what trains nothing,
                                  nor beside a teacher. A checkpoint is good for any number of replicas

ENVIRONMENT
       NGCDL_NODES, NGCDL_NODE    of how many machines, and which of them (from 0) this is; each has --replicas replicas
       MASTER_ADDR, MASTER_PORT   where node 0 is found by the others. All have the same run's folder, but node 0 alone
                                  writes there and says lines (beside --samples); not with TensorFlow 1
       NGCDL_REPLICA              the trainer's own: what a replica is told

STDOUT a line each that says device and data, then what the TensorFlow tutorial prints, each line flushed (the queue is
       cifar10's alone, and says SYNTHETIC where its images are; data that is noise is not tested):
       Filling queue with 20000 CIFAR images before starting to train. This will take a few minutes.
       2018-02-16 18:21:30.123456: step 230, loss = 3.72 (592.6 examples/sec; 0.216 sec/batch)
       Testing the network on 10000 other images
       2018-02-16 18:26:30.123456: precision @ 1 = 0.860
       Where accuracy is counted, after each epoch means over it, as Keras prints them:
       2018-02-16 18:25:30.123456: epoch 1, loss = 1.4528, accuracy = 0.4710 (226 s)
       Of a workload that trains nothing (it only computes forward; no checkpoint, no --resume):
       2018-02-16 18:21:30.123456: step 230 (592.6 examples/sec; 0.216 sec/batch)
       Times are local; the rate is over the steps since the previous line, in the first line with the start-up.
       What --seconds ends has a line of its last step too.
       Before all of it, where the largest batch is looked for, a line each try:
       A batch of 32 fits
       A batch of 64 does not fit
       A batch of 48 is tried once more, for 8 steps
       The largest batch that fits is 48; with 42 an eighth is left free
       With --autotune:
       Trying ways to compute, for 60 s at most, before the training begins (--autotune)
       Tried: the default, 1012.3 examples/sec (1003.1 to 1020.0 in 4 trials)
       Tried: fed resident, 1133.6 examples/sec (1125.0 to 1140.2 in 4 trials)
       Chosen (--autotune): fed resident, 1133.6 examples/sec (1125.0 to 1140.2 in 4 trials), 1.12 times the default
STDERR what frameworks say, and why the trainer stopped.

FILES in the run's folder
       events.jsonl               below; a resumed run appends, beginning with a start event; of a step told twice the
                                  later counts
       checkpoints/step-<n>.npz   the last three (checkpoint.py)
       trace.json                 of --trace
       lock                       held while a trainer works here

EVENTS one JSON object a line, written whole. Every one has "event" and "t", seconds since the epoch. NaN and Infinity
       are null. Durations are of a monotonic clock where Python has one (2.7 has not: there it is the wall clock).
       Examples are what "unit" says: images, or sequences of tokens.
       "step" of a step event is the number of the batch, from 0; elsewhere it is how many steps are done.
  start       format 1, workload, framework (tf1|tf2|pytorch), framework_version, python, device (cpu|gpu),
              devices [name], batch (where more were asked for than there are, all of them),
              steps (the number to reach; null where --seconds alone ends it), seed, parameters,
              dataset (cifar10|pictures|synthetic; null: there is none), dataset_images (examples), dataset_sha256 (of
              the training files one after the other; of pictures of their names and sizes; null if synthetic),
              dataset_note (null|text), resumed_from_step (null|n), threads (null|n), dropout (true|false; null: the
              network has none), replicas (on all machines), nodes (machines),
              precision (float32|tf32|float16|bfloat16: what is computed in), compiled (true|false),
              channels_last (true|false; null: it sees no pictures), teacher (null|name), pid,
              autotune (null: it was not asked for; else {chosen: a way, {} the default, else some of threads,
              channels_last, feed, onednn; measured (when, seconds since the epoch), remembered (from an earlier
              trial), kept (for a later one), seconds (of the trials), skipped (null, or why nothing was decided),
              tries [{way, name, trials, failed (null|text), and where one was timed examples_per_second (the median),
              least, most}], the default first})
              feed, epoch_copied_bytes (to the device while each example is trained on once, by arithmetic; 0 on a CPU;
              of resident the order of an epoch alone, for the examples cross once before),
              flops_per_example (operations of a step for one example; null: nothing is computed), share_of_3x3 (of the
              operations, how many are convolutions of 3 x 3: 0..1)
  step        step, loss, examples_per_second, seconds_per_batch, learning_rate
              (both rates are null in the first of an attempt: start-up hides in it; loss and learning_rate are null
              where nothing is trained, and the line on stdout has no loss then); teacher_seconds_per_batch beside a
              teacher, its own mean since the step event before (null: it computed nothing, or on a GPU, where nobody
              waits for it alone); latency_seconds where nothing is trained: of each whole batch since the step event
              before, from asking for it to what was computed of it in the host's memory. It is made and copied in that
              time, or waited for where it was made ahead. Not in the first, and not of a smaller batch;
              input_seconds_per_batch where something is trained: of seconds_per_batch, for how long the training waited
              for its batch, until that was made and copied (null in the first)
  teacher     examples, seconds: of --teacher kept, before the first step
  epoch       step, epoch (from 1), examples, loss, accuracy (0..1), seconds: means over the epoch of what the training
              itself computed, while it learned; a resumed one's first is of the rest of an epoch; only where the
              workload counts accuracy
  checkpoint  step, path (relative to the folder), seconds
  replicas    step, identical (true|false: all replicas have the same weights, bit for bit), weights_least and
              weights_most (of the sums of a replica's weights' absolute values): before each checkpoint, where several
              processes train. Where they are further apart than rounding takes them, the training stops with
              "replicas_differ", and this checkpoint is not written
  smoke       product [[4 numbers]], device (cpu|gpu), place (the framework's name of where the product lay), devices
              [name], first_seconds, second_seconds, memory_fraction (that the card's memory was held to), refused
              (whether more was refused); both null where that could not be tried. It comes between start, whose
              dataset is null, and finish: smoke trains nothing, and there are no steps
  eval        step, precision_at_1 (0..1), examples, seconds (null: the test is timed with the training)
  raced       seed, seconds (from images on the device and nothing else to the guesses of all test images),
              precision_at_1 (0..1), graphs (whether steps were CUDA graphs): of each training of cifar10-94, whose step
              and eval events come before it; on a GPU all its steps have the mean rate, for it waits for none
  certified   times, seconds_mean, seconds_deviation, seconds_median, accuracy_mean, accuracy_deviation, bound, chance
              (of a mean as high if the true one were the bound, by a one-sided t-test; null: all were alike): after
              --times of more than one
  stages      stages [{name, examples_per_second}]: after --feed input, how fast the first one, two, ... stages of the
              pipeline are on one thread
  oom         batch (the smallest that did not fit), fits (the largest that did; null: none yet): before start, while
              --batch largest looks; what is told last counts
  finish      step, seconds (since the start event)
  error       kind (no_gpu|nan|smoke|data|disk_full|out_of_memory|bad_argument|checkpoint|interrupted|replicas_differ|
              crash), message, step (null|n; of nan the number of the batch)

EXIT   0 done; 1 stopped, with an error event; 2 argv was not understood (no event)
       143 after SIGTERM, 130 after SIGINT: the step is finished, a checkpoint saved and the error "interrupted"
       written; a second signal ends at once
       A folder in which another trainer works is refused on stderr alone, exit 1: its events are not ours to write.
"""
from __future__ import absolute_import, division, print_function

import errno
import io
import json
import os
import time
from contextlib import closing

FORMAT = 1
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG

clock = getattr(time, "monotonic", time.time)


class Stop(Exception):
    """The training cannot go on: one of the kinds above, and a message for people."""

    def __init__(self, kind, message, step=None, exit_code=1):
        Exception.__init__(self, message)
        self.kind, self.message, self.step, self.exit_code = kind, message, step, exit_code


class Events(object):
    """Appends events to DIR/events.jsonl."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "events.jsonl")
        self.append(b"")
        if torn(self.path):
            self.append(b"\n")  # the last attempt was killed in mid-line; its half line must not swallow ours

    def write(self, event, **fields):
        """Append one event; a full disk raises Stop("disk_full")."""
        fields.update(event=event, t=time.time())
        try:
            self.append(line(fields))
        except EnvironmentError as error:
            raise stopped_by(error, self.path)

    def append(self, content):
        with closing(Appended(self.path)) as file:
            file.write(content)


class Appended(object):
    """A file that lines are written to the end of, each whole and at once, or not at all."""

    def __init__(self, path):
        self.file = io.open(path, "ab", 0)  # of io, that Python 2.7 tells too how much was written

    def write(self, content):
        """A disk that is nearly full takes a part, without an error: the rest has it, and the part is cut off again."""
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
    """Give the same value with null for what JSON has no word for: NaN and the infinities. Python 2.7 gives paths as
    bytes, which JSON takes only as UTF-8: what is none gets a sign in its place."""
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
    """Turn an error of the file system into the Stop it means."""
    return Stop("disk_full" if error.errno in FULL else kind, "%s: %s" % (path, error.strerror or error))


class Voice(object):
    """Says lines on stdout, flushed, and into a log file if there is one. That nobody reads them stops no training."""

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


def said(text, stream):
    """Give what the stream can write: a path may be no text, or no text of the stream's encoding."""
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
        return text
    except UnicodeError:
        return text if isinstance(text, bytes) else text.encode("ascii", "replace").decode("ascii")
