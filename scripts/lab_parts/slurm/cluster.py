"""A cluster's life cycle: up with all nodes idle, nodes that crash and come back, and down without a trace."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from lab_parts import processes
from lab_parts.slurm import accounting, steps
from lab_parts.slurm.conf import Conf
from lab_parts.slurm.daemons import Daemons
from lab_parts.slurm.programs import Programs
from lab_parts.where import Lab, LabError, step

IDLE_SECONDS = 240


class Cluster:
    """A cluster in its own folder. Put `bin`, which has sbatch, srun and the others, at the front of PATH."""

    def __init__(
        self, folder: Path, cache: Path, nodes: int = 2, accounting: bool = False, types: Sequence[str] = ("fake",)
    ) -> None:
        """`cache`: the lab's. `types`: the types of the nodes' GPUs, cycled. Raise LabError if the folder's path is too
        long."""
        if len(str(folder)) > 80:  # the path of a Unix socket is limited
            raise LabError(f"the path {folder} is too long for the cluster's sockets")
        self._lab = Lab(folder, cache)
        self.folder, self.nodes = folder, [f"n{number}" for number in range(1, nodes + 1)]
        self._has_accounting = accounting
        self._types = dict(zip(self.nodes, itertools.cycle(types)))
        self._daemons = Daemons(self._lab)

    def __enter__(self) -> Cluster:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def bin(self) -> Path:
        return self._daemons.bin

    @property
    def record(self) -> Path:
        """The file with the pyxis options of each task, one line per task: job=1<tab>node=n1<tab>proc=0<tab>..."""
        return self.folder / "pyxis.tsv"

    @property
    def conf(self) -> Path:
        return self._daemons.conf

    def environment(self) -> dict[str, str]:
        return self._daemons.environment()

    def up(self) -> None:
        """Start it and wait until all nodes are idle."""
        with step(f"Slurm with {len(self.nodes)} nodes{', slurmdbd' if self._has_accounting else ''}"):
            for part in ("bin", "programs", "state", "spool", "logs"):
                (self.folder / part).mkdir(parents=True)
            programs = Programs(self._lab, self._has_accounting)
            programs.put(self.folder, self.conf)
            conf = Conf(self.folder, self._types, programs.plugins, self._has_accounting)
            conf.write(programs.is_newer, f"required {programs.pyxis(self.folder)} record={self.record}\n")
            self._munge()
            if self._has_accounting:
                accounting.up(conf, programs.database, self._daemons)
            self._daemons.start("slurmctld", ["-D"], lambda: self._daemons.says("sinfo", "-h"))
            for name in self.nodes:
                self.start_node(name)
            self.wait_idle()

    def down(self) -> None:
        """Stop everything, jobs included, and remove the folder."""
        if self.conf.exists():
            self._daemons.says("scancel", "--user", str(os.geteuid()))
        for name in (*self.nodes, "slurmctld"):
            processes.stop(self._lab, name, seconds=2)
        steps.kill(self.conf)
        for name in (*accounting.NAMES, "munged"):
            processes.stop(self._lab, name, seconds=5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_node(self, name: str) -> None:
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        words = ["-D", "-f", str(self.conf), "-N", name, "-d", self._daemons.at("slurmstepd")]
        self._daemons.start(name, words, lambda: True, program="slurmd")

    def kill_node(self, name: str) -> None:
        """Crash a node: kill its slurmd, its steps and their tasks at once, and tell slurmctld, which else notices
        after 13 s. Containers that an engine runs for the tasks stay."""
        processes.kill(self._lab, name)
        steps.kill(self.conf, name)
        self._daemons.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=lost")

    def wait_idle(self) -> None:
        """Wait until all nodes are idle. Raise LabError if they are not within IDLE_SECONDS."""
        until = time.monotonic() + IDLE_SECONDS
        says = self._daemons.says
        while len(set((says("sinfo", "-h", "-N", "-t", "idle", "-o", "%N") or "").split())) < len(self.nodes):
            if time.monotonic() > until:
                about = says("sinfo", "-N", "-l")
                raise LabError(f"fewer than {len(self.nodes)} nodes are idle after {IDLE_SECONDS} s:\n{about}")
            time.sleep(0.1)

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self.folder.chmod(0o755)
        named = {"socket": "munge.sock", "key-file": key.name, "pid-file": "munge.pid", "log-file": "logs/munge.txt"}
        named["seed-file"] = "munge.seed"
        options = [f"--{option}={self.folder}/{name}" for option, name in named.items()]
        # --force: accept a parent folder that others can write to, such as /tmp
        words = ["--foreground", "--force", "--num-threads=2", *options]
        self._daemons.start(
            "munged", words, lambda: self._daemons.says("munge", "-S", f"{self.folder}/munge.sock", "-n")
        )
