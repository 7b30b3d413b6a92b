"""Whether a card can run an image's kernels: compiled ones, PTX that the driver compiles, or none.

Rules: capability, ptx, cuda10, igpu, unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ngcdl.catalog import cards, cuda
from ngcdl.catalog.rows import comparable, known
from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts, Reason

BINARIES = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility"
AMPERE = "https://github.com/weizhepei/CasRel/issues/62"  # CUBLAS_STATUS_EXECUTION_FAILED with CUDA 10.0 and 10.1
TURING = "https://github.com/pytorch/pytorch/pull/21468"
JETSON = (
    "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform-release-notes/"
    "pytorch-jetson-rel.html"
)
# TX1 and Nano, TX2, Xavier, Orin: https://developer.nvidia.com/cuda-gpus . Thor (11.0) runs the ordinary arm64 images.
_JETSONS = ("5.3", "6.2", "7.2", "8.7")
# From JetPack 7.2 on, Orin runs the ordinary arm64 images, too: nvidia/cuda includes cuda-compat-orin since CUDA 13.2,
# and users report that kernels for 8.0 run there, though BINARIES does not promise it:
# https://github.com/Jonah-May-OSS/wyoming-whisper-trt/pull/1047
# https://github.com/bitsandbytes-foundation/bitsandbytes/pull/1939
_ORIN, _FIRST_CUDA_FOR_ORIN = "8.7", 13
# The last release with -igpu tags, which need JetPack 6, and so an Orin.
_LAST_WITH_IGPU = (26, 2)  # JETSON: "NVIDIA will no longer produce the standalone iGPU containers" from 26.03 on
_DRIVER_OF_JETPACK_6 = 540  # its branch, from memory: nvidia-smi shows 540.2.0 to 540.4.0


def is_jetson(gpu: Gpu) -> bool:
    return gpu.capability in _JETSONS


def wants_igpu(host: HostFacts) -> bool:
    """Return whether only the tags that end in -igpu are made for this host: it is an Orin with JetPack 6."""
    driver = known(host.driver)
    has_orin = bool(host.gpus) and all(gpu.capability == _ORIN for gpu in host.gpus)
    return has_orin and driver is not None and driver[0] == _DRIVER_OF_JETPACK_6


def kernels(image: ImageFacts, gpu: Gpu) -> Reason:
    capability = known(gpu.capability)
    if capability is None:
        text = f"the compute capability of {gpu.title} is unknown, and so is whether the image has kernels for it"
        return Reason("unknown", "caution", text, needed=image.min_capability)
    found = (
        _integrated(image, gpu)
        or _cuda_10(image, gpu, capability)
        or _too_old(image, gpu, capability)
        or _compiled(image, gpu, capability)
        or _by_toolkit(image, gpu, capability)
    )
    return (_cuda_9(image, gpu) if found.level == "runs" else None) or found


def _integrated(image: ImageFacts, gpu: Gpu) -> Reason | None:
    if not is_jetson(gpu):
        if not image.for_jetson:
            return None
        text = f"the image is made for a Jetson, and {gpu.title} is not one: use a tag without -igpu"
        return Reason("igpu", "no", text, gpu.capability, source=JETSON)
    if image.for_jetson:
        text = f"which JetPack the image needs is not judged here: check NVIDIA's list for {gpu.title}"
        return Reason("unknown", "caution", text, gpu.capability, source=JETSON)
    if image.release is None:  # not one of NVIDIA's monthly images
        text = f"{gpu.title} is a Jetson, and it is not known whether the image is made for one"
        return Reason("unknown", "caution", text, gpu.capability, source=JETSON)
    is_orin = gpu.capability == _ORIN
    takes_igpu = is_orin and (known(image.release) or ()) <= _LAST_WITH_IGPU
    if is_orin and (known(image.cuda) or (0,))[0] >= _FIRST_CUDA_FOR_ORIN:
        return _on_orin(image, gpu, takes_igpu=takes_igpu)
    text = f"{gpu.title} is a Jetson, and this image is made for other cards"
    text += ": use a tag that ends in -igpu" if takes_igpu else ""
    return Reason("igpu", "no", text, gpu.capability, source=JETSON)


def _on_orin(image: ImageFacts, gpu: Gpu, *, takes_igpu: bool) -> Reason:
    """Judge an ordinary image with CUDA 13 on an Orin, without knowing which JetPack the board has."""
    listed = [(parts, one) for one in image.sass or () if (parts := known(one)) is not None]
    if listed and not _run_by(listed, comparable(_ORIN)):
        return _without_kernels(image, gpu, _ORIN, [one for _, one in listed])
    text = f"{gpu.title} is a Jetson, which runs ordinary arm64 images with CUDA 13 from JetPack 7.2 on"
    text += ", and with an older one the tags that end in -igpu" if takes_igpu else ""
    text += "; which JetPack it has is not checked here"
    return Reason("unknown", "caution", text, gpu.capability, source=JETSON)


def _cuda_10(image: ImageFacts, gpu: Gpu, capability: tuple[int, ...]) -> Reason | None:
    """Refuse CUDA 10 and older on Ampere and newer: PTX would be compiled, but matrix products by cuBLAS fail there."""
    version = known(image.cuda)
    if image.framework is None or version is None or version[0] > 10 or capability[0] < 8:
        return None
    text = (
        f"not supported by this image: its CUDA {image.cuda} is older than {gpu.title}, and its cuBLAS fails on "
        "Ampere and newer"
    )
    return Reason("cuda10", "no", text, gpu.capability, "CUDA 11", AMPERE)


def _cuda_9(image: ImageFacts, gpu: Gpu) -> Reason | None:
    """Warn of CUDA 9 and older on Turing, which runs Volta's kernels: some shapes of matrix products fail there."""
    version = known(image.cuda)
    if image.framework is None or version is None or version[0] > 9 or gpu.capability != "7.5":
        return None
    text = (
        f"the image's CUDA {image.cuda} is older than {gpu.title}: products by its cuBLAS can fail there with "
        "CUBLAS_STATUS_EXECUTION_FAILED"
    )
    return Reason("capability", "caution", text, gpu.capability, "CUDA 10", TURING)


def _too_old(image: ImageFacts, gpu: Gpu, capability: tuple[int, ...]) -> Reason | None:
    documented, compiled = known(image.min_capability), _kernels(image.sass)
    if documented is not None and capability < documented:
        text = f"the image is documented for compute capability {_family(image.min_capability)} and newer"
        unfit = _unfit(image, gpu, text, image.min_capability, "min_capability")
        inside = _run_by(compiled, capability)
        if not inside:
            return unfit
        mark = " (from memory)" if "sass" in image.recalled else ""
        return replace(
            unfit,
            level="caution",
            text=f"{unfit.text}; but it has kernels for {inside[-1]}{mark}: it may run, unsupported",
        )
    if compiled and capability < compiled[0][0]:
        text = f"the image's oldest kernels are for compute capability {_family(compiled[0][1])}"
        return _unfit(image, gpu, text, compiled[0][1], "sass")
    return None


def _compiled(image: ImageFacts, gpu: Gpu, capability: tuple[int, ...]) -> Reason | None:
    """Judge by the kernels in the image; the driver compiles PTX for any newer card."""
    compiled = _kernels(image.sass)
    if not compiled:
        return None
    fitting = _run_by(compiled, capability)
    source, recalled = image.sources.get("sass", BINARIES), "sass" in image.recalled
    if fitting:
        text = f"compiled kernels for {fitting[-1]} run on {gpu.title} ({gpu.capability})"
        return Reason("capability", "runs", text, gpu.capability, fitting[-1], source, recalled)
    portable = known(image.ptx)
    if portable is not None and portable <= capability:
        return Reason("ptx", "caution", _ptx_text(gpu), gpu.capability, compiled[-1][1], source, recalled)
    return _without_kernels(image, gpu, gpu.capability, [one for _, one in compiled])


def _by_toolkit(image: ImageFacts, gpu: Gpu, capability: tuple[int, ...]) -> Reason:
    """Judge by what the image's CUDA can compile for, if it is unknown what its framework was compiled for."""
    row = cuda.capabilities(image.cuda)
    if row is None:
        return _as_documented(image, gpu)
    if capability < comparable(row.lowest):
        text = f"CUDA {image.cuda} compiles no kernels below compute capability {_family(row.lowest)}"
        return Reason("capability", "no", text, gpu.capability, row.lowest, row.source, row.recalled)
    if not _run_by(_kernels(row.listed), capability):
        return Reason("ptx", "caution", _ptx_text(gpu), gpu.capability, row.listed[-1], row.source, row.recalled)
    text = f"CUDA {image.cuda} can compile kernels for {gpu.title} ({gpu.capability}); which are inside is not known"
    return Reason("capability", "runs", text, gpu.capability, row.lowest, row.source, row.recalled)


def _as_documented(image: ImageFacts, gpu: Gpu) -> Reason:
    if known(image.min_capability) is None:
        text = f"neither the image's kernels nor its CUDA is known, so it is open whether {gpu.title} can run them"
        return Reason("unknown", "caution", text, gpu.capability)
    text = f"{gpu.title} ({gpu.capability}) is within what the image is documented for"
    source, recalled = image.sources.get("min_capability"), "min_capability" in image.recalled
    return Reason("capability", "runs", text, gpu.capability, image.min_capability, source, recalled)


def _kernels(capabilities: Iterable[str] | None) -> list[tuple[tuple[int, ...], str]]:
    """Return the compute capabilities of kernels, ascending. Jetsons' are left out: "the binary compatibility between
    desktop and Tegra is not supported" (BINARIES)."""
    every = [one for one in capabilities or () if one not in _JETSONS]
    return sorted((parts, one) for one in every if (parts := known(one)) is not None)


def _run_by(kernels: Iterable[tuple[tuple[int, ...], str]], capability: tuple[int, ...]) -> list[str]:
    """Return those kernels that a card runs: a kernel for X.y runs on X.z if z >= y."""
    return [one for parts, one in kernels if parts[0] == capability[0] and parts <= capability]


def _ptx_text(gpu: Gpu) -> str:
    return (
        f"the image has no kernels for {gpu.title} ({gpu.capability}): the driver compiles them at the first start, "
        "which takes minutes, and a library without PTX may fail"
    )


def _without_kernels(image: ImageFacts, gpu: Gpu, capability: str | None, compiled: Sequence[str]) -> Reason:
    text = f"the image has no kernels for compute capability {_family(capability)}; it has {', '.join(compiled)}"
    return _unfit(image, gpu, text, compiled[-1], "sass")


def _unfit(image: ImageFacts, gpu: Gpu, text: str, needed: str | None, name: str) -> Reason:
    source = image.sources.get(name, BINARIES)
    whole = f"{text}, and {gpu.title} has {gpu.capability}"
    return Reason("capability", "no", whole, gpu.capability, needed, source, name in image.recalled)


def _family(capability: str | None) -> str:
    """Add the architecture's name: 6.0 -> 6.0 (Pascal)."""
    row = cards.family(capability)
    return f"{capability} ({row.architecture})" if row else str(capability)
