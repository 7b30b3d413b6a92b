"""argv -> one training. What it understands and what it leaves is told in events.py."""
from __future__ import absolute_import, division, print_function

import argparse
import binascii
import importlib
import json
import os
import pkgutil
import sys
import time
import traceback

from . import computing, feed, fits, frameworks, layers, nvml, teacher, workloads
from .epochs import in_turn
from .events import Events, Stop, Voice, stopped_by
from .files import lock
from .loop import Signals, train
from .recipe import Model

INSTEAD = {"cifar10": "CIFAR-10"}


def main(argv=None):
    asked = arguments(argv)
    if asked.list:
        print(json.dumps([described(name) for name in names(workloads)], indent=1, sort_keys=True))
        return 0
    signals = Signals()
    signals.install()
    try:
        if not os.path.isdir(asked.out):
            os.makedirs(asked.out)
        held = lock(asked.out)
        events = Events(asked.out)
    except EnvironmentError as error:
        return told(stopped_by(error, asked.out))
    except Stop as stop:  # another trainer's folder, whose events are not ours to write
        return told(stop)
    with held:
        return recorded(asked, events, signals)


def recorded(asked, events, signals):
    """Train, with or without keeping the record, and give the exit code."""
    if not asked.record:
        return attempt(asked, events, Voice(sys.stdout), signals)[0]
    from . import record
    try:
        record = record.Record(asked)
    except EnvironmentError as error:
        return failed(stopped_by(error, asked.out), events)[0]
    code, reason = attempt(asked, events, record.voice, signals)
    return record.close(code, reason)


def attempt(asked, events, voice, signals):
    """Give the exit code and why it is not 0. Every way to end without reaching the last step leaves an error event."""
    try:
        run(asked, events, voice, signals)
        return 0, None
    except Stop as stop:
        return failed(stop, events)
    except Exception as error:
        traceback.print_exc()
        text = "%s: %s" % (type(error).__name__, error)
        memory = isinstance(error, MemoryError) or fits.is_out_of_memory(text)
        return failed(Stop("out_of_memory" if memory else "crash", text[:2000]), events)


def failed(stop, events):
    try:
        events.write("error", kind=stop.kind, message=stop.message, step=stop.step)
    except Stop:
        pass  # the disk that is full is the one the event would go to; stderr has it
    return told(stop), stop.message


def told(stop):
    print("%s: %s" % (stop.kind, stop.message), file=sys.stderr)
    return stop.exit_code


def run(asked, events, voice, signals):
    if asked.device == "cpu":
        # a framework that sees a GPU takes memory on it even when told not to compute there
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if asked.threads:
        os.environ["OMP_NUM_THREADS"] = str(asked.threads)  # what the frameworks' libraries go by
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # on some CPUs off by default: then 1.7 times slower
    computing.prepare(asked.precision)
    workload = imported(asked.workload)
    feed.check(asked)
    teacher.check(asked.teacher, asked.feed)
    if asked.largest:
        asked.batch = largest(asked, workload, events, voice, signals)
    model = modelled(asked, workload)
    free = feed.free_bytes(nvml.read()) if asked.feed == "resident" else None
    name, maker = framework(asked.framework)
    check_words(model, maker, name, workload)
    way = computing.Way(asked.precision, asked.compile, asked.channels_last)
    # the teacher first: TF32 is switched for the whole process, and it is the student's word that counts
    beside = teacher.beside(maker, workload, imported, asked) if asked.feed != "input" else None
    network = maker.Network(model, asked.device, asked.gpu_memory_fraction, asked.threads, way)
    try:
        network.devices = network.devices or [processor()]
        voice.say("%s %s with %s %s on the %s (%s)" % (
            "Training" if getattr(workload, "TRAINS", True) else "Computing", asked.workload, name, network.version,
            network.device.upper(), ", ".join(network.devices)))
        signals.check(None)
        if hasattr(workload, "run"):
            workload.run(asked, name, network, events, voice)
            return
        if beside:
            voice.say("The teacher is %s, untrained, on the %s (--teacher %s)" % (
                workload.TEACHER, beside.device.upper(), asked.teacher))
            network = teacher.Student(network, teacher.way(beside, asked.teacher, events, voice))
        dataset = workload.load(asked.data)
        does = "Training" if model.trains else "Computing"
        voice.say("%s on %d %s of %s" % (does, dataset.count, workload.UNIT, asked.data) if asked.data else
                  "%s on %d SYNTHETIC %s, not on %s: %s" % (
                      does, dataset.count, workload.UNIT, INSTEAD.get(workload.DATA, workload.DATA), dataset.note))
        signals.check(None)
        train(asked, workload, model, dataset, network, name, events, voice, signals, free)
    finally:
        network.close()


def largest(asked, workload, events, voice, signals):
    """Look for the largest batch that fits before this process itself takes any memory."""
    if hasattr(workload, "run"):
        raise Stop("bad_argument", "%s has no batches: leave --batch away" % asked.workload)
    least = 2 if "batch_norm" in layers.ops(workload.NETWORK) else 1
    tries = fits.Tries(asked.argv, os.path.join(asked.out, "fits"), signals, workload.source is not in_turn)
    return fits.largest(asked.batch, least, tries, events, voice)


def modelled(asked, workload):
    """Give the recipe.Model of what was asked for. What the workload can't be asked for raises Stop."""
    if asked.data and not asked.dataset:
        raise Stop("bad_argument", "%s makes its data up: leave --data away" % asked.workload)
    if asked.teacher and not hasattr(workload, "TEACHER"):
        raise Stop("bad_argument", "%s has no teacher: leave --teacher away" % asked.workload)
    words = layers.without(workload.NETWORK, "dropout") if asked.no_dropout else workload.NETWORK
    recipe = dict(workload.RECIPE, loss="softmax") if asked.teacher == "none" else workload.RECIPE
    model = Model(words, recipe, workload.INPUT, asked.batch, getattr(workload, "VARIABLES", None))
    if asked.resume and not model.trains:
        raise Stop("bad_argument", "%s trains nothing and leaves no checkpoint: leave --resume away" % asked.workload)
    if asked.batch < 2 and model.trains and "batch_norm" in model.ops:
        raise Stop("bad_argument", "%s has batch norm, which needs a --batch of 2 at least" % asked.workload)
    return model


def check_words(model, maker, name, workload):
    missing = model.ops - set(maker.LAYERS)
    if missing:
        raise Stop("bad_argument", "%s has no layer for %s; this trains with %s" % (
            name, ", ".join(sorted(missing)), ", ".join(workload.FRAMEWORKS)))


def framework(asked):
    """Give the name and the module of the framework that was asked for, or of the first that can be imported here."""
    refusals = []
    for name in reversed(names(frameworks)) if asked == "auto" else [asked]:
        try:
            return name, importlib.import_module("trainer.frameworks." + name)
        except (ImportError, SyntaxError) as error:  # not installed, of another version, or not for this Python
            refusals.append("%s: %s" % (name, error))
    raise Stop("bad_argument", "no framework can be imported here (%s)" % "; ".join(refusals))


def processor():
    from . import host
    return host.processor()


def names(package):
    """Give the names of a package's modules in order: a new file is all that a workload or framework needs."""
    return sorted(name.replace("_", "-") for _, name, _ in pkgutil.iter_modules(package.__path__))


def imported(name):
    return importlib.import_module("trainer.workloads." + name.replace("-", "_"))


def described(name):
    workload = imported(name)
    return {"name": name, "summary": workload.SUMMARY, "source": workload.SOURCE, "data": workload.DATA,
            "unit": workload.UNIT, "steps": workload.STEPS, "batch": workload.BATCH, "input": workload.INPUT,
            "parameters": workload.PARAMETERS, "forward_macs": workload.MACS, "flops_per_example": workload.FLOPS,
            "frameworks": workload.FRAMEWORKS}


def arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m trainer", description="Train a workload; see trainer/events.py.")
    parser.add_argument("workload", nargs="?", choices=names(workloads))
    parser.add_argument("--list", action="store_true", help="print the workloads as JSON")
    parser.add_argument("--out", metavar="DIR", help="the run's folder")
    parser.add_argument("--runs", metavar="DIR", help="make the run's folder in this one")
    parser.add_argument("--framework", choices=["auto"] + names(frameworks), default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--data", metavar="DIR|synthetic", default="synthetic")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=above_zero(int), help="the number of the step to reach")
    length.add_argument("--epochs", type=above_zero(int), help="instead: as many steps as so many epochs have")
    parser.add_argument("--seconds", type=above_zero(float), help="stop when so many have passed since the first step")
    parser.add_argument("--batch", type=batch_size, help="images, or sequences, a step; or the word largest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=above_zero(int), help="processor threads that compute; default: all")
    parser.add_argument("--feed", choices=feed.FEEDS, default="ahead", help="how batches reach the device; see feed.py")
    parser.add_argument("--precision", choices=("auto", "float32", "tf32", "amp"), default="auto")
    parser.add_argument("--compile", action="store_true", help="by torch.compile, or XLA")
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--channels-last", action="store_true", default=None, help="how pictures lie")
    layout.add_argument("--channels-first", dest="channels_last", action="store_false")
    parser.add_argument("--log-frequency", type=above_zero(int), help="steps between lines")
    parser.add_argument("--queue-fraction", type=above_zero(float, 1), default=0.4)
    parser.add_argument("--gpu-memory-fraction", type=above_zero(float, 1))
    parser.add_argument("--checkpoint-seconds", type=above_zero(float), default=600.0)
    parser.add_argument("--resume", metavar="DIR", help="go on from the newest good checkpoint there")
    parser.add_argument("--no-eval", action="store_true")
    parser.add_argument("--no-dropout", action="store_true", help="leave dropout out, as comparing frameworks needs")
    parser.add_argument("--teacher", choices=teacher.WAYS, help="of distill alone: who answers, and when (ahead)")
    parser.add_argument("--record", action="store_true", help="write run.json, samples.jsonl and log.txt")
    asked = parser.parse_args(argv)
    if not asked.list:
        if not asked.workload or bool(asked.out) == bool(asked.runs):
            parser.error("a workload and one of --out and --runs are needed")
        if not asked.data:
            parser.error("--data needs a folder, or the word synthetic")
        if asked.batch == "largest" and asked.resume:
            parser.error("--resume goes on with the batch that it had: leave --batch largest away")
        asked.argv = sys.argv[1:] if argv is None else list(argv)
        fill(asked)
    return asked


def fill(asked):
    """Put the workload's own numbers where none were given, and make the folder's name."""
    workload = imported(asked.workload)
    asked.largest = asked.batch == "largest"
    asked.batch = workload.BATCH if asked.largest or not asked.batch else asked.batch
    asked.log_frequency = asked.log_frequency or getattr(workload, "LINES", 10)
    if not (asked.steps or asked.epochs or asked.seconds):
        asked.steps = workload.STEPS
    asked.data = None if asked.data == "synthetic" else asked.data
    asked.dataset = read_by(workload)
    asked.teacher = asked.teacher or ("ahead" if hasattr(workload, "TEACHER") else None)
    asked.gpu_memory_fraction = asked.gpu_memory_fraction or getattr(workload, "MEMORY_FRACTION", None)
    if asked.runs:
        made = time.strftime("%Y%m%d-%H%M%S", time.gmtime())  # UTC, as all other runs there: names are their order
        unique = binascii.hexlify(os.urandom(2)).decode("ascii")
        asked.out = os.path.join(asked.runs, "%s-%s-%s" % (made, asked.workload, unique))


def read_by(workload):
    """Give what --data has to hold: "cifar10", "pictures"; None where the workload always makes its data up."""
    return getattr(workload, "DATA_FOLDER", "cifar10" if workload.DATA == "cifar10" else None)


def batch_size(text):
    return text if text == "largest" else above_zero(int)(text)


def above_zero(kind, most=None):
    """Give the argparse type of numbers above 0 and up to most."""
    def read(text):
        value = kind(text)
        if not 0 < value <= (most or float("inf")):
            raise ValueError(text)
        return value
    read.__name__ = "positive %s" % kind.__name__ + (" up to %s" % most if most else "")
    return read


if __name__ == "__main__":
    sys.exit(main())
