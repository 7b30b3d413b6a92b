"""One file a workload: its data, its network in words, its recipe. `python -m trainer --list` shows what is here."""
