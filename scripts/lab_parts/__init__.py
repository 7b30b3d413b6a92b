"""The parts of scripts/lab: what it downloads, builds, starts and takes down again."""
