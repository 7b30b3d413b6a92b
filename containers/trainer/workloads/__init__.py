"""One file per workload: its data, its declared network, its recipe. `python -m trainer --list` shows what is here.

A workload's name is its file's, with "-" for "_". What others read without running it is a plain literal at the top:

    SUMMARY, SOURCE     what it is; whose numbers these are
    WHAT, PLACE         what it is, or which question it answers, in some 48 characters, and its place in the list of
                        `ngcdl workloads`; left out: SUMMARY, at the end
    DATA, UNIT          "cifar10" (real, or its stand-in), or what its synthetic data stands for; what an example is
    DATA_FOLDER         what --data takes instead of synthetic data: "pictures" (pictures.py); "cifar10" if DATA is
                        that; without it --data is refused
    CLASSES             if DATA_FOLDER is "pictures": how many folders of images --data must have
    BATCH, STEPS        the source's batch; how far to train by default: about ten minutes on a small GPU
    INPUT               the shape of one example
    PARAMETERS          as its source counts them; TRAINED if not all of these are (batch norm's running statistics)
    MACS, FLOPS         of one example: multiply-accumulates forward (cost.py); operations of a training step
    FRAMEWORKS          that have layers for all of its words
    TRAINS = False      if it only runs forward: no loss, no checkpoint; FLOPS are then those of a forward pass
    EPOCHS = False      if its source has no epoch_steps: it is trained by steps only, and its batches can't be gathered
                        on the device (--feed resident), which needs an epoch's order
    REPLICAS = False    if it is trained on one GPU only
    LEAST_BATCH         the fewest examples that each replica needs, if not 1
    TIMES = True        if it supports --times
    TEACHER             the workload whose network is the teacher of the loss "distill"
    REFUSES, BECAUSE    options that are refused before an image is pulled, as they are typed ("--clip", "--feed
                        plain"), and why, in words that follow the workload's name. A workload with run() refuses at
                        least "--clip", "--trace", "--batch largest" and "--autotune", as the trainer does
    WHOLE               what all examples together are ("film"), if the question is how long all of them take
    VARY                "batch=8,64": what `ngcdl compare` varies by default; left out: CPU against GPU
    LINES               steps between lines of output, if not 10
    VARIABLES           "cpu": TensorFlow 1 keeps variables in the CPU's memory; left out: on the device that computes

and beside these

    NETWORK, RECIPE     words of layers.py, a recipe of recipe.py
    load(folder)        the training set, a data.Dataset; folder None: synthetic
    source(dataset, batch, seed, fraction)    a function step -> (examples, labels); with an attribute epoch_steps if
                        epochs take each example once, and skip(steps) if a resumed training must skip those before
    load_test(folder), plain(examples)    what evaluation takes; left out if the data is noise; load_test returns None
                        if the folder has no test set
    stages(dataset, batch, seed)    if its pipeline has stages of its own: what feed.stages() returns
    queued(fraction)    only the tutorial: the size of the shuffle buffer, in images
    MEMORY_FRACTION     the largest share of a GPU's memory to take, if none is asked for
    run(asked, network, outside)    instead of all of these: for what is not a normal training (outside: events.Outside)
"""
