"""Everything that can go wrong for a user, each with its exit code, what happened and what to type next.

NgcdlError (125)
├── UsageError (2)            what was typed can't be meant
│   ├── BadReference          an image name outside the grammar
│   ├── BadGpuRequest         --gpus
│   ├── BadOption             any other option or setting
│   └── NoKey                 a key was wanted and none was given
├── CredentialsError          keys on this machine
│   ├── BadKey                empty, blanks inside, not ASCII
│   ├── ConfigBroken          docker's config.json can't be read as what it should be
│   ├── ConfigNotWritable
│   ├── HelperMissing         a credential helper is named but not installed
│   ├── HelperFailed          it answered with an error or with garbage
│   └── HelperHung
├── RegistryError             nvcr.io or a mirror of it
│   ├── RegistryUnreachable   no address, refused, timed out, TLS
│   ├── RegistryAnswer        something answered, but not as a registry does
│   ├── RateLimited
│   ├── NotAsked              nothing is known here, and the registry was not to be asked
│   ├── KeyRejected           401: the key is wrong, revoked or expired
│   ├── KeyWithoutRights      403: the key is good, but not for this repository
│   ├── LoginNeeded           no key, and the repository isn't public
│   ├── UnknownTag            with the nearest ones
│   ├── UnknownRepository
│   ├── WrongPlatform         the image exists for other processors only
│   ├── BlobMissing           a layer that an image names is not there
│   └── DigestMismatch        bytes are not what their name promises; nothing is launched
├── EngineError               Docker
│   ├── EngineAbsent          no daemon answers
│   ├── EngineForbidden       the socket is there, but not for this user
│   ├── EngineHangs
│   ├── EngineTooOld
│   ├── EngineLost            it died while it was needed
│   ├── EngineElsewhere       it is another machine's, and that does not do here
│   ├── EngineRefused         it answered no; its own words are kept
│   └── DiskFull
├── GpuError
│   ├── NoGpu                 a GPU was asked for and this host has none
│   ├── NvmlUnavailable       the driver's library is missing, not loaded or of another version
│   ├── NoGpuWay              Docker has no way to hand a GPU to a container
│   ├── GpuHookFailed         it has one, and it failed
│   └── GpuNotInside          it runs, but sees no GPU
├── ImageUnfit                the image can't run on this host; said before the pull
├── NoneRuns                  no tag of a repository does
├── NoReleases                nothing tells which of its tags is the newest
├── StartError
│   ├── MountMissing          a -v source that is not there
│   ├── CannotInvoke (126)
│   ├── CommandNotFound (127)
│   └── LocalUnavailable      this host can't train without a container
├── RecordError
│   ├── StateNotWritable
│   ├── RecordBroken
│   ├── NoSuchRun
│   ├── NoSuchComparison
│   ├── NotRepeatable         what a run was asked to be can't be had once more
│   ├── NotWritten            a report or an archive, at the place that was named
│   ├── ArchiveBroken         no archive of runs, or one that was changed since
│   └── NoBrowser             a page can't be made a picture without one
└── DatasetError
    ├── DatasetUnavailable    can't be downloaded (now)
    └── DatasetWrong          it is there, but is not CIFAR-10

An error carries no secret, ever: keys are held in credentials.Secret, whose text is "***".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class NgcdlError(Exception):
    """What happened, and what to do about it. `hint` may hold several lines; commands stand on their own line."""

    exit_code: ClassVar[int] = 125

    def __init__(self, message: str, hint: str = "") -> None:
        message = message.rstrip()
        message += "" if message.endswith((".", "!", "?")) else "."  # foreign words in it seldom end as a sentence
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(NgcdlError):
    exit_code = 2


class BadReference(UsageError):
    """Not an image name."""


class BadGpuRequest(UsageError):
    """Not a way to ask for GPUs."""


class BadOption(UsageError):
    """An option, variable or setting whose value can't be meant."""


class NoKey(UsageError):
    def __init__(self) -> None:
        super().__init__(
            "No API key was given, and there is no terminal to ask for one.",
            "Make a key at https://org.ngc.nvidia.com/setup/api-keys, then one of:\n"
            "    ngcdl login --password-stdin < FILE\n"
            "    NGC_API_KEY=... ngcdl login",
        )


class CredentialsError(NgcdlError):
    """Something about the keys kept on this machine."""


class BadKey(CredentialsError):
    exit_code = 2

    def __init__(self, why: str) -> None:
        super().__init__(
            f"That is not an API key: {why}.",
            "Copy it once more from https://org.ngc.nvidia.com/setup/api-keys and type:\n    ngcdl login",
        )
        self.why = why


class ConfigBroken(CredentialsError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path}: {why}. It was left as it is.",
            f"Mend the file, or move it away and sign in again:\n    mv {path} {path}.broken && ngcdl login",
        )


class ConfigNotWritable(CredentialsError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"The key can't be kept in {path}: {why}.",
            "Make it writable, name another folder in DOCKER_CONFIG, or give the key by NGC_API_KEY for each command.",
        )


class HelperMissing(CredentialsError):
    def __init__(self, path: object, helper: str) -> None:
        super().__init__(
            f"{path} wants keys to be kept by {helper}, which is not installed.",
            f"Install {helper}, or remove the credsStore/credHelpers entry from {path} and type:\n    ngcdl login",
        )


class HelperFailed(CredentialsError):
    def __init__(self, helper: str, what: str) -> None:
        super().__init__(
            f"{helper} failed: {what}",
            f"Unlock or set up the store behind {helper} and try again. Nothing was written elsewhere.",
        )


class HelperHung(CredentialsError):
    def __init__(self, helper: str, seconds: float) -> None:
        super().__init__(
            f"{helper} gave no answer within {seconds:g} s and was stopped.",
            "It may be waiting for a password on another screen. Unlock its store and try again.",
        )


class RegistryError(NgcdlError):
    """The registry said no, or nothing."""


class RegistryUnreachable(RegistryError):
    def __init__(self, host: str, why: str) -> None:
        super().__init__(
            f"{host} can't be reached: {why}.",
            f"Check the network, then:\n    curl -sI https://{host}/v2/\n"
            "Behind a proxy, set HTTPS_PROXY here and for the Docker daemon. A mirror is named by NGCDL_REGISTRY.",
        )


class RegistryAnswer(RegistryError):
    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{host} did not answer as a registry does: {what}",
            "A proxy or a login page may stand in between, or the registry has trouble: try again in a few minutes.",
        )


class RateLimited(RegistryError):
    def __init__(self, host: str, seconds: float | None) -> None:
        wait = f" It asks to wait {seconds:g} s." if seconds is not None else ""
        super().__init__(f"{host} limits the number of requests.{wait}", "Try again later.")


class NotAsked(RegistryError):
    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{host} was not asked about {what}, and nothing is known of it here.",
            "Its answer is kept once it was asked, with the network there:\n"
            f"    ngcdl {'check' if ':' in what or '@' in what else 'images'} {what}",
        )


class KeyRejected(RegistryError):
    def __init__(self, host: str, source: str = "") -> None:
        # a variable goes before everything that is kept: a new login would meet the same key again
        variable = source.removeprefix("the variable ")
        again = f"unset {variable} && ngcdl login" if variable.isupper() else "ngcdl login"
        super().__init__(
            f"{host} refused the key{f' of {source}' if source else ''} (401): it is wrong, expired or revoked.",
            f"Make a new one at https://org.ngc.nvidia.com/setup/api-keys (service: NGC Catalog):\n    {again}",
        )


class KeyWithoutRights(RegistryError):
    def __init__(self, host: str, repository: str, status: int = 403) -> None:
        super().__init__(
            f"{host} knows the key, but it has no right to {repository} ({status}).",
            "The key needs the service 'NGC Catalog', and some images need their terms accepted or an organisation's\n"
            f"subscription first: https://catalog.ngc.nvidia.com/search?query={repository.rsplit('/', 1)[-1]}\n"
            "A misspelt name gets the same answer.",
        )


class LoginNeeded(RegistryError):
    def __init__(self, host: str, repository: str) -> None:
        super().__init__(
            f"{host} gives {repository} only to those who are signed in.",
            "    ngcdl login\nA misspelt name gets the same answer: https://catalog.ngc.nvidia.com/containers",
        )


class UnknownTag(RegistryError):
    def __init__(self, reference: str, nearest: Sequence[str]) -> None:
        name = reference.partition("@")[0]
        name = name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
        if nearest:
            hint = "The nearest ones:\n" + "\n".join(f"    {name}:{tag}" for tag in nearest)
        else:
            which = "no image of that digest" if "@" in reference else "no tag like it"
            hint = f"The registry lists {which}. What it has:\n    ngcdl images {name}"
        super().__init__(f"{reference} does not exist.", hint)
        self.nearest = tuple(nearest)


class UnknownRepository(RegistryError):
    def __init__(self, host: str, repository: str) -> None:
        super().__init__(
            f"{host} has no {repository}, or shows it only to other keys.",
            "Check the spelling at https://catalog.ngc.nvidia.com/containers; for a gated image sign in first:\n"
            "    ngcdl login",
        )


class WrongPlatform(RegistryError):
    def __init__(self, reference: str, wanted: str, offered: Sequence[str]) -> None:
        have = ", ".join(offered) if offered else "others"
        super().__init__(
            f"{reference} is not made for {wanted} (it is for {have}).",
            "Take another tag, or a machine with that processor.",
        )


class BlobMissing(RegistryError):
    def __init__(self, host: str, digest: str) -> None:
        super().__init__(
            f"{host} names the blob {digest} in an image, but does not have it (404).",
            "The image is damaged there, or it is just being replaced: try again later, or take another tag.",
        )


class DigestMismatch(RegistryError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"What arrived is not what its digest promises: {what}",
            "Nothing was launched. Pull once more; if it happens again, a proxy or a mirror changes the bytes.",
        )


class EngineError(NgcdlError):
    """Docker, or what stands for it."""


class EngineAbsent(EngineError):
    def __init__(self, address: str, why: str, *, is_default: bool = True, is_context: bool = False) -> None:
        """`is_context`: one of the docker command's contexts names the address, and no variable does."""
        start = "Start it, or install it:\n    sudo systemctl start docker\n    sudo apt-get install docker.io\n"
        who, leave = ("Docker's context", "docker context use default") if is_context else ("DOCKER_HOST", None)
        named = f"{who} names that address. Mend it, or leave it out:\n    {leave or 'unset DOCKER_HOST'}\n"
        super().__init__(
            f"No Docker engine answers at {address}: {why}.",
            (start if is_default else named)
            + "Without Docker the training runs on this host:\n    ngcdl run --train cifar10 --engine local",
        )


class EngineForbidden(EngineError):
    def __init__(self, address: str) -> None:
        super().__init__(
            f"This user may not talk to the Docker engine at {address}.",
            "Whoever is in the group docker may (and is as good as root on this machine):\n"
            "    sudo usermod -aG docker $USER && newgrp docker\n"
            "or use rootless Docker: https://docs.docker.com/engine/security/rootless/",
        )


class EngineHangs(EngineError):
    def __init__(self, address: str, seconds: float) -> None:
        super().__init__(
            f"The Docker engine at {address} accepts calls but gave no answer within {seconds:g} s.",
            "Look at its log and restart it:\n    sudo journalctl -u docker -n 50\n    sudo systemctl restart docker",
        )


class EngineTooOld(EngineError):
    def __init__(self, what: str) -> None:
        super().__init__(f"The Docker engine and ngcdl do not share an API version: {what}", "Update the older one.")


class EngineLost(EngineError):
    def __init__(self, doing: str, *, is_training: bool = False) -> None:
        """`is_training`: a training was under way, whose checkpoints are left."""
        again = "go on from the last checkpoint" if is_training else "try again"
        super().__init__(
            f"The Docker engine went away during {doing}.",
            f"Look at its log, start it, and {again}:\n    sudo systemctl start docker"
            + ("\n    ngcdl run ... --resume last" if is_training else ""),
        )
        self.doing = doing


class EngineElsewhere(EngineError):
    def __init__(self, why: str, hint: str = "    unset DOCKER_HOST DOCKER_CONTEXT") -> None:
        super().__init__(f"The Docker engine is another machine's: {why}", hint)


class EngineRefused(EngineError):
    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"Docker said: {what}", hint)


class DiskFull(EngineError):
    def __init__(self, where: str, what: str) -> None:
        super().__init__(
            f"No space left in {where}: {what}",
            f"Free some and try again; what is whole was kept:\n    df -h {where}\n    docker system df",
        )


class GpuError(NgcdlError):
    """A GPU was asked for and can't be had. Nothing falls back to the CPU by itself."""


class NoGpu(GpuError):
    def __init__(self, asked: str, found: str) -> None:
        super().__init__(
            f"--gpus {asked}: {found}.",
            "To train on the CPU, say so:\n    ngcdl run ... --gpus none\n"
            "To see what the driver reports:\n    ngcdl gpu",
        )


class NvmlUnavailable(GpuError):
    def __init__(self, what: str, hint: str, answered: bool = False) -> None:
        """`answered`: the driver's library is there and said no; there is a driver, and something is wrong with it."""
        super().__init__(what, hint)
        self.answered = answered


class NoGpuWay(GpuError):
    def __init__(self, why: str, hint: str) -> None:
        super().__init__(f"Docker has no way to hand a GPU to a container: {why}.", hint)


class GpuHookFailed(GpuError):
    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"NVIDIA's container runtime failed: {what}", hint)


class GpuNotInside(GpuError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"A GPU was asked for, but the run sees none: {why}.",
            "The run was stopped. Compare what the driver says with what Docker has:\n"
            "    ngcdl gpu\n    docker info --format '{{json .Runtimes}}'\n"
            "A framework may also be built for another CUDA than this driver runs. To train on the CPU, say so:\n"
            "    ngcdl run ... --gpus none",
        )


class ImageUnfit(NgcdlError):
    """Judged before the pull: nothing was fetched."""

    def __init__(
        self,
        reference: str,
        why: str,
        newest: str | None,
        *,
        others: str | None = None,
        command: str = "run",
        cpu_would_do: bool = False,
    ) -> None:
        """`newest` is the newest tag of the same repository that runs here; `others` names a repository in which
        nobody looked for one. `command` was refused. `cpu_would_do`: nothing but the cards is in the way.
        """
        take = f"The newest one that does:\n    {newest}\n" if newest else "No tag of it is known that does.\n"
        if others:
            take = f"Its other tags, with a verdict on each:\n    ngcdl images {others} --all\n"
        start = "run" if command == "pull" else command
        on_cpu = f"\nOn the CPU:\n    ngcdl {start} ... --gpus none" if cpu_would_do else ""
        super().__init__(
            f"{reference} can't run here: {why}",
            f"{take}The whole verdict, and to {command} it all the same:\n    ngcdl check {reference}\n"
            f"    ngcdl {command} ... --force{on_cpu}",
        )
        self.newest = newest


class NoneRuns(NgcdlError):
    def __init__(self, repository: str) -> None:
        super().__init__(
            f"No tag of {repository} is known to run on this host.",
            f"What each of them wants:\n    ngcdl images {repository} --all\nOn the CPU of this host:\n"
            "    ngcdl run --train cifar10 --engine local",
        )


class NoReleases(NgcdlError):
    def __init__(self, repository: str) -> None:
        super().__init__(
            f"{repository} has no tags by month (24.05-py3), so nothing says which one is the newest.",
            f"Choose among its tags, each with a verdict:\n    ngcdl images {repository} --all",
        )


class StartError(NgcdlError):
    """The container, or the local process, could not be started."""


class MountMissing(StartError):
    def __init__(self, path: object) -> None:
        super().__init__(f"-v {path}: there is no such file or folder.", f"    mkdir -p {path}")


class CannotInvoke(StartError):
    exit_code = 126

    def __init__(self, what: str) -> None:
        super().__init__(f"The command can't be invoked: {what}", "Is it a program, and is it executable?")


class CommandNotFound(StartError):
    exit_code = 127

    def __init__(self, what: str) -> None:
        super().__init__(f"The image has no such command: {what}", "The command is what stands after -- .")


class LocalUnavailable(StartError):
    """This host can't train without a container."""


class RecordError(NgcdlError):
    """The folder of a run."""


class StateNotWritable(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"Runs are recorded in {path}, which can't be written: {why}.",
            "Make it writable, or name another place:\n    XDG_STATE_HOME=DIR ngcdl ...",
        )


class RecordBroken(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path} is not a record that ngcdl can read: {why}.", "It was left as it is.")


class NoSuchRun(RecordError):
    def __init__(self, name: str, where: object) -> None:
        super().__init__(f"There is no run {name!r} in {where}.", "    ngcdl runs")


class NoSuchComparison(RecordError):
    def __init__(self, name: str, where: object) -> None:
        super().__init__(
            f"There is no comparison {name!r} in {where}.",
            f"Those that are there:\n    ls {where}\n    ngcdl compare --help",
        )


class NotRepeatable(RecordError):
    def __init__(self, run_id: str, why: str, hint: str = "") -> None:
        super().__init__(f"{run_id} can't be repeated: {why}", hint or f"What is known of it:\n    ngcdl show {run_id}")


class NotWritten(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path} can't be written: {why}.", "Name another place for it.")


class ArchiveBroken(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} is not an archive of runs that can be taken in: {why}.",
            "Nothing of it was kept. Where the runs are:\n    ngcdl runs export RUN... FILE.tar",
        )


class NoBrowser(RecordError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"A picture of the page is drawn by Chromium or Chrome without a window: {why}.",
            "Install one, or name one in NGCDL_BROWSER; the page itself needs none:\n"
            "    sudo apt-get install chromium\n    ngcdl report RUN --html FILE",
        )


class DatasetError(NgcdlError):
    """CIFAR-10."""


class DatasetUnavailable(DatasetError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"CIFAR-10 could not be downloaded: {why}. What arrived is kept, and the next try goes on from there.",
            "Fetch cifar-10-binary.tar.gz by another way and name its folder, or train on synthetic images:\n"
            "    ngcdl run ... --data DIR\n    ngcdl run ... --data synthetic",
        )


class DatasetWrong(DatasetError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} is not CIFAR-10: {why}.",
            "--data takes a folder with cifar-10-batches-bin/, cifar-10-batches-py/ or the official archive.",
        )


def signal_exit_code(number: int) -> int:
    """Give the exit code of a program that a signal ended: 128 + its number, as a shell does."""
    return 128 + number
