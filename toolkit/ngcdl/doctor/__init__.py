"""The whole chain from the driver to the data set, link by link: what is wrong, and the next command to type."""
