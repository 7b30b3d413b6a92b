"""The lab's images: real TensorFlow 1.4 on Python 2.7, real PyTorch on Python 3.11, and small ones for what can go
wrong.

They match NGC's in what a user sees: entrypoint, banner, notices, environment, labels, working folder. The programs in
them come from Debian and from the index that pip is configured for; an image that the registry's storage in the cache
still holds is not built again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lab_parts import debian_layers, packages, release_images
from lab_parts.debian_layers import Debian
from lab_parts.image_writer import Layer, layer, manifest, manifest_index, tar_of_files
from lab_parts.registry import Storage
from lab_parts.release_images import PATH_ENV
from lab_parts.where import PARTS, Lab, LabError, read_json, recipe_key, step, write_whole

# Wheels from the time of TensorFlow 1.4 that are still available, and the hash of the big one.
TF_WHEELS = [
    "tensorflow==1.4.0 --hash=sha256:ea9b30dbc6d56f65acf615598d9c417495cbcbdb8051aa6600c40bb6bc1ce664",
]
TF_REST = [
    "numpy==1.16.6",
    "protobuf==3.17.3",
    "six==1.16.0",
    "mock==3.0.5",
    "funcsigs==1.0.2",
    "enum34==1.1.10",
    "backports.weakref==1.0.post1",
    "wheel==0.37.1",
    "pip==9.0.3",
]
TF_TARGET = ["--python-version=2.7", "--implementation=cp", "--abi=cp27mu"]
TF_TARGET += ["--platform=manylinux1_x86_64", "--platform=manylinux2010_x86_64"]
TORCH_DEBIAN = ["python3", "python3-pip", "ca-certificates", "usr-is-merged"]
TORCH = ["torch==2.13.0", "numpy==2.3.5"]
TORCH_TARGET = ["--python-version=3.11", "--implementation=cp", "--abi=cp311"]
TORCH_TARGET += ["--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64"]

TF_CONFIG: dict[str, object] = {
    "Env": [
        PATH_ENV,
        "CUDA_VERSION=9.0.176",
        "CUDA_DRIVER_VERSION=384.81",
        "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "LD_LIBRARY_PATH=/usr/local/cuda/extras/CUPTI/lib64:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "NVIDIA_TENSORFLOW_VERSION=18.01",
        "TENSORFLOW_VERSION=1.4.0",
        "NVIDIA_BUILD_ID=276323",
    ],
    "Entrypoint": ["/usr/local/bin/nvidia_entrypoint.sh"],
    "Cmd": ["/bin/bash"],
    "WorkingDir": "/workspace",
    "Labels": {
        "com.nvidia.build.id": "276323",
        "com.nvidia.cuda.version": "9.0",
        "com.nvidia.tensorflow.version": "18.01",
        "com.nvidia.volumes.needed": "nvidia_driver",
    },
    "ExposedPorts": {"6006/tcp": {}},
}
TORCH_CONFIG: dict[str, object] = {
    "Env": [
        PATH_ENV,
        # The tests share two cores. By default a thread of OpenMP spins while it waits for the others, on a core that
        # those need: with two busy programs beside it a training took two to three times as long.
        "OMP_WAIT_POLICY=PASSIVE",
        "CUDA_VERSION=13.3.1.008",
        "CUDA_DRIVER_VERSION=610.43.02",
        "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
        "NVIDIA_PRODUCT_NAME=PyTorch",
        "NVIDIA_PYTORCH_VERSION=26.07",
        "PYTORCH_VERSION=2.13.0",
        "PYTORCH_BUILD_VERSION=2.13.0",
        "NVIDIA_BUILD_ID=000000",
        "TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0 10.0 12.0+PTX",
        "_CUDA_COMPAT_PATH=/usr/local/cuda/compat",
        "LD_LIBRARY_PATH=/usr/local/cuda/compat/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "JUPYTER_PORT=8888",
        "TENSORBOARD_PORT=6006",
    ],
    "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
    "Cmd": [],
    "WorkingDir": "/workspace",
    "Labels": {
        "com.nvidia.build.id": "000000",
        "com.nvidia.cuda.version": "9.0",
        "com.nvidia.pytorch.version": "2.13.0",
        "com.nvidia.volumes.needed": "nvidia_driver",
    },
}
BUSYBOX_CONFIG: dict[str, object] = {"Env": ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"], "Cmd": ["sh"]}


def up(lab: Lab) -> dict[str, str]:
    """Build and push what the registry lacks; return each image's digest. Raise LabError with all failures."""
    debian = debian_layers.RECIPE.read_text()
    recipes: dict[str, tuple[Callable[[Lab], str], list[object]]] = {
        "tensorflow:18.01-py2": (
            _tensorflow,
            [_script("tensorflow_entrypoint.sh"), TF_WHEELS, TF_REST, TF_CONFIG, debian],
        ),
        "pytorch:26.07-py3": (_pytorch, [_script("pytorch_entrypoint.sh"), TORCH_DEBIAN, TORCH, TORCH_CONFIG, debian]),
        "busybox:1": (_busybox, [BUSYBOX_CONFIG]),
        "busybox:entry": (_busybox_entry, [BUSYBOX_CONFIG]),
        "busybox:big": (_busybox_big, [BUSYBOX_CONFIG]),
        "busybox:arm64": (_busybox_arm64, [BUSYBOX_CONFIG]),
        "gated:1": (_gated, [BUSYBOX_CONFIG]),
    }
    for release in release_images.RELEASES:
        made = [repr(release), [release.config(one) for one in release.architectures]]
        recipes[release.name] = (release_images.builder(release, _busybox_layer), made)
    keys = {name: recipe_key(inspect.getsource(build), made_from) for name, (build, made_from) in recipes.items()}
    built = read_json(lab.cache / "images.json")
    storage = Storage(lab)

    def current(name: str) -> bool:
        if built.get(name, {}).get("key") != keys[name]:
            return False
        # look the tag up: somebody may have pushed another image to it meanwhile
        repository, tag = name.split(":")
        return storage.digest(f"nvidia/{repository}", tag) == built[name]["digest"]

    missing = [name for name in recipes if not current(name)]
    failures = []
    with ThreadPoolExecutor(3) as pool:
        jobs = {name: pool.submit(recipes[name][0], lab) for name in missing}
        for name, job in jobs.items():
            try:
                built[name] = {"key": keys[name], "digest": job.result()}
            except LabError as error:
                failures.append(f"image {name}: {error}")
    if missing:
        write_whole(lab.cache / "images.json", json.dumps(built, indent=1))
    if failures:
        raise LabError("\n".join(failures))
    return {name: built[name]["digest"] for name in recipes}


def _tensorflow(lab: Lab) -> str:
    debian = Debian(lab, "bullseye", "python2.7", ["python2.7-minimal", "python2.7", "ca-certificates"])
    with step("image nvidia/tensorflow:18.01-py2"), debian:
        repository = "nvidia/tensorflow"
        base = debian.layer(repository)
        wheels = debian.wheels(repository, [TF_WHEELS, TF_REST], TF_TARGET)
        files = {
            "usr/local/bin/nvidia_entrypoint.sh": (_script("tensorflow_entrypoint.sh").encode(), 0o755),
            "workspace/README.md": (b"The workspace of the lab's TensorFlow image.\n", 0o644),
            # Wheels of that time shared these folders through .pth files, which a plain folder on the path does not
            # read.
            "usr/local/lib/python2.7/dist-packages/google/__init__.py": (b"", 0o644),
            "usr/local/lib/python2.7/dist-packages/backports/__init__.py": (b"", 0o644),
        }
        links = {"usr/local/bin/python": "/usr/bin/python2.7", "usr/local/bin/python2": "/usr/bin/python2.7"}
        top = _small(lab, repository, tar_of_files(files, links, ["workspace"]))
        return manifest(lab, repository, "18.01-py2", [base, wheels, top], TF_CONFIG)


def _pytorch(lab: Lab) -> str:
    # usr-is-merged: without it apt would install usrmerge, and with that all of Perl
    debian = Debian(lab, "bookworm", "python3.11", TORCH_DEBIAN)
    with step("image nvidia/pytorch:26.07-py3"), debian:
        repository = "nvidia/pytorch"
        base = debian.layer(repository)
        wheels = debian.wheels(repository, [TORCH], TORCH_TARGET)
        files = {
            "opt/nvidia/nvidia_entrypoint.sh": (_script("pytorch_entrypoint.sh").encode(), 0o755),
            "workspace/README.md": (b"The workspace of the lab's PyTorch image.\n", 0o644),
        }
        top = _small(lab, repository, tar_of_files(files, {"usr/local/bin/python": "/usr/bin/python3"}, ["workspace"]))
        return manifest(lab, repository, "26.07-py3", [base, wheels, top], TORCH_CONFIG)


def _busybox(lab: Lab) -> str:
    return manifest(lab, "nvidia/busybox", "1", [_busybox_layer(lab, "nvidia/busybox")], BUSYBOX_CONFIG)


def _gated(lab: Lab) -> str:
    return manifest(lab, "nvidia/gated", "1", [_busybox_layer(lab, "nvidia/gated")], BUSYBOX_CONFIG)


def _busybox_entry(lab: Lab) -> str:
    script = b'#!/bin/sh\necho "lab entrypoint: $*"\nexec "$@"\n'
    top = _small(lab, "nvidia/busybox", tar_of_files({"entrypoint.sh": (script, 0o755)}))
    config = {**BUSYBOX_CONFIG, "Entrypoint": ["/entrypoint.sh"]}
    return manifest(lab, "nvidia/busybox", "entry", [_busybox_layer(lab, "nvidia/busybox"), top], config)


def _busybox_big(lab: Lab) -> str:
    data = random.Random(1).randbytes(30_000_000)
    top = _small(lab, "nvidia/busybox", tar_of_files({"big.bin": (data, 0o644)}))
    return manifest(lab, "nvidia/busybox", "big", [_busybox_layer(lab, "nvidia/busybox"), top], BUSYBOX_CONFIG)


def _busybox_arm64(lab: Lab) -> str:
    image = manifest(
        lab, "nvidia/busybox", "arm64-image", [_busybox_layer(lab, "nvidia/busybox")], BUSYBOX_CONFIG, "arm64"
    )
    digest = manifest_index(lab, "nvidia/busybox", "arm64", {"arm64": image})
    Storage(lab).ask(
        "DELETE", "/v2/nvidia/busybox/tags/arm64-image"
    )  # refused by docker-registry 2.8; then the tag stays, harmless
    return digest


def _busybox_layer(lab: Lab, repository: str) -> Layer:
    program = packages.unpacked(lab, "tools") / "bin/busybox"
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    files = {
        "bin/busybox": (program.read_bytes(), 0o755),
        "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", 0o644),
        "etc/group": (b"root:x:0:\nnogroup:x:65534:\n", 0o644),
    }
    links = {f"bin/{name}": "busybox" for name in names if name != "busybox"}
    return _small(lab, repository, tar_of_files(files, links, ["bin", "etc", "tmp", "root", "proc", "sys", "dev"]))


def _small(lab: Lab, repository: str, tar: bytes) -> Layer:
    return layer(lab, repository, hashlib.sha256(tar).hexdigest()[:16], lambda: [tar])


def _script(name: str) -> str:
    return (PARTS / "entrypoints" / name).read_text()
