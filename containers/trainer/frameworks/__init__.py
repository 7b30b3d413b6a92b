"""One file a framework: it turns the words of layers.py into layers and trains them.

Each file has `class Network`, made as Network(words, device, memory_fraction, threads) with device "auto", "cpu" or
"gpu" and threads None for as many as there are processors:

    version, device, devices     what computes: "2.21.0", "cpu" or "gpu", the names of the devices
    load(weights, averages)      {name: array} in the layout of layers.py, into the network
    weights(), averages()        the same out of it
    batches(source, first, last) takes source(step) -> (images, labels) for first..last-1; yields what train() takes
    train(batch, rate, keep)     one step of gradient descent, then average = keep * average + (1 - keep) * weight;
                                 gives the loss before the step, decay terms included; float() waits for the device
    logits(images)               images [n, h, w, c] -> numpy [n, classes], computed with the averages
    close()                      harmless twice

A file whose framework is missing, or of a version that it is not for, raises ImportError when it is imported; of those
that can be imported the last in the alphabet is taken, unless --framework names one. A new file is all that a framework
needs. Nothing here is imported before it is asked for: `trainer.frameworks.tf2` imports tensorflow.
"""
