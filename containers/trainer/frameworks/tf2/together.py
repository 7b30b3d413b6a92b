"""How TensorFlow 2 replicas all-reduce: by a MultiWorkerMirroredStrategy's ring over gRPC, between GPUs too.

The variables are our own, one set per replica: the strategy only computes the sums. By default it does not use NCCL,
and is not asked to, because NCCL hung or crashed in releases from 2.0 to 2.11 (docs/training.md says where).
"""
import json
import os

import tensorflow as tf

from ...fits import is_out_of_memory
from ...group import Lost

GONE = tf.errors.UnavailableError, tf.errors.InternalError, tf.errors.AbortedError, tf.errors.CancelledError


def announce(group):
    """List the workers in TF_CONFIG, which TensorFlow reads when the strategy is made; that must happen before all
    else."""
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": group.workers}, "task": {"type": "worker", "index": group.rank}})
    # A proxy for the outside world must not be used between replicas:
    # https://grpc.github.io/grpc/core/md_doc_environment_variables.html
    os.environ["no_grpc_proxy"] = ",".join(worker.rpartition(":")[0].strip("[]") for worker in group.workers)


class Together:
    def __init__(self, group):
        announce(group)
        self.group = group
        maker = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)  # 2.4 and later
        with translated(), group.joining():
            self.strategy = (maker or tf.distribute.experimental.MultiWorkerMirroredStrategy)()
        self.adding = self.running(lambda one: self.add([one])[0])

    def running(self, function, **said):
        """Return the function as a graph in which add() works."""
        run = getattr(self.strategy, "run", None) or self.strategy.experimental_run_v2  # before 2.2
        return tf.function(lambda *all: run(function, all), autograph=False, **said)

    def add(self, tensors):
        """Return the sum of each tensor over all replicas: one all-reduce for all of them."""
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        flat, = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, [flat])
        parts = tf.split(flat, [tf.size(tensor) for tensor in tensors], num=len(tensors))
        return [tf.reshape(part, tf.shape(tensor)) for part, tensor in zip(parts, tensors)]

    def sum(self, tensor):
        with translated():
            return self.adding(tensor)

    def largest(self, number):
        # before 2.2 a plain 0.0 would be float32, and refused beside float64
        number, other = (tf.constant(value, tf.float64) for value in (number, 0.0))
        own = tf.one_hot(self.group.rank, self.group.size, number, other, dtype=tf.float64)
        return float(tf.reduce_max(self.sum(own)))


class translated:
    """Raise Lost if a replica is gone: TensorFlow's own errors report only what it ran into."""

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if kind is not None and issubclass(kind, GONE) and not is_out_of_memory(str(error)):
            raise Lost(error) from error
