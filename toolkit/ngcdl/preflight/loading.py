"""Whether a driver runs an image's CUDA on a card: natively, by forward or minor-version compatibility, or not at all.

A driver may also be too old, or too new, to drive the card.

Rules: native, forward, minor, driver, unknown. https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

from ngcdl.catalog import cards
from ngcdl.catalog.cuda import branch_of
from ngcdl.catalog.rows import comparable, known
from ngcdl.preflight.facts import Gpu, ImageFacts, Reason

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"
FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
MINOR = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
# DGX Spark, GB10: "CUDA Forward Compatibility mode ENABLED" with CUDA 13.2 and 13.4 on branch 580.
# https://github.com/msusol/vibe-planning-dgx-spark-demo/blob/main/docs/process/dgx-gpu-workflow.md
# https://github.com/Metrale/metrale-inference/blob/main/docs/gpt-oss-competitive-reference.md
_WITH_COMPAT = ("12.1",)
ANY_DRIVER = "9999.0"  # newer than any, and for every card: for a host whose driver is unknown


def loading(image: ImageFacts, gpu: Gpu, driver: str | None, *, needs_ptx: bool) -> Reason:
    host = known(driver)
    if driver is None or host is None:
        text = "the driver's version is unknown" + (f", and the image needs {image.driver}" if image.driver else "")
        return Reason("unknown", "caution", text, driver, image.driver, image.sources.get("driver"))
    return (
        _undriven(gpu, driver, host)
        or _native(image, gpu, driver, host)
        or _forward(image, gpu, driver, host)
        or _minor(image, gpu, driver, host, needs_ptx=needs_ptx)
        or _undecided(image, gpu, driver, host, needs_ptx=needs_ptx)
        or _refused(image, gpu, driver, host, needs_ptx=needs_ptx)
    )


def _undriven(gpu: Gpu, driver: str, host: tuple[int, ...]) -> Reason | None:
    """Refuse a driver that is too old or too new to drive the card, whatever the image."""
    family = cards.family(gpu.capability)
    if family is None or driver == ANY_DRIVER:
        return None
    branch, first, last = branch_of(host[0]), family.first_branch, family.last_branch
    if first is not None and branch < first:
        which, end, bound = "old", "first", first
    elif last is not None and branch > last:
        which, end, bound = "new", "last", last
    else:
        return None
    text = (
        f"driver {driver} is too {which} for {gpu.title}: branch {bound} is the {end} that drives "
        f"{family.architecture} ({family.capability})"
    )
    return Reason("driver", "no", text, driver, str(bound), family.source_of_branch, family.recalled)


def _native(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...]) -> Reason | None:
    own = known(image.driver)
    if own is None:
        return None
    if host >= own:
        text = f"driver {driver} is at least as new as the image's own {image.driver}"
    elif host[0] == own[0]:
        text = f"driver {driver} is on the image's own branch {own[0]}, older than its {image.driver} by a patch level"
        # NVIDIA's framework images have the package where the hook does not look, in compat/lib.real:
        # https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.0/cmd/nvidia-cdi-hook/cudacompat/cudacompat_test.go
        if image.framework is None and image.compat_brands and _takes_compat(image, gpu) is False:
            text += (
                "; if it ends with error 804, the container toolkit, from 1.20 on, has loaded the image's cuda-compat "
                "package for data-centre cards, and the driver has to be updated"
            )
    else:
        return None
    return Reason("native", "runs", text, driver, image.driver, image.sources.get("driver"), "driver" in image.recalled)


def _forward(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...]) -> Reason | None:
    if not _takes_compat(image, gpu) or host[0] not in (image.compat_branches or ()):
        return None
    least = known(image.compat_minimums.get(host[0]))
    if least is not None and host < least:
        return None
    text = f"the image's cuda-compat package stands in for driver {image.driver or 'libraries'} on branch {host[0]}"
    # the documentation names data-centre cards; other brands are taken from the image's list
    by_name = gpu.brand in ("tesla", "nvidia") or gpu.capability in _WITH_COMPAT
    recalled = "compat_branches" in image.recalled or ("compat_brands" in image.recalled and not by_name)
    source = image.sources.get("compat_branches", FORWARD)
    return Reason("forward", "runs", text, driver, _from(image, host[0]), source, recalled)


def _minor(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...], *, needs_ptx: bool) -> Reason | None:
    floor = known(image.minor_floor)
    if floor is None or host < floor or needs_ptx:
        return None
    text = (
        f"driver {driver} runs CUDA {image.cuda or 'of this major version'} by minor-version compatibility "
        f"({image.minor_floor} or newer): what needs a newer driver fails, and so does PTX from a newer toolkit"
    )
    text += _trap(image, gpu, host[0])
    source, recalled = image.sources.get("minor_floor", MINOR), "minor_floor" in image.recalled
    return Reason("minor", "runs", text, driver, image.minor_floor, source, recalled)


def _trap(image: ImageFacts, gpu: Gpu, branch: int) -> str:
    """Say where the container toolkit may load the image's cuda-compat package although it is not for this host: its
    hook never checks the card, and before 1.20 it loads the package on any branch below the package's own.
    https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.18.0/cmd/nvidia-cdi-hook/cudacompat/cudacompat.go
    https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/CHANGELOG.md"""
    takes, is_listed, own = _takes_compat(image, gpu), _is_listed(image, branch), known(image.driver)
    is_for_it = takes is not False and is_listed is not False
    if not image.compat_brands or is_for_it or (not is_listed and (own is None or branch > own[0])):
        return ""
    toolkit = "the container toolkit" + ("" if is_listed else ", if it is older than 1.20,")
    whom = "data-centre cards" if takes is False else "other branches"
    return f"; if it ends with error 803 or 804, {toolkit} has loaded the image's cuda-compat package for {whom}"


def _undecided(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...], *, needs_ptx: bool) -> Reason | None:
    """Return a caution if a fact is missing that would decide between yes and no."""
    least = _least(image, gpu, host, needs_ptx=needs_ptx)
    if (known(least) or ())[:1] == host:
        text = f"driver {driver} names a whole branch, in which {least} or newer would do"
        return Reason("unknown", "caution", text, driver, least)
    if known(image.driver) is None:
        text = f"the driver that the image was built for is unknown, so driver {driver} is not judged"
        return Reason("unknown", "caution", text, driver, image.minor_floor)
    text = f"driver {driver} is older than the image's own {image.driver}"
    takes, is_listed = _takes_compat(image, gpu), _is_listed(image, host[0])
    if takes is None and is_listed is not False:
        text += f": data-centre cards {'run' if is_listed else 'may run'} it with the image's cuda-compat package, "
        text += f"GeForce cards don't, and the brand of {gpu.title} is unknown"
    elif takes and is_listed is None:
        text += f", and it is not known whether the image's cuda-compat package works on branch {host[0]}"
    else:
        return None
    return Reason("unknown", "caution", text, driver, image.driver, FORWARD)


def _refused(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...], *, needs_ptx: bool) -> Reason:
    least = _least(image, gpu, host, needs_ptx=needs_ptx)
    cuda = f"CUDA {image.cuda}" if image.cuda else "the image"
    # a branch is written as its number alone
    enough = f"one of branch {least}" if least and "." not in least else least
    text = f"driver {driver} is too old for {cuda}: {enough} would do"
    floor = known(image.minor_floor)
    if needs_ptx and floor is not None and host >= floor:
        text += f", because this driver can't compile the PTX that {gpu.title} needs"
    text += _why_not_forward(image, gpu, host[0])
    field = {image.minor_floor: "minor_floor", image.driver: "driver"}.get(least, "compat_branches")
    source = image.sources.get(field, COMPATIBILITY)
    is_inferred = not _has_whole_list(image) and bool(_takes_compat(image, gpu))
    return Reason("driver", "no", text, driver, least, source, field in image.recalled or is_inferred)


def _takes_compat(image: ImageFacts, gpu: Gpu) -> bool | None:
    """Return whether the image's cuda-compat package is for this card; None if the card's brand is unknown."""
    if not image.compat_brands:
        return False
    if gpu.brand in image.compat_brands or gpu.capability in _WITH_COMPAT:
        return True
    return None if gpu.brand in (None, "unknown") else False


def _is_listed(image: ImageFacts, branch: int) -> bool | None:
    """Return whether the image's cuda-compat package can be used on this branch; None if that is unknown.

    From CUDA 10.2 on, NVIDIA's lists lose branches from one version to the next and gain only newer ones: a branch that
    the last known list lacks does not come back.
    """
    if branch in (image.compat_branches or ()):
        return True
    last = image.compat_likely
    is_open = not _has_whole_list(image) and (not last or branch in last or branch > max(last))
    return None if is_open else False


def _has_whole_list(image: ImageFacts) -> bool:
    """Return whether the complete list of branches is known, and not only branches that were seen to work."""
    return image.compat_branches is not None and not image.compat_likely


def _why_not_forward(image: ImageFacts, gpu: Gpu, branch: int) -> str:
    takes = _takes_compat(image, gpu)
    if not image.compat_brands or takes is None:
        return ""
    if not takes:
        return "; forward compatibility is for data-centre cards only (CUDA error 804 on others)"
    listed = ", ".join(_from(image, branch) for branch in image.compat_branches or ())
    if _has_whole_list(image):
        return f"; its cuda-compat package is only for branches {listed}"
    seen = f"was seen to work on branches {listed}, and" if listed else "works on branches that are not known, but"
    return f"; its cuda-compat package {seen} the last known list does not have {branch}"


def _from(image: ImageFacts, branch: int) -> str:
    """Name a branch by the oldest of its drivers that is documented to work, else by its number."""
    return image.compat_minimums.get(branch, str(branch))


def _least(image: ImageFacts, gpu: Gpu, host: tuple[int, ...], *, needs_ptx: bool) -> str | None:
    """Return the oldest driver above the host's that would do for this card; a whole branch is its number alone."""
    would_do = [image.driver] if image.driver else []
    if image.minor_floor and not needs_ptx:
        would_do.append(image.minor_floor)
    if _takes_compat(image, gpu):
        would_do += [_from(image, branch) for branch in image.compat_branches or ()]
    return min((one for one in would_do if (known(one) or ()) > host), key=comparable, default=None)
