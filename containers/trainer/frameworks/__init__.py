"""One folder a framework: it turns the words of layers.py into layers and trains them by the words of recipe.py.

Each has LAYERS, {op: function}, of the words that it knows, and `class Network`, made as Network(model, device,
memory_fraction, threads, way, group) with a recipe.Model, device "auto", "cpu" or "gpu", threads None for as many as
there are processors, a computing.Way, and a group.Group:

    version, device, devices     what computes: "2.21.0", "cpu" or "gpu", the names of the devices
    precision, compiled, channels_last    what became of the way: see the start event in events.py
    group                        as it was given
    load(values)                 {name: array} of all that model.kept() names, in the layout of layers.py
    values()                     the same out of it
    batches(source, first, last, feed="ahead")    takes source(step) -> (examples, labels) for first..last-1 in one of
                                 feed.py's ways; yields what train() takes, its last part as long as the batch
    label_bytes                  of a label, as it is copied to a device
    train(batch, turn)           one step of the recipe, then average = turn.keep * average + (1 - turn.keep) * weight
                                 where there are averages; gives the loss before the step, decay terms included, and
                                 how many guesses were right (None unless model.counted); float() waits for the device
    logits(examples)             examples [n, ...] -> numpy [n, classes], computed as for a test: with the averages
                                 where there are, batch norm's running values, no dropout
    infer(batch)                 the same of a batch as batches() yields it
    answers(examples)            the same of examples as batches() yields them, left on the device: the third part of a
                                 student's batch, which train() takes as numpy as well
    close()                      harmless twice
    agreed(number)               the largest number that any replica says; all say one

In a group of several load(), values() and train() are called by all replicas: kept are the rows of all where an array
has one for each example, loss and what was right are of the whole batch, turn.share is what the replica's part weighs.
TOWERS says whether, instead, one process has all of the group as towers; then agreed() is not asked for.

One whose framework is missing, or of a version that it is not for, raises ImportError when it is imported; of those
that can be imported the last in the alphabet is taken, out of the workload's FRAMEWORKS, unless --framework names one.
A new one is a folder, and its name in those: ops.py has its layers, learning.py its optimisers and losses (those of
both TensorFlows are in ../tensorflow_losses.py), numbers.py what it computes in, feeding.py its ways to the device,
smoke.py the smoke test's product. Nothing here is imported before it is asked for: `trainer.frameworks.tf2` imports
tensorflow.
"""
