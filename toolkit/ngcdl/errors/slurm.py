"""Slurm's programs are missing, silent, or refuse."""

from __future__ import annotations

from ngcdl.errors.engine import EngineError, EngineLost


class SlurmAbsent(EngineError):
    def __init__(self, program: str) -> None:
        super().__init__(
            f"Slurm's {program} is not on this machine.",
            "Run this on a login node of the cluster, or load Slurm's module:\n    module load slurm",
        )


class SlurmLost(EngineLost):
    def __init__(self, program: str, said: str) -> None:
        EngineError.__init__(
            self,
            f"Slurm's {program} gives no answer: {said}",
            "A submitted job goes on without ngcdl. Is the controller up?\n    scontrol ping\n    ngcdl runs",
        )
        self.doing = program


class SlurmRefused(EngineError):
    """Slurm refused, in the words `said`. `meant` says in plain words what that means."""

    def __init__(self, said: str, hint: str = "", meant: str = "") -> None:
        super().__init__(f"Slurm said: {said}. That is: {meant}." if meant else f"Slurm said: {said}", hint)
        self.said = said


class JobOfOthers(EngineError):
    def __init__(self, job: str, folder: object, works_in: object) -> None:
        super().__init__(
            f"Job {job}, which the record in {folder} names, is not that run's: it works in {works_in}.",
            "Something else than ngcdl changed the record. Which jobs there are:\n    squeue --me -o '%A %j %Z'",
        )


class NotPlaceable(SlurmRefused):
    """No node has what was asked for, or too few nodes have it."""

    def __init__(self, said: str, there: str, meant: str = "", advice: str = "") -> None:
        advice = advice or "fewer --gpus, --nodes or --cpus, or another --partition"
        hint = f"Ask for {advice}. What the cluster has:\n{there}\n    sinfo -o '%P %D %c %m %G'"
        super().__init__(said, hint, meant)


class UnknownPartition(SlurmRefused):
    def __init__(self, said: str, there: str) -> None:
        super().__init__(said, f"The cluster's partitions:\n{there}\n    ngcdl run ... --partition NAME")


class UnknownAccount(SlurmRefused):
    def __init__(self, said: str) -> None:
        super().__init__(
            said,
            "Your accounts, each with its partitions and qualities of service:\n"
            "    sacctmgr show associations user=$USER format=account,partition,qos\n"
            "    ngcdl run ... --account NAME --qos NAME",
        )


class NoRunner(EngineError):
    def __init__(self) -> None:
        super().__init__(
            "Nothing that can run images was found: srun has no --container-image (pyxis), and docker, podman, "
            "apptainer and singularity are not on this machine.",
            "If one of them is a module here, load it first: a job gets this shell's PATH. If only the nodes have one, "
            "name it:\n    module load apptainer\n    ngcdl run ... --container docker",
        )


class PathUnfit(EngineError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} can't be passed to the nodes: {why}",
            "Name another folder: for a mount, for the data, or for the runs, which all nodes must see:\n"
            "    ngcdl run ... -v /another/folder:/data\n    ngcdl run ... --data /another/folder\n"
            "    XDG_STATE_HOME=/shared/folder ngcdl run ...",
        )
