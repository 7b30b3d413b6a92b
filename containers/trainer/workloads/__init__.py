"""One file a workload: its data, its network in words, its recipe. `python -m trainer --list` shows what is here.

A workload's name is its file's with "-" for "_". What others read without running it is a plain literal at the top:

    SUMMARY, SOURCE     what it is; whose numbers these are
    DATA, UNIT          "cifar10" (real, or its stand-in), or what its made-up data stands for; what an example is
    DATA_FOLDER         what --data takes instead of the made-up data: "pictures" (pictures.py); "cifar10" where DATA is
                        that; without it --data is refused
    CLASSES             where DATA_FOLDER is "pictures": so many folders of them --data must have
    BATCH, STEPS        the source's batch; how far to train by default: about ten minutes on a small GPU
    INPUT               the shape of one example
    PARAMETERS          as its source counts them; TRAINED where that is not all of these (batch norm's running values)
    MACS, FLOPS         of one example: multiply-accumulates forward; operations of a training step (cost.py)
    FRAMEWORKS          that have layers for all of its words
    TRAINS = False      where it only computes forward: no loss, no checkpoint; FLOPS are then those of the way forward
    EPOCHS = False      where its source has no epoch_steps: it is trained on steps alone
    REPLICAS = False    where it is trained on one GPU alone
    LEAST_BATCH         examples that each replica must have at least, where that is not 1
    TIMES = True        where it understands --times
    VARY                "batch=8,64": what `ngcdl compare` varies where nothing was typed; else CPU against GPU
    LINES               steps between lines, where that is not 10
    VARIABLES           "cpu": with TensorFlow 1 they stay in the CPU's memory; left out: on the device that computes

and beside these

    NETWORK, RECIPE     words of layers.py, words of recipe.py
    load(folder)        the set to train on, a data.Dataset; folder None: made up
    source(dataset, batch, seed, fraction, first=0)    what gives step -> (examples, labels); with an attribute
                        epoch_steps where epochs take each example once
    load_test(folder), plain(examples)    what evaluation takes; left out where the data is noise; load_test gives None
                        where the folder has nothing to test with
    stages(dataset, batch, seed)    where its pipeline has any of its own: what feed.stages() gives
    queued(fraction)    only the tutorial: how many images are mixed
    TEACHER             the workload whose network answers for the loss "distill"
    MEMORY_FRACTION     the share of a GPU's memory to take at most, where none is asked for
    run(asked, framework, network, events, voice, signals)    instead of all of these: what is done in a way of its own
"""
