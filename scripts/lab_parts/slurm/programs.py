"""Slurm's programs from Debian 12 or 13: a script starts each with the cluster's files and with its own libraries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from lab_parts import packages
from lab_parts.where import PARTS, Lab, write_whole

PROGRAMS = (
    *("usr/sbin/munged", "usr/bin/munge", "usr/sbin/slurmctld-wlm", "usr/sbin/slurmd-wlm", "usr/sbin/slurmstepd-wlm"),
    *(f"usr/bin/{name}" for name in ("sbatch", "srun", "squeue", "scontrol", "scancel", "sacct", "sinfo", "salloc")),
)
ACCOUNTING = ("usr/sbin/slurmdbd", "usr/bin/sacctmgr", "usr/sbin/mariadbd")
NEWER = "24.11"
LIBRARIES, LOADER = "usr/lib/x86_64-linux-gnu", "ld-linux-x86-64.so.2"
START = '#!/bin/sh\nexport SLURM_CONF="{conf}"{libraries}\nexec {program} "$@"\n'


class Programs:
    """The unpacked programs: `plugins` is Slurm's plugin path, `database` MariaDB's root folder."""

    def __init__(self, lab: Lab, has_accounting: bool) -> None:
        names = ["slurm", *(["slurm-accounting"] if has_accounting else [])]
        self.is_newer = os.environ.get("NGCDL_LAB_SLURM") == NEWER
        self._newer = [packages.unpacked(lab, f"{name}-{NEWER}") for name in names] if self.is_newer else []
        self._others = [packages.unpacked(lab, name) for name in names]  # the database's, with either version
        self._paths = (*PROGRAMS, *(ACCOUNTING if has_accounting else ()))
        self.plugins = ":".join(f"{root}/{LIBRARIES}/slurm-wlm" for root in self._newer or self._others)
        self.database = self._others[-1]

    def put(self, folder: Path, conf: Path) -> None:
        """Write a script for each program, which starts it with its own libraries, into the folder's bin."""
        roots = [*self._newer, *self._others]
        with_others = f' LD_LIBRARY_PATH="{_libraries(self._others)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
        for path in self._paths:
            root = next(root for root in roots if (root / path).exists())
            # Debian's programs end in -wlm; a daemon that runs under such a name leaves the GPUs out
            program = folder / "programs" / path.rpartition("/")[2].removesuffix("-wlm")
            if root in self._newer:
                self._with_its_own_libraries(root / path, program)
            else:
                program.symlink_to(root / path)
            libraries = "" if root in self._newer else with_others
            start = START.format(conf=conf, libraries=libraries, program=program)
            write_whole(folder / "bin" / program.name, start, 0o755)

    def _with_its_own_libraries(self, program: Path, copy: Path) -> None:
        """Copy a program so that it uses the C library of its own Debian, but its children use this machine's."""
        packages.ensure_installed({"patchelf": "patchelf"})
        shutil.copy2(program, copy)
        loader, path = f"{self._newer[0]}/{LIBRARIES}/{LOADER}", _libraries(self._newer)
        words = ["patchelf", "--set-interpreter", loader, "--force-rpath", "--set-rpath", path, str(copy)]
        packages.run(words)

    def pyxis(self, folder: Path) -> Path:
        """Compile the stand-in for NVIDIA's plugin; return its path. Raise LabError if it does not compile."""
        plugin = folder / "pyxis.so"
        packages.ensure_installed(packages.COMPILER)
        headers = f"-I{(self._newer or self._others)[0]}/usr/include"
        words = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", headers, "-o", str(plugin), str(PARTS / "pyxis.c")]
        packages.run(words)
        return plugin


def _libraries(roots: Sequence[Path]) -> str:
    return ":".join(f"{root}/{LIBRARIES}{sub}" for root in roots for sub in ("", "/slurm-wlm"))
