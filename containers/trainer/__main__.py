"""Run one training from argv. The docstring of events.py specifies what it takes and what it writes."""
from __future__ import absolute_import, division, print_function

import fcntl
import functools
import importlib
import json
import os
import sys
import traceback

from . import (
    autotune, checkpoint, choices, computing, driver, feed, fits, group, host, kernels, layers, replicas, room, sampler,
    teacher, workloads)
from .ahead import meanwhile
from .arguments import arguments, imported, names
from .epochs import in_turn
from .events import Events, Outside, Stop, Voice, complain, stopped_by
from .files import lock, make_folder
from .loop import Training, say_data, train
from .recipe import Model
from .signals import Signals, interrupted


def main(argv=None):
    open_closed()
    replica = group.own()
    if replica:
        as_replica(*replica)
    asked = arguments(argv)
    if asked.list:
        print(json.dumps([described(name) for name in names(workloads)], indent=1, sort_keys=True))
        return 0
    signals = Signals()
    signals.install()
    try:
        make_folder(asked.out)
        held = lock(asked.out) if asked.node == 0 else None  # all nodes share the folder: one lock is enough
        events = Events(asked.out) if held else replicas.Unheard()
    except EnvironmentError as error:
        return told(stopped_by(error, asked.out))
    except Stop as stop:  # another trainer holds the folder; its events are not ours to write
        return told(stop)
    try:
        return sampled(asked, events, signals)
    finally:
        if held:
            held.close()


def open_closed():
    """Open /dev/null in place of stdin, stdout and stderr where they are closed (2>&-), for the replicas, too. Else the
    next file that is opened would be what libraries print to, and messages on stderr would go to stdout."""
    for number in 0, 1, 2:
        try:
            os.fstat(number)
        except EnvironmentError:
            fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_SETFD, 0)  # it gets the lowest number that is free
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))


def as_replica(own, asked):
    """Train as one of several replicas, then end the process. replicas.py starts them and reports for all of them."""
    signals = replicas.Patient()
    signals.install()
    leash = replicas.Leash()
    events = replicas.Telling(own.rank, asked.out)
    code, _ = attempt(asked, Outside(events, Voice(None if own.rank else sys.stdout), signals), own)
    sys.stdout.flush()
    sys.stderr.flush()
    if not code and not own.is_spare:
        leash.stay()
    os._exit(code)  # a normal exit sometimes ends as a crash in C++, because threads of gloo still run


def sampled(asked, events, signals):
    if not asked.samples:
        return recorded(asked, events, signals)
    kept = sampler.Sampler(os.path.join(asked.out, "samples-%s.jsonl" % asked.samples))
    kept.start()
    try:
        return recorded(asked, events, signals)
    finally:
        kept.stop()
        if kept.failure:
            complain(kept.failure)


def recorded(asked, events, signals):
    """Train, with or without keeping the record, and return the exit code."""
    if asked.node or not asked.record:
        return attempt(asked, Outside(events, Voice(None if asked.node else sys.stdout), signals))[0]
    from . import record
    try:
        record = record.Record(asked)
    except EnvironmentError as error:
        return failed(stopped_by(error, asked.out), events)[0]
    code, reason = attempt(asked, Outside(events, record.voice, signals))
    return record.close(code, reason)


def attempt(asked, outside, own=None):
    """Train, and return (exit code, reason): (0, None) on success. A Stop or an exception is reported as an error
    event."""
    try:
        if asked.largest and asked.resume:  # a restarted job keeps its arguments; its batch was found the first time
            asked.batch, asked.largest = checkpoint.good(asked.resume)[1]["batch"], False
        if own is None and asked.replicas * asked.nodes > 1:
            lead(asked, outside)
        else:
            run(asked, outside, own or group.ALONE)
        return 0, None
    except Stop as stop:
        return failed(or_interrupted(stop, outside.signals), outside.events)
    except Exception as error:
        text = "%s: %s" % (type(error).__name__, error)
        stop = or_interrupted(Stop("crash", text[:2000]), outside.signals)
        if isinstance(error, MemoryError) or fits.is_out_of_memory(text):  # no fault of a line of the trainer's
            return failed(Stop("out_of_memory", text[:2000]), outside.events)
        if stop.kind == "crash":
            complain(traceback.format_exc())
        return failed(stop, outside.events)


def or_interrupted(stop, signals):
    """Return the Stop, or if a signal came before that of an interrupted training: Ctrl-C also ends the compiler that
    torch.compile waits for, and what fails then fails because of it."""
    is_consequence = signals.received and stop.kind in ("crash", "bad_argument")
    return interrupted(signals.received, stop.step) if is_consequence else stop


def failed(stop, events):
    try:
        events.write("error", kind=stop.kind, message=stop.message, step=stop.step)
    except Stop:
        pass  # the event would go to the same full disk; stderr has the error
    if hasattr(events, "tell"):  # the parent reports it once for all replicas
        return events.tell(stop), stop.message
    return told(stop), stop.message


def told(stop):
    complain("%s: %s" % (stop.kind, stop.message))
    return stop.exit_code


def lead(asked, outside):
    """Train with several replicas, on this machine or on several."""
    workload = imported(asked.workload)
    replicas.check(asked, workload)
    by_trying(asked, workload, outside)
    replicas.lead(asked, outside.voice, outside.signals)


def by_trying(asked, workload, outside):
    """Find the largest batch and the fastest settings, if requested, before this process takes any memory. What the
    workload can't do is refused first."""
    modelled(asked, workload)
    if asked.autotune:
        autotune.check(asked, workload)
    if asked.largest:
        asked.batch, asked.largest = largest(asked, workload, outside), False
    if asked.autotune:
        autotune.tune(asked, workload, outside.voice, outside.signals)
        asked.autotune = False


def run(asked, outside, own):
    workload, (_, voice, signals) = imported(asked.workload), outside
    if own.size > 1:
        own.least = getattr(workload, "LEAST_BATCH", 1)
    feed.check(asked)
    teacher.check(asked.teacher, asked.feed)
    by_trying(asked, workload, outside)
    model = modelled(asked, workload)
    tell_libraries(asked)
    free = room.free("gpu", asked.replicas) if asked.feed == "resident" else None
    loaded = loading(asked, workload)
    if not hasattr(workload, "run") and (asked.device == "cpu" or not driver.is_installed()):
        kernels.begin(layers.flat(layers.joined(model.words)))  # which compiles while the framework loads
    asked.framework, maker = framework(asked.framework, workload.FRAMEWORKS, voice)
    if own.size > 1:
        own.report = replicas.report
        own.report(framework=asked.framework)
    check_words(model, maker, asked.framework, workload)
    if own.rank and maker.TOWERS:  # replica 0 computes for all
        own.is_spare = True
        return
    if own.here > 1 and not maker.TOWERS:
        asked.threads = asked.threads or max(host.usable_cores() // own.here, 1)
    # the teacher first: TF32 is switched for the whole process, and the student's setting must win
    beside = teacher.beside(maker, workload, imported, asked) if asked.feed != "input" else None
    network = networked(maker, model, asked, own, signals)
    try:
        network.devices = network.devices or [host.processor()]
        does = "Training" if getattr(workload, "TRAINS", True) else "Computing"
        voice.say("%s %s with %s %s on the %s (%s)" % (
            does, asked.workload, asked.framework, network.version, network.device.upper(), ", ".join(network.devices)))
        signals.check(None)
        if hasattr(workload, "run"):
            workload.run(asked, network, outside)
            return
        if beside:
            voice.say("The teacher is %s, untrained, on the %s (--teacher %s)" % (
                workload.TEACHER, beside.device.upper(), asked.teacher))
            network = teacher.Student(network, teacher.way(beside, asked.teacher, outside))
        dataset = loaded()
        say_data(does, asked, workload, dataset, voice)
        signals.check(None)
        train(Training(asked, workload, model, dataset, network, outside, group.ALONE if maker.TOWERS else own), free)
    finally:
        network.close()


def networked(maker, model, asked, own, signals):
    way = computing.Way(asked.precision, asked.compile, asked.channels_last)
    made = functools.partial(maker.Network, model, asked.device, asked.gpu_memory_fraction, asked.threads, way, own)
    if own.size == 1:
        return made()
    with signals.fatal():
        return made()


def loading(asked, workload):
    """Return a function that returns the data. A thread reads or makes the data while the framework loads, which takes
    about as long. A folder of images is opened only when the function is called, because decoding may need the
    framework."""
    if hasattr(workload, "run") or (asked.data and getattr(workload, "DATA_FOLDER", None) == "pictures"):
        return lambda: workload.load(asked.data)
    return meanwhile(workload.load, asked.data)


def tell_libraries(asked):
    """Set the environment variables that libraries read when they are loaded."""
    if asked.device == "cpu":
        # a framework that sees a GPU allocates memory on it even when told not to compute there
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if asked.threads:
        os.environ["OMP_NUM_THREADS"] = str(asked.threads)  # the frameworks' libraries obey it
    # CUDA's own first card is the fastest, NVML's the first on the bus: what nvml.py reads must be of the card in use
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault(choices.ONEDNN, "1")  # some CPUs have oneDNN off by default, and are 1.7 times slower
    computing.prepare(asked.precision)


def largest(asked, workload, outside):
    if hasattr(workload, "run"):
        raise Stop("bad_argument", "--batch largest does not apply to %s: leave --batch out" % asked.workload)
    argv = asked.argv + fits.limits(asked)
    tries = fits.Tries(argv, os.path.join(asked.out, "fits"), outside.signals, workload.source is not in_turn)
    return fits.largest(asked.batch, replicas.least_batch(asked, workload), tries, outside.events, outside.voice)


def modelled(asked, workload):
    """Return the recipe.Model of what was asked for. Raise Stop for what the workload can't do."""
    if asked.data and not asked.dataset:
        raise Stop("bad_argument", "%s makes its data up: leave --data out" % asked.workload)
    if asked.epochs and not getattr(workload, "EPOCHS", True):
        raise Stop("bad_argument", "%s has no epochs: use --steps or --seconds instead" % asked.workload)
    if asked.teacher and not hasattr(workload, "TEACHER"):
        raise Stop("bad_argument", "%s has no teacher: leave --teacher out" % asked.workload)
    words = layers.without(workload.NETWORK, "dropout") if asked.no_dropout else workload.NETWORK
    recipe = dict(workload.RECIPE, loss="softmax") if asked.teacher == "none" else workload.RECIPE
    if asked.clip:
        recipe = dict(recipe, clip=asked.clip)
    model = Model(words, recipe, workload.INPUT, asked.batch, getattr(workload, "VARIABLES", None))
    if asked.resume and not model.trains:
        raise Stop("bad_argument", "%s trains nothing and leaves no checkpoint: leave --resume out" % asked.workload)
    if asked.clip and (not model.trains or hasattr(workload, "run")):
        raise Stop("bad_argument", "%s has no gradients to clip: leave --clip out" % asked.workload)
    if asked.trace and hasattr(workload, "run"):
        raise Stop("bad_argument", "%s makes no batches: leave --trace out" % asked.workload)
    least = getattr(workload, "LEAST_BATCH", 1)
    if asked.batch < least:
        raise Stop("bad_argument", "%s has batch norm, which needs a --batch of at least %d" % (asked.workload, least))
    return model


def check_words(model, maker, name, workload):
    missing = model.ops - set(maker.LAYERS)
    if missing:
        raise Stop("bad_argument", "%s has no layer for %s here; this workload trains with %s: use another or a later "
                   "container image" % (name, ", ".join(sorted(missing)), ", ".join(workload.FRAMEWORKS)))


def framework(asked, able, voice):
    """Return the name and module of the requested framework; for "auto", of the first of `able` that can be imported
    here."""
    refusals = []
    for name in sorted(able, reverse=True) if asked == "auto" else [asked]:
        try:
            with voice.still("loading " + name):
                return name, importlib.import_module("trainer.frameworks." + name)
        # the framework is missing, not for this Python or another version; AttributeError: a folder that only has its
        # name was imported as an empty package
        except (ImportError, SyntaxError, AttributeError) as error:
            refusals.append("%s: %s" % (name, error))
    raise Stop("bad_argument", "no framework can be imported here (%s)" % "; ".join(refusals))


def described(name):
    workload = imported(name)
    return {"name": name, "summary": workload.SUMMARY, "source": workload.SOURCE, "data": workload.DATA,
            "unit": workload.UNIT, "steps": workload.STEPS, "batch": workload.BATCH, "input": workload.INPUT,
            "parameters": workload.PARAMETERS, "forward_macs": workload.MACS, "flops_per_example": workload.FLOPS,
            "frameworks": workload.FRAMEWORKS}


if __name__ == "__main__":
    sys.exit(main())
