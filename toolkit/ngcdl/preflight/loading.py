"""Does the driver carry the image's CUDA for a card: by itself, by forward or minor-version compatibility, or not.

Rules: native, forward, minor, driver, unknown. https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

from ngcdl.preflight.facts import Gpu, ImageFacts, Reason, known, version

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"
FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
MINOR = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"


def loading(image: ImageFacts, gpu: Gpu, driver: str | None, *, needs_ptx: bool) -> Reason:
    host = known(driver)
    if driver is None or host is None:
        text = "the driver's version is unknown" + (f", and the image wants {image.driver}" if image.driver else "")
        return Reason("unknown", "caution", text, driver, image.driver, image.sources.get("driver"))
    return (
        _native(image, driver, host)
        or _forward(image, gpu, driver, host)
        or _minor(image, gpu, driver, host, needs_ptx=needs_ptx)
        or _undecided(image, gpu, driver, host, needs_ptx=needs_ptx)
        or _refused(image, gpu, driver, host, needs_ptx=needs_ptx)
    )


def _native(image: ImageFacts, driver: str, host: tuple[int, ...]) -> Reason | None:
    own = known(image.driver)
    if own is None:
        return None
    source, recalled = image.sources.get("driver"), "driver" in image.recalled
    if host >= own:
        text = f"driver {driver} is at least the image's own {image.driver}"
        return Reason("native", "runs", text, driver, image.driver, source, recalled)
    if host[0] == own[0]:
        text = (
            f"driver {driver} is of the image's own branch {own[0]}, below its {image.driver} by the patch level only"
        )
        return Reason("native", "runs", text, driver, image.driver, source, recalled)
    return None


def _forward(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...]) -> Reason | None:
    if gpu.brand not in image.compat_brands or host[0] not in (image.compat_branches or ()):
        return None
    least = known(image.compat_minimums.get(host[0]))
    if least is not None and host < least:
        return None
    text = f"the image's cuda-compat package stands in for driver {image.driver or 'of its own'} on branch {host[0]}"
    # that data-centre cards are taken is documented by name; the other brands go by a list
    by_name = gpu.brand in ("tesla", "nvidia")
    recalled = "compat_branches" in image.recalled or ("compat_brands" in image.recalled and not by_name)
    source = image.sources.get("compat_branches", FORWARD)
    return Reason("forward", "runs", text, driver, _from(image, host[0]), source, recalled)


def _minor(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...], *, needs_ptx: bool) -> Reason | None:
    floor = known(image.minor_floor)
    if floor is None or host < floor or needs_ptx:
        return None
    text = (
        f"driver {driver} runs CUDA {image.cuda or 'of this major version'} by minor-version compatibility "
        f"(from {image.minor_floor} on): what needs a newer driver fails, and so does PTX of the newer toolkit"
    )
    if host[0] in (image.compat_branches or ()) and gpu.brand not in (*image.compat_brands, None, "unknown"):
        # The toolkit's hook looks at the branch, not at the card:
        # https://github.com/NVIDIA/nvidia-container-toolkit/tree/main/cmd/nvidia-cdi-hook/cudacompat
        text += (
            "; should it end with error 804, the toolkit has put the image's cuda-compat package first, which is for "
            "data-centre cards"
        )
    source, recalled = image.sources.get("minor_floor", MINOR), "minor_floor" in image.recalled
    return Reason("minor", "runs", text, driver, image.minor_floor, source, recalled)


def _undecided(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...], *, needs_ptx: bool) -> Reason | None:
    """What can't be told without a fact that is missing is neither a yes nor a no."""
    least = _least(image, gpu, host, needs_ptx=needs_ptx)
    if len(host) == 1 and (known(least) or ())[:1] == host:
        text = f"driver {driver} names a whole branch, of which {least} and newer would do"
        return Reason("unknown", "caution", text, driver, least)
    if known(image.driver) is None:
        text = f"which driver the image was built for is unknown, so driver {driver} is not judged"
        return Reason("unknown", "caution", text, driver, image.minor_floor)
    branches, do = (image.compat_likely, "may run") if image.compat_branches is None else (image.compat_branches, "run")
    if gpu.brand in (None, "unknown") and host[0] in branches:
        text = (
            f"driver {driver} is older than the image's own {image.driver}: data-centre cards {do} it by the image's "
            f"cuda-compat package, GeForce cards don't, and the brand of {gpu.title} is unknown"
        )
        return Reason("unknown", "caution", text, driver, image.driver, FORWARD)
    if image.compat_branches is None and gpu.brand in image.compat_brands and host[0] in image.compat_likely:
        text = (
            f"driver {driver} is older than the image's own {image.driver}: other releases run on branch {host[0]} by "
            "their cuda-compat package, and whether this one does is not known"
        )
        return Reason("unknown", "caution", text, driver, image.driver, FORWARD)
    return None


def _refused(image: ImageFacts, gpu: Gpu, driver: str, host: tuple[int, ...], *, needs_ptx: bool) -> Reason:
    least = _least(image, gpu, host, needs_ptx=needs_ptx)
    cuda = f"CUDA {image.cuda}" if image.cuda else "the image"
    # a branch stands by its number alone
    enough = f"one of branch {least}" if least and "." not in least else least
    text = f"driver {driver} is too old for {cuda}: {enough} would do"
    floor = known(image.minor_floor)
    if needs_ptx and floor is not None and host >= floor:
        text += f", for this driver can't compile the PTX that {gpu.title} needs"
    text += _why_not_forward(image, gpu)
    field = {image.minor_floor: "minor_floor", image.driver: "driver"}.get(least, "compat_branches")
    source = image.sources.get(field, COMPATIBILITY)
    return Reason("driver", "no", text, driver, least, source, field in image.recalled)


def _why_not_forward(image: ImageFacts, gpu: Gpu) -> str:
    if not image.compat_brands or gpu.brand in (None, "unknown"):
        return ""
    if gpu.brand not in image.compat_brands:
        return "; forward compatibility is for data-centre cards only (CUDA error 804 on others)"
    if image.compat_branches is None:
        return "; from which branches its cuda-compat package can be used is not known"
    allowed = ", ".join(_from(image, branch) for branch in image.compat_branches)
    return f"; its cuda-compat package is for the branches {allowed} only"


def _from(image: ImageFacts, branch: int) -> str:
    """Name a branch by the oldest driver of it that is documented to do, else by its number."""
    return image.compat_minimums.get(branch, str(branch))


def _least(image: ImageFacts, gpu: Gpu, host: tuple[int, ...], *, needs_ptx: bool) -> str | None:
    """Give the smallest driver above the host's that would do for this card; a whole branch by its number alone."""
    would_do = [image.driver] if image.driver else []
    if image.minor_floor and not needs_ptx:
        would_do.append(image.minor_floor)
    if gpu.brand in image.compat_brands:
        would_do += [_from(image, branch) for branch in image.compat_branches or ()]
    return min((one for one in would_do if (known(one) or ()) > host), key=version, default=None)
