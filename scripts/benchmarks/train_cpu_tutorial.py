"""How fast the CIFAR-10 tutorial's network trains on this CPU, against the tutorial's own way and Keras' fit."""

from __future__ import annotations

from collections.abc import Iterator

from figures import Figure
from train_cpu import PEERS, STEPS, Peer, frameworks, measured


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    python = frameworks()
    tutorial = [python, str(PEERS), "tutorial", "FOLDER", f"{STEPS}"]
    fit = [python, str(PEERS), "keras", "cifar10", "2"]
    peers = {"the tutorial's own way": Peer(tutorial, {}), "Keras fit, fed by tf.data": Peer(fit, {})}
    yield from measured(python, "cifar10", peers, rounds, until)
