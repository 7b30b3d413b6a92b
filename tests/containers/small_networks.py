"""Networks that train in moments, and how tests train them."""

import numpy as np
from own_process import on_cpu

from trainer.computing import Way
from trainer.layers import batch_norm, constant, conv, dense, embedding, he, lrn, lstm, max_pool, relu, uniform
from trainer.recipe import Model, adam, momentum, recipe, sgd

BATCH = 8
PICTURES = (
    [
        conv("conv1", 3, 3, 8, he(3, 9), constant(0.1), decay=0.01),
        lrn("lrn1", 2, bias=1.0, alpha=0.001, beta=0.75),
        max_pool("pool1", 2, 2),
        conv("conv2", 3, 8, 8, he(8, 9)),
        batch_norm("norm2", 8, momentum=0.9, epsilon=0.001),
        relu("relu2"),
        dense("dense1", 8 * 8 * 8, 10, he(512), constant(0.0)),
    ],
    recipe(momentum(0.9), rate=0.01, averages=lambda _: 0.9, counted=True),
    (16, 16, 3),
)
TEXT = (
    [
        embedding("embedding", 50, 12, uniform(0.1)),
        lstm("lstm1", 12, 16, uniform(0.1), uniform(0.1)),
        dense("dense1", 16, 50, uniform(0.1), constant(0.0)),
    ],
    recipe(sgd(), rate=0.1, clip=5.0, labels=(3,)),
    (3,),
)
NUMBERS = ([dense("dense1", 6, 4, he(6), constant(0.0))], recipe(adam(0.9, 0.999, 1e-7), rate=0.01), (6,))


def model(network, batch=BATCH):
    return Model(*network, batch)


def source(network, batch=BATCH):
    """Return step -> batch; of pictures the third is smaller, like an epoch's last."""
    words, training, shape = network
    tokens, labels = words[0]["op"] == "embedding", training["labels"]

    def take(step):
        random, size = np.random.RandomState(step), batch - 3 if step == 2 and not tokens else batch
        examples = random.randint(0, 50, (size, *shape)) if tokens else random.normal(size=(size, *shape))
        return (
            examples.astype(np.int32 if tokens else np.float32),
            random.randint(0, 4, (size, *labels)).astype(np.int32),
        )

    return take


def made(framework, network, way, values=None):
    built = on_cpu(framework, model(network), way=Way(*way))
    built.load(model(network).first(3) if values is None else values)
    return built


def losses(network, built, first=0, last=5, batches=source):
    kept, turned = batches(network), model(network)
    return [
        float(built.train(batch, turned.turn(step, 3))[0])
        for step, batch in enumerate(built.batches(kept, first, last, "plain"), first)
    ]
