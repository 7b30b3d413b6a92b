"""One folder per framework: it builds the layers that layers.py declares, and trains them as recipe.py says.

Each has LAYERS, {op: function}, of the ops that it supports, and `class Network`, created as Network(model, device,
memory_fraction, threads, way, group) with a recipe.Model, device "auto", "cpu" or "gpu", threads (None for as many as
there are processors), a computing.Way, and a group.Group:

    version, device, devices     what computes: "2.21.0", "cpu" or "gpu", the names of the devices
    precision, compiled, channels_last    what became of the way: see the start event in events.py
    winograd                     once weights are loaded: whether 3 x 3 convolutions may be computed by winograd.c
    group                        as it was given
    load(values)                 {name: array} of everything in model.kept(), in the layout of layers.py
    values()                     returns the same
    batches(source, first, last, feed="ahead")    takes source(step) -> (examples, labels) for first..last-1 by one of
                                 feed.py's feeds; yields what train() takes, whose last part is as long as the batch
    label_bytes                  of a label, as it is copied to a device
    scaled_bytes                 of a number in images that are only scaled, as the feed "resident" keeps them there
    train(batch, turn)           one step of the recipe, then average = turn.keep * average + (1 - turn.keep) * weight
                                 if there are averages; returns the loss before the step, weight decay included, and
                                 how many guesses were right (None unless model.counted); float() waits for the device
    logits(examples)             examples [n, ...] -> numpy [n, classes], computed as for a test: with the averages if
                                 there are any, batch norm's running statistics, no dropout
    infer(batch)                 the same for a batch as batches() yields it
    answers(examples)            the same for examples as batches() yields them, left on the device: the third part of a
                                 student's batch, which train() also takes as numpy
    close()                      harmless twice
    agreed(number)               returns the largest number that any replica passes; all replicas must call it

In a group of several, all replicas call load(), values() and train(): values() returns the rows of all replicas if an
array has one per example, loss and right guesses are of the global batch, and turn.share is the weight of the replica's
part. TOWERS says whether, instead, one process has the whole group as towers; then agreed() is not needed.

A framework that is missing, or of an unsupported version, raises ImportError when its folder is imported. Unless
--framework names one, the alphabetically last in the workload's FRAMEWORKS that can be imported is taken. To add a
framework, add a folder, and its name to the FRAMEWORKS of workloads: ops.py has its layers, learning.py its optimisers
and losses (those of both TensorFlows are in ../tensorflow_losses.py), numbers.py its precisions, feeding.py how batches
reach the device, smoke.py the smoke test's product. Nothing here is imported before it is needed:
`trainer.frameworks.tf2` imports tensorflow.
"""
