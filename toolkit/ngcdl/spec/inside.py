"""The folders inside a container: ngcdl's own, and the caller's working directory."""

ROOT = "/ngcdl"
TRAINER, DATA, RESUME, CHOICES = f"{ROOT}/trainer", f"{ROOT}/data", f"{ROOT}/resume", f"{ROOT}/choices"
RUN = f"{ROOT}/run"
HOME = f"{RUN}/home"
CACHE = f"{ROOT}/cache"  # outlives the run
WORK = "/work"


def is_ours(path: str) -> bool:
    """Is a mount at this place ngcdl's own? Only the cache's may also have been typed."""
    return path.startswith(f"{ROOT}/") and path.rstrip("/") != CACHE
