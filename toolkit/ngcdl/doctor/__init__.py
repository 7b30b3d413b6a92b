"""The whole chain from the driver to the data set, link by link: what is wrong, and the next command to type.

    hands    how this host is touched: files below a root, programs, free space, the clock
    look/    what is looked at, each look with a time limit, all at once      sight   what was seen, as plain values
    links/   what it means, one file for each area; a new file is a new link  chain   the links in order, judged
    mend     the remedies, each asked for before it is run                    bundle, redact   an archive for a report

Nothing here changes the host but `mend`, and that only after a yes.
"""
