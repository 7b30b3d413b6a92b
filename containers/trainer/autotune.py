"""--autotune: a trial before the training chooses the settings to compute with, unless an earlier choice is remembered.

Options that were typed are left alone. The choice is stored in `asked`, as if it had been typed, and reported in the
start event.
"""
from __future__ import absolute_import, division, print_function

import math
import os
import time

import numpy as np

from . import checkpoint, choices, fits, host, room, trial
from .events import Stop, clock
from .short import Short


def check(asked, workload):
    """Raise Stop if there is nothing to choose, or more than one machine to choose for."""
    for refused, why in (
            (hasattr(workload, "run"), "%s is not a long training" % asked.workload),
            (asked.feed == "input", "--feed input computes nothing"),
            (asked.nodes > 1, "each machine would choose for itself")):
        if refused:
            raise Stop("bad_argument", "--autotune: %s: leave it out" % why)


def tune(asked, workload, voice, signals):
    """Choose settings and store them in `asked`; `asked.tuned` becomes the field "autotune" of the start event."""
    here = machine()
    key = choices.key(asked, here)
    found = choices.recall(asked.choices, key, voice.say) if asked.choices else None
    if found and "feed" in found["chosen"]:  # less memory may be free now than at the time of the choice
        start = found["start"]
        has_room = trial.can_be_resident(asked, workload, start, room.free(start["device"], asked.replicas))
        found = found if has_room else None
    if found:
        voice.say("Chosen in a trial on %s, and remembered (--autotune): %s" % (
            time.strftime("%Y-%m-%d", time.gmtime(found["measured"])), compared(found)))
        told = dict(found, remembered=True, kept=True, skipped=None)
    else:
        told = tried(asked, workload, here, voice, signals)
        told["kept"] = not told["skipped"] and is_kept(asked.choices, key, told, voice)
    put(told["chosen"], asked)
    asked.tuned = {name: told[name] for name in
                   ("chosen", "measured", "seconds", "tries", "skipped", "remembered", "kept")}


def is_kept(folder, key, told, voice):
    if folder:
        return choices.keep(folder, key, told, voice.say)
    voice.say("--autotune: not remembered, because no folder was given (--choices DIR)")
    return False


def tried(asked, workload, here, voice, signals):
    """Run the trials, report each of them and the choice, and return what is to be recorded."""
    began, found, skipped, start = clock(), [trial.Tried({})], None, {}
    if asked.seconds and asked.seconds <= asked.trial_seconds:
        skipped = "the training itself takes at most %.0f s" % asked.seconds
    else:
        voice.say("Trying other settings for at most %.0f s before the training begins (--autotune)" %
                  asked.trial_seconds)
        short = Short(asked.argv, os.path.join(asked.out, "trial"), signals)

        def ways(event):
            start.update((name, event[name]) for name in ("device", "dataset_images"))
            return trial.ways(asked, workload, event, here, room.free(event["device"], asked.replicas))

        found, skipped = trial.search(
            lambda way, seconds: measured(short, asked.batch, way, seconds), ways, lambda one: left(asked, one),
            asked.trial_seconds)
        for one in found:
            voice.say("Tried: %s" % said(one.told()))
    told = {"chosen": trial.winner(found).way, "measured": time.time(), "seconds": clock() - began, "start": start,
            "tries": [one.told() for one in found], "skipped": skipped, "remembered": False}
    voice.say("%s (--autotune): %s" % (
        ("Not chosen by trial", skipped) if skipped else ("Chosen", compared(told))))
    return told


def measured(short, batch, way, seconds):
    """Train briefly with these settings, and return the trial.Reading."""
    words = ["--threads", way["threads"]] if "threads" in way else []
    words += ["--channels-%s" % ("last" if way["channels_last"] else "first")] if "channels_last" in way else []
    words += ["--feed", way["feed"]] if "feed" in way else []
    variables = {choices.ONEDNN: "0"} if "onednn" in way else {}
    outcome = short.train(["--batch", batch, "--seconds", trial.WINDOW_SECONDS] + words, variables, seconds)
    if outcome.code != 0:
        failed = outcome.ended or fits.why(outcome)[1] or "exit code %s" % outcome.code
        return trial.Reading(None, None, None, failed[:500])
    steps = [event for event in outcome.events if event["event"] == "step" and event["examples_per_second"]]
    steps = steps[len(steps) // 4:]  # the first quarter is warm-up
    if not steps:
        return trial.Reading(None, None, None, "no step was timed")
    rate, batch_seconds = (float(np.median([step[name] for step in steps])) for name in (
        "examples_per_second", "seconds_per_batch"))
    return trial.Reading(rate, batch_seconds, [one for one in outcome.events if one["event"] == "start"][-1], None)


def left(asked, reading):
    """Estimate how many seconds the training still takes with the default settings; None if only a signal ends it."""
    steps = asked.steps
    if asked.epochs:
        steps = asked.epochs * math.ceil(reading.start["dataset_images"] / asked.batch)
    rest = steps and max(steps - (checkpoint.reached(asked.resume) if asked.resume else 0), 0)
    found = ([asked.seconds] if asked.seconds else []) + ([rest * reading.seconds_per_batch] if steps else [])
    return min(found) if found else None


def machine():
    usable, limit = host.usable_cores(), host.Container().cpu_limit()
    allowed = usable if limit is None else max(min(usable, int(-(-limit // 1))), 1)
    return trial.Here(usable, allowed, host.physical_cores())


def put(way, asked):
    """Put these settings into asked, as if they had been typed."""
    asked.threads = way.get("threads", asked.threads)
    asked.channels_last = way.get("channels_last", asked.channels_last)
    asked.feed = way.get("feed", asked.feed)
    if "onednn" in way:
        os.environ[choices.ONEDNN] = "0"


def compared(told):
    """Describe the choice, and how much faster than the default it was."""
    one = next(one for one in told["tries"] if one["way"] == told["chosen"])
    if not told["chosen"]:
        return "%s: no other settings were faster by more than the trials differ" % said(one)
    return "%s, %.2f times the default" % (
        said(one), one["examples_per_second"] / told["tries"][0]["examples_per_second"])


def said(one):
    """Describe one try: its settings, their rate and the spread of their trials."""
    name = one["name"]
    if one["failed"]:
        return "%s failed: %s" % (name, one["failed"])
    if not one["trials"]:
        return "%s was not tried: there was no time left" % name
    many = "s" if one["trials"] > 1 else ""
    return "%s, %.1f examples/sec (%.1f to %.1f in %d trial%s)" % (
        name, one["examples_per_second"], one["least"], one["most"], one["trials"], many)
