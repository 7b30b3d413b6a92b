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
│   ├── KeyNotForEnroot       it would want quotes in netrc
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
├── EngineError               Docker, or a cluster
│   ├── EngineAbsent          no daemon answers
│   ├── EngineForbidden       the socket is there, but not for this user
│   ├── EngineHangs
│   ├── EngineTooOld
│   ├── EngineLost            it died while it was needed
│   │   ├── ClusterLost       Kubernetes went away while a job was followed
│   │   └── SlurmLost         Slurm gives no answer
│   ├── EngineElsewhere       it is another machine's, and that does not do here
│   ├── EngineRefused         it answered no; its own words are kept
│   ├── DiskFull
│   ├── ClusterError          Kubernetes, or kubectl, which speaks to it
│   │   ├── KubectlMissing
│   │   ├── ClusterUnreachable    no context, no address, no answer, no way to sign in
│   │   ├── ClusterForbidden
│   │   ├── ClusterHangs
│   │   ├── ClusterRefused    it answered no; its own words are kept
│   │   ├── ImageNotPulled    by a node, and no waiting mends it
│   │   ├── PodFailed         it can't start
│   │   └── TrainerTooLarge   for the ConfigMap that brings it into the pods
│   ├── SlurmAbsent           no sbatch on this machine
│   ├── SlurmRefused          it answered no; its own words are kept
│   │   ├── NotPlaceable      no node has what was asked for
│   │   ├── UnknownPartition
│   │   └── UnknownAccount
│   ├── NoRunner              nothing on a cluster that runs images was found
│   └── PathUnfit             a folder that the nodes can't be given
├── GpuError
│   ├── NoGpu                 a GPU was asked for and this host has none
│   ├── NvmlUnavailable       the driver is not loaded, or of another version than its library
│   │   ├── DriverHangs       a call of it has not come back
│   │   └── LibraryMissing    its library is not there, or can't be loaded
│   ├── NoGpuWay              Docker has no way to hand a GPU to a container
│   ├── GpuHookFailed         it has one, and it failed
│   ├── GpuNotInside          it runs, but sees no GPU
│   └── GpuUnknown            it runs, and whether it sees one can't be told
├── ImageUnfit                the image can't run on this host, or a cluster's nodes; said before the pull
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
│   ├── NoLog                 a run that wrote nothing
│   ├── RunElsewhere          it is on another engine, or cluster, than the one that is chosen here
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

from ngcdl.errors.base import NgcdlError, signal_exit_code
from ngcdl.errors.data import DatasetError, DatasetUnavailable, DatasetWrong
from ngcdl.errors.engine import (
    DiskFull,
    EngineAbsent,
    EngineElsewhere,
    EngineError,
    EngineForbidden,
    EngineHangs,
    EngineLost,
    EngineRefused,
    EngineTooOld,
)
from ngcdl.errors.gpu import (
    DriverHangs,
    GpuError,
    GpuHookFailed,
    GpuNotInside,
    GpuUnknown,
    LibraryMissing,
    NoGpu,
    NoGpuWay,
    NvmlUnavailable,
)
from ngcdl.errors.keys import (
    BadKey,
    ConfigBroken,
    ConfigNotWritable,
    CredentialsError,
    HelperFailed,
    HelperHung,
    HelperMissing,
    KeyNotForEnroot,
)
from ngcdl.errors.kubernetes import (
    ClusterError,
    ClusterForbidden,
    ClusterHangs,
    ClusterLost,
    ClusterRefused,
    ClusterUnreachable,
    ImageNotPulled,
    KubectlMissing,
    PodFailed,
    TrainerTooLarge,
)
from ngcdl.errors.records import (
    ArchiveBroken,
    NoBrowser,
    NoLog,
    NoSuchComparison,
    NoSuchRun,
    NotRepeatable,
    NotWritten,
    RecordBroken,
    RecordError,
    RunElsewhere,
    StateNotWritable,
)
from ngcdl.errors.registry import (
    BlobMissing,
    DigestMismatch,
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    NotAsked,
    RateLimited,
    RegistryAnswer,
    RegistryError,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
    WrongPlatform,
)
from ngcdl.errors.slurm import (
    NoRunner,
    NotPlaceable,
    PathUnfit,
    SlurmAbsent,
    SlurmLost,
    SlurmRefused,
    UnknownAccount,
    UnknownPartition,
)
from ngcdl.errors.start import (
    CannotInvoke,
    CommandNotFound,
    ImageUnfit,
    LocalUnavailable,
    MountMissing,
    NoneRuns,
    NoReleases,
    StartError,
)
from ngcdl.errors.usage import BadGpuRequest, BadOption, BadReference, NoKey, UsageError

__all__ = [
    "ArchiveBroken",
    "BadGpuRequest",
    "BadKey",
    "BadOption",
    "BadReference",
    "BlobMissing",
    "CannotInvoke",
    "ClusterError",
    "ClusterForbidden",
    "ClusterHangs",
    "ClusterLost",
    "ClusterRefused",
    "ClusterUnreachable",
    "CommandNotFound",
    "ConfigBroken",
    "ConfigNotWritable",
    "CredentialsError",
    "DatasetError",
    "DatasetUnavailable",
    "DatasetWrong",
    "DigestMismatch",
    "DiskFull",
    "DriverHangs",
    "EngineAbsent",
    "EngineElsewhere",
    "EngineError",
    "EngineForbidden",
    "EngineHangs",
    "EngineLost",
    "EngineRefused",
    "EngineTooOld",
    "GpuError",
    "GpuHookFailed",
    "GpuNotInside",
    "GpuUnknown",
    "HelperFailed",
    "HelperHung",
    "HelperMissing",
    "ImageNotPulled",
    "ImageUnfit",
    "KeyNotForEnroot",
    "KeyRejected",
    "KeyWithoutRights",
    "KubectlMissing",
    "LibraryMissing",
    "LocalUnavailable",
    "LoginNeeded",
    "MountMissing",
    "NgcdlError",
    "NoBrowser",
    "NoGpu",
    "NoGpuWay",
    "NoKey",
    "NoLog",
    "NoReleases",
    "NoRunner",
    "NoSuchComparison",
    "NoSuchRun",
    "NoneRuns",
    "NotAsked",
    "NotPlaceable",
    "NotRepeatable",
    "NotWritten",
    "NvmlUnavailable",
    "PathUnfit",
    "PodFailed",
    "RateLimited",
    "RecordBroken",
    "RecordError",
    "RegistryAnswer",
    "RegistryError",
    "RegistryUnreachable",
    "RunElsewhere",
    "SlurmAbsent",
    "SlurmLost",
    "SlurmRefused",
    "StartError",
    "StateNotWritable",
    "TrainerTooLarge",
    "UnknownAccount",
    "UnknownPartition",
    "UnknownRepository",
    "UnknownTag",
    "UsageError",
    "WrongPlatform",
    "signal_exit_code",
]
