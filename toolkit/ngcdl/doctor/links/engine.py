"""The Docker engine: does it answer, whose is it, and how is it installed?"""

from __future__ import annotations

from ngcdl.doctor import packages
from ngcdl.doctor.chain import Finding, Link, Step, broken, from_error, not_seen, ok, warning
from ngcdl.doctor.packages import service
from ngcdl.doctor.sight import Engine, Sight, Trouble
from ngcdl.engines.docker import podman, snap
from ngcdl.errors import EngineAbsent, EngineForbidden, EngineHangs
from ngcdl.errors.engine import CONFIG, daemon_of

NAME = "engine"
_DESKTOP = "https://docs.docker.com/desktop/features/gpu/"
_CONTEXTS = "https://docs.docker.com/engine/manage-resources/contexts/"
_LIVE_RESTORE = "https://docs.docker.com/engine/daemon/live-restore/"
_PODMAN = "https://docs.podman.io/en/latest/markdown/podman-system-service.1.html"
_WITHOUT = "Without it, ngcdl run --train cifar10 and ngcdl run -- python3 train.py run on this host"
_GROUP = "https://docs.docker.com/engine/install/linux-postinstall/"


def judge(sight: Sight) -> Finding:
    engine = sight.engine
    if isinstance(engine, Trouble):
        return _silent(sight, engine)
    version = engine.facts.version or "of an unknown version"
    found = f"{version if podman.is_named(version) else f'Docker {version}'} at {engine.address}"
    if sight.context is not None:
        found += f", from Docker's context {sight.context}"
    if engine.facts.is_desktop and sight.kernel.has_dxg:
        hint = "Its containers get the cards, with Windows' driver; toolkit, images and limits are Docker Desktop's own"
        return ok(NAME, f"{found}, Docker Desktop under WSL", hint, source=_DESKTOP)
    if engine.facts.is_desktop:
        cause = "Docker Desktop runs in a virtual machine, without this host's driver, folders and toolkit"
        return warning(NAME, f"{found}, Docker Desktop", cause, source=_DESKTOP)
    if engine.facts.is_snap:
        cause = (
            f"{snap.SEES}: runs may fail, or lose what they write elsewhere. They have neither an init process nor "
            "no-new-privileges, with which, by reports, none starts there. Docker's own packages have none of these "
            "limits; but with the snap its images, containers and volumes are removed"
        )
        return warning(NAME, f"{found}, from snap", cause, Step(snap.VISIBLE, by_hand=True), source=snap.INSTALL)
    if not engine.is_here:
        hint = (
            "Cards, memory and limits are reported for this machine; for the engine's, run ngcdl doctor on its machine"
        )
        return ok(NAME, f"{found}, on another machine ({engine.facts.name or 'without a name'})", hint)
    return ok(NAME, f"{found}, rootless" if engine.facts.is_rootless else found)


def _silent(sight: Sight, trouble: Trouble) -> Finding:
    error = trouble.error
    if error is None and not trouble.is_late:
        return not_seen(NAME, trouble)
    if error is None or isinstance(error, EngineHangs):
        found = error.message if error else f"the Docker engine gave {trouble.why}"
        return _hanging(found, error.address if error else sight.address, sight)
    if isinstance(error, EngineForbidden):
        cause = (
            "Only root and the group docker may connect, and its members are as good as root on this machine. "
            "Membership takes effect at the next login. Rootless Docker needs none of this"
        )
        return broken(NAME, error.message, cause, Step("sudo usermod -aG docker $USER"), source=_GROUP)
    if isinstance(error, EngineAbsent) and error.named_by == CONFIG:
        cause = f"Docker's context {sight.context} points there"
        return broken(NAME, error.message, cause, Step("docker context use default"), source=_CONTEXTS)
    if not isinstance(error, EngineAbsent) or error.named_by:
        return from_error(NAME, error)
    if "dockerd" in sight.programs.names:
        cause = f"It is installed, but not running. {_WITHOUT}"
        return broken(NAME, error.message, cause, service(sight.programs, "start"))
    if {"podman", "systemctl"} <= sight.programs.names:
        cause = f"It is not installed. Podman is, which serves Docker's API, too. {_WITHOUT}"
        named = Step("export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock", by_hand=True)
        return broken(
            NAME, error.message, cause, Step("systemctl --user enable --now podman.socket"), named, source=_PODMAN
        )
    steps = packages.engine(sight.programs, sight.kernel.distribution)
    return broken(NAME, error.message, f"It is not installed. {_WITHOUT}", *steps, source=snap.INSTALL)


def _hanging(found: str, address: str, sight: Sight) -> Finding:
    whose = daemon_of(address)
    if whose is None:
        cause = "Restarting this machine's own daemon does not help: check the engine and its log where it runs"
        return broken(NAME, found, cause)
    is_rootless = whose == "user"
    log = Step(f"{'journalctl --user' if is_rootless else 'sudo journalctl'} -u docker -n 50", by_hand=True)
    restart = service(sight.programs, "restart", is_rootless=is_rootless)
    return broken(NAME, found, "Its log may say why; restarting it helps", log, restart)


def live_restore(sight: Sight) -> Finding | None:
    engine = sight.engine
    if isinstance(engine, Trouble) or engine.facts.live_restore is None:
        return None
    if engine.facts.live_restore:
        return ok("live-restore", "on: trainings survive a restart of the engine")
    hint = 'A restart or update of the engine ends every training; {"live-restore": true} in daemon.json avoids it'
    return ok("live-restore", "off", hint, source=_LIVE_RESTORE)


def memlock(sight: Sight) -> Finding:
    """Judge whether the daemon may raise limits, as NVIDIA's documented --ulimit memlock=-1 needs."""
    name, engine = "memlock", sight.engine
    if isinstance(engine, Trouble):
        return not_seen(name, engine, "engine")
    if not engine.memlock_forbidden and engine.can_raise_limits:
        return ok(name, "a container may lock memory without limit")
    if not engine.memlock_forbidden and engine.can_raise_limits is None:
        return ok(name, "the first run will show whether the engine may lift the limit, and works either way")
    limit = f"{engine.memlock_bytes >> 10} KiB" if engine.memlock_bytes is not None else "the engine's own limit"
    how = "an earlier run was refused" if engine.memlock_forbidden else "its daemon has no CAP_SYS_RESOURCE"
    cause = (
        f"This engine can't grant --ulimit memlock=-1 ({how}): runs continue with {limit}, and several GPUs in one run "
        "may be slower or fail. Normal for rootless Docker and nested containers; elsewhere raise the daemon's limit"
    )
    if not sight.has_gpu:
        return ok(name, f"at most {limit}, which is enough on the CPU")
    return warning(name, f"at most {limit}", cause, *_raise_limit(engine, sight), source=_MEMLOCK)


_MEMLOCK = "https://github.com/containerd/nerdctl/issues/1937"


def _raise_limit(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    """Return the steps that raise the limit in the daemon's unit; () if systemd does not run the daemon here."""
    if not engine.is_here or "systemctl" not in sight.programs.names:
        return ()
    user = "systemctl --user" if engine.facts.is_rootless else "sudo systemctl"
    edit = Step(f"{user} edit docker.service    # [Service] LimitMEMLOCK=infinity", by_hand=True)
    return (edit, service(sight.programs, "restart", is_rootless=engine.facts.is_rootless))


LINKS = (Link(100, NAME, judge), Link(150, "live-restore", live_restore), Link(155, "memlock", memlock))
