"""Checks the whole chain from driver to data set, link by link: what is wrong, and the next command to type.

    hands    access to this host: files below a root, programs, free space, the clock
    look/    the probes, all at once, each with a time limit                  sight   what they saw, as plain values
    links/   what it means, one file per area; a new file is a new link       chain   the links in order, judged
    injected how GPUs get into a container, for several links                 packages   commands that install
    mend     the remedies, each confirmed before it runs                      bundle, redact   an archive for a report

Only `mend` changes the host, and only after a yes.
"""
