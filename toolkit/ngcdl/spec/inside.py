"""The folders inside a container: ngcdl's own, and the caller's working directory."""

ROOT = "/ngcdl"
TRAINER, DATA, RESUME, CHOICES = f"{ROOT}/trainer", f"{ROOT}/data", f"{ROOT}/resume", f"{ROOT}/choices"
RUN = f"{ROOT}/run"
HOME = f"{RUN}/home"
CACHE = f"{ROOT}/cache"  # outlives the run
PACKAGES = f"{ROOT}/packages"  # that --pip adds
WORK = "/work"


def is_ours(path: str) -> bool:
    """Whether ngcdl itself adds the mount at this path: everything below /ngcdl/ except the cache folder, where users
    may mount another one."""
    return path.startswith(f"{ROOT}/") and path.rstrip("/") != CACHE
