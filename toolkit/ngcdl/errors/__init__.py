"""Every error that a user can meet: its exit code, what happened, and what to type next.

NgcdlError (125)
├── UsageError (2)            what was typed makes no sense
│   ├── BadReference          an invalid image name
│   ├── BadGpuRequest         --gpus
│   ├── BadOption             any other option or setting
│   └── NoKey                 a key is needed and none was given
├── CredentialsError          keys on this machine
│   ├── BadKey (2)            empty, not ASCII, or with blanks inside
│   ├── ConfigBroken          docker's config.json is unreadable or malformed
│   ├── ConfigNotWritable
│   ├── KeyNotRemoved         enroot's file can't be changed
│   ├── KeyNotForEnroot       it would need quotes in netrc
│   ├── HelperMissing         a credential helper is configured but not installed
│   ├── HelperFailed          it answered with an error or with garbage
│   └── HelperHung
├── RegistryError             nvcr.io or a mirror of it
│   ├── RegistryUnreachable   no address, refused, timed out, TLS
│   ├── RegistryAnswer        something answered, but not like a registry
│   ├── RealmRefused          it sends sign-ins to a place where no key may go
│   ├── RateLimited
│   ├── NotAsked              nothing is stored here, and the registry was not to be queried
│   ├── KeyRejected           401: the key is wrong, revoked or expired
│   ├── KeyWithoutRights      403: the key is valid, but not for this repository
│   ├── LoginNeeded           no key, and the repository isn't public
│   ├── UnknownTag            with the nearest ones
│   ├── UnknownRepository
│   ├── WrongPlatform         the image exists for other processors only
│   ├── BlobMissing           a blob that an image names is missing
│   └── DigestMismatch        the bytes do not match their digest; nothing is launched
├── EngineError               Docker, or a cluster
│   ├── EngineAbsent          no daemon answers
│   ├── EngineNotAsked        it is to be asked over TLS, and the files for that are missing
│   ├── EngineForbidden       the socket exists, but this user may not use it
│   ├── EngineHangs
│   ├── EngineTooOld
│   ├── EngineLost            it went away while it was needed
│   │   ├── TooManyFiles      this process may open no more files, and so did not reach it
│   │   ├── ClusterLost       Kubernetes went away while a job was followed
│   │   └── SlurmLost         Slurm does not answer
│   ├── EngineElsewhere       it is on another machine, which does not work here
│   ├── EngineRefused         it refused; its own words are kept
│   ├── ContainerLeft         it does not remove a container
│   ├── ImageGone             the engine's own image is no longer there
│   ├── DiskFull
│   ├── ClusterError          Kubernetes, or kubectl, which talks to it
│   │   ├── KubectlMissing
│   │   ├── ClusterUnreachable    no context, no address, no answer, no way to sign in
│   │   ├── ClusterForbidden
│   │   ├── ClusterHangs
│   │   ├── ClusterRefused    it refused; its own words are kept
│   │   ├── ImageNotPulled    a node can't pull the image, and waiting won't help
│   │   ├── PodFailed         a pod can't start
│   │   └── TrainerTooLarge   the trainer exceeds the ConfigMap that takes it to the pods
│   ├── SlurmAbsent           no sbatch on this machine
│   ├── SlurmRefused          it refused; its own words are kept
│   │   ├── NotPlaceable      no node, or too few, has what was asked for
│   │   ├── UnknownPartition
│   │   └── UnknownAccount
│   ├── JobOfOthers           the job that a record names is not that run's
│   ├── NoRunner              nothing that runs images was found on the cluster
│   └── PathUnfit             a path that can't be passed to the nodes
├── GpuError
│   ├── NoGpu                 a GPU was asked for and this host has none
│   │   └── TooFewToCompare   this host has fewer GPUs than one arm of a comparison needs
│   ├── NothingToCompare      there is no GPU to compare the CPU with
│   ├── NvmlUnavailable       the driver is not loaded, or its version differs from its library's
│   │   ├── DriverHangs       a call to the driver has not returned
│   │   └── LibraryMissing    the driver's library is missing, or can't be loaded
│   ├── NoGpuWay              Docker has no way to hand a GPU to a container
│   ├── GpuHookFailed         Docker's way to hand over a GPU failed
│   ├── GpuNotInside          the run sees no GPU
│   └── GpuUnknown            whether the run sees a GPU is unknown
├── ImageUnfit                the image can't run on this host, or a cluster's nodes; raised before the pull
├── Several                   of several things that were named together more than one is wrong
│   └── ImagesRefused         images of a comparison can't be run
├── NoneRuns                  no tag of a repository is known to run on the host
├── NoReleases                nothing shows which tag of a repository is the newest
├── StartError
│   ├── NoMoreThreads         the system, or a limit of the user's, lets ngcdl start none
│   ├── MountMissing          the source of a -v does not exist
│   ├── PackagesNotInstalled  pip failed in a container of the image
│   ├── PackagesNotKept       where packages are kept can't be used
│   ├── CannotInvoke (126)
│   ├── CommandNotFound (127)
│   └── LocalUnavailable      this host can't train without a container
├── RecordError
│   ├── StateNotWritable
│   ├── RecordBroken
│   ├── NoSuchRun
│   ├── NoLog                 the run wrote nothing
│   ├── RunElsewhere          the run is on an engine, or cluster, other than the one selected here
│   ├── RunOnHost             the run is on another host that shares this home
│   ├── NotEntered            no command can be started in the run from here
│   ├── RunOfOthers           something else started the run, such as Docker Compose
│   ├── NoSuchComparison
│   ├── NotRepeatable         what the run was asked to be is no longer possible
│   ├── NotRemoved            something still needs the run, or another user owns its files
│   ├── NotWritten            a report or an archive can't be written to the place that was named
│   ├── ArchiveBroken         not an archive of runs, or changed since it was written
│   └── NoBrowser             there is no browser to render a page as an image
└── DatasetError
    ├── DatasetUnavailable    can't be downloaded (now)
    └── DatasetWrong          the files exist, but are not CIFAR-10

No error ever carries a secret: registry.key.Secret holds the keys and prints as "***".
"""

from __future__ import annotations

from ngcdl.errors.base import NgcdlError, Several, at_once, is_to_type, signal_exit_code
from ngcdl.errors.data import DatasetError, DatasetUnavailable, DatasetWrong
from ngcdl.errors.engine import (
    ContainerLeft,
    DiskFull,
    EngineAbsent,
    EngineElsewhere,
    EngineError,
    EngineForbidden,
    EngineHangs,
    EngineLost,
    EngineNotAsked,
    EngineRefused,
    EngineTooOld,
    ImageGone,
    TooManyFiles,
)
from ngcdl.errors.gpu import (
    ON_CPU_ALONE,
    DriverHangs,
    GpuError,
    GpuHookFailed,
    GpuNotInside,
    GpuUnknown,
    LibraryMissing,
    NoGpu,
    NoGpuWay,
    NothingToCompare,
    NvmlUnavailable,
    TooFewToCompare,
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
    KeyNotRemoved,
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
    NotEntered,
    NotRemoved,
    NotRepeatable,
    NotWritten,
    RecordBroken,
    RecordError,
    RunElsewhere,
    RunOfOthers,
    RunOnHost,
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
    RealmRefused,
    RegistryAnswer,
    RegistryError,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
    WrongPlatform,
)
from ngcdl.errors.slurm import (
    JobOfOthers,
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
    ImagesRefused,
    ImageUnfit,
    LocalUnavailable,
    MountMissing,
    NoMoreThreads,
    NoneRuns,
    NoReleases,
    PackagesNotInstalled,
    PackagesNotKept,
    StartError,
)
from ngcdl.errors.usage import BadGpuRequest, BadOption, BadReference, NoKey, UsageError
