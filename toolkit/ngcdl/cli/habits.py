"""What people type out of habit from other tools, and the lines that do it here."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import shlex
from collections.abc import Collection, Sequence

from ngcdl.cli.changed import replaced
from ngcdl.cli.typed import again, own_end
from ngcdl.command_lines import COMMANDS
from ngcdl.errors import BadOption, NgcdlError
from ngcdl.spec import kind_of

_RIGHTS = "the container gets the GPUs that --gpus asks for, and no further rights"
# Options of `docker run`, which ngcdl lacks, with what takes their place.
_DOCKERS = {
    "--runtime": "it chooses how GPUs get into the container; NGCDL_GPU_WAY=runtime|cdi|device-request|none sets it",
    "--mount": "-v HOST:CONTAINER[:ro] mounts a folder, file or volume",
    "--ipc": "the container has its own /dev/shm, whose size --shm-size sets (1g)",
    **dict.fromkeys(("--net", "--network"), "the container has the engine's own network, and -p publishes a port"),
    **dict.fromkeys(("--publish-all", "-P"), "-p publishes a port"),
    "--hostname": "the container has the name that the engine gives it",
    **dict.fromkeys(("--label", "-l"), "a run is found by its id"),
    **dict.fromkeys(("--user", "-u"), "the container runs as you, or, with --root, as the image's own user"),
    "--group-add": "the container runs as you, in all of your groups",
    "--entrypoint": "the image's own entrypoint starts the command after --",
    "--init": "every container has an init process",
    "--restart": "a run ends once, and ngcdl runs replay repeats it",
    **dict.fromkeys(("--log-driver", "--log-opt"), "ngcdl logs prints what a run wrote"),
    **dict.fromkeys(("--privileged", "--cap-add", "--cap-drop", "--security-opt"), _RIGHTS),
    "--pid": "the container sees only its own processes",
    "--cpuset-cpus": "--cpus limits how many processors it gets",
    "--memory-swap": "--memory limits how much it gets",
    "--add-host": "the container knows the names that the engine gives it",
    "--tmpfs": "what the container writes outside of its mounts is deleted with it, and its /dev/shm is in memory",
    "--read-only": "what the container writes outside of its mounts is deleted with it",
    "--platform": "ngcdl takes the image for this machine's processors",
    "--cidfile": "the container is called ngcdl-RUN, RUN the run's id",
}
_DOCKERS_FLAGS = ("--publish-all", "-P", "--init", "--privileged", "--read-only")  # those without a value
# Options of other tools, with the words that mean the same here, where similar spelling would suggest something else.
SAME = {
    **dict.fromkeys(("--cpu", "--cpu-only", "--no-gpu", "--no-gpus", "--no-cuda"), "--gpus none"),
    **dict.fromkeys(("--cuda", "--use-gpu", "--all-gpus"), "--gpus all"),
    **dict.fromkeys(("--fp16", "--bf16", "--mixed-precision"), "--amp"),
    **dict.fromkeys(("--iterations", "--iters"), "--steps"),
    **dict.fromkeys(("--model", "--workload"), "--train"),
    "--bs": "--batch",
    "--times": "--repeat",
    **dict.fromkeys(("--requirements", "--requirement", "--packages", "--with", "--install"), "--pip"),
    "--dataset": "--data",
    "-m": "--memory",
    **dict.fromkeys(("-w", "-i", "-l", "--interval", "--loop"), "--watch"),  # as gpustat and nvidia-smi repeat it
    "--lines": "--tail",
    **dict.fromkeys(("-f", "--follow"), "--watch 1"),
    **dict.fromkeys(("-v", "-V"), "--version"),
}
_OF_RM = {  # the same for options of `docker rm`, `podman rm` and `rm`
    **dict.fromkeys(("-a", "--all"), "--older-than 0h"),
    **dict.fromkeys(("-f", "--force"), "--yes"),
}
_OF_A_LIMIT = ("--timeout", "--time-limit", "--max-time", "--duration", "--walltime")  # of a run's time, elsewhere
# What other tools call a command, with the lines that do it here. {} is what was typed after the word, or _TYPICAL.
_OTHERS = {
    **dict.fromkeys(("ps", "ls", "list", "history", "queue", "jobs"), "    ngcdl runs"),
    **dict.fromkeys(("top", "stats", "smi", "nvidia-smi", "monitor", "watch"), "    ngcdl gpu --watch 1"),
    "devices": "    ngcdl gpu",
    "version": "    ngcdl --version",
    "help": "    ngcdl {} --help",
    "train": "    ngcdl run --train {}",
    **dict.fromkeys(("benchmark", "bench"), "    ngcdl compare --train {}"),
    "test": "    ngcdl run --train smoke",
    **dict.fromkeys(("models", "trainings", "datasets"), "    ngcdl workloads"),
    **dict.fromkeys(("start", "shell"), "    ngcdl run {}"),
    "restart": "    ngcdl runs replay {}",
    **dict.fromkeys(("inspect", "status"), "    ngcdl show {}"),
    **dict.fromkeys(("attach", "tail"), "    ngcdl logs -f {}"),
    "cp": "A run's files, in its folder or in the container of one that goes on:\n    ngcdl show last\n"
    "    ngcdl exec last -- cat FILE > FILE",
    "resume": "    ngcdl run --train cifar10 --resume {}",
    "kill": "    ngcdl stop {}",
    **{word: f"    ngcdl runs {word} {{}}" for word in ("rm", "diff", "replay", "import")},
    **dict.fromkeys(("remove", "delete"), "    ngcdl runs rm {}"),
    **dict.fromkeys(
        ("clean", "cleanup", "prune"), "What would be removed, without removing it:\n    ngcdl runs rm {} --dry-run"
    ),
    **dict.fromkeys(("download", "fetch"), "    ngcdl pull {}"),
    **dict.fromkeys(("search", "tags"), "    ngcdl images {}"),
    **dict.fromkeys(("info", "diagnose"), "    ngcdl doctor"),
    **dict.fromkeys(("init", "setup", "install"), "    ngcdl doctor --fix"),
    **dict.fromkeys(
        ("config", "configure"),
        "A key for the registry:\n    ngcdl login\n"
        'A mirror of it, in ~/.config/ngcdl/config.toml:\n    registry = "mirror.example"',
    ),
    **dict.fromkeys(
        ("update", "upgrade"),
        "In the clone that it came from; the second or third line only if it was installed that way:\n    git pull\n"
        "    pipx install --force .\n    uv tool install --reinstall .",
    ),
    **dict.fromkeys(
        ("jupyter", "notebook"),
        "    ngcdl run pytorch -p 127.0.0.1:8888:8888 -- jupyter lab --ip=0.0.0.0 --no-browser",
    ),
}
_TYPICAL = {
    **dict.fromkeys(("train", "benchmark", "bench"), "cifar10"),
    "start": "--train cifar10",
    **dict.fromkeys(("shell", "download", "fetch"), "pytorch"),
    **dict.fromkeys(("inspect", "status", "kill", "restart", "replay"), "last"),
    **dict.fromkeys(("attach", "tail", "resume"), "last"),
    **dict.fromkeys(("rm", "remove", "delete"), "RUN"),
    **dict.fromkeys(("clean", "cleanup", "prune"), "--older-than 30d"),
    "diff": "last-1 last",
    "import": "FILE.tar",
}
# How `docker login`, and other tools, take a key or a user's name.
_OF_A_KEY = ("-p", "--password", "--key", "--api-key", "--token")
_OF_A_USER = ("-u", "--username", "--user")
_OF_THE_NEWEST = re.compile(r"(?:-n|--tail|--lines)[ =]?(\d{1,9})(?!\S)")
_OF_TIMES = ("--since", "--until", "--timestamps", "-t")  # of `docker logs`
_A_RUN = re.compile(r"last(-\d+)?|\d{8}-\d{6}-.+")
_PYTHONS = ("python", "python3", "torchrun")


def lines_for(word: str, rest: Sequence[str], commands: Sequence[str]) -> str:
    """Return the lines that do here what `word`, which is none of the `commands`, and the `rest` were meant to do; ""
    if that is unknown."""
    from ngcdl.spec import redacted_words

    typed = shlex.join(redacted_words(tuple(rest)))
    if word in _OTHERS:
        return _in_our_words(word, rest, typed)
    if word in COMMANDS:  # after `runs`
        return f"    ngcdl {word} {typed}".rstrip()
    if _A_RUN.fullmatch(word):
        return f"    ngcdl show {word} {typed}".rstrip()
    if line := _of_run(word, rest):
        return line
    if _fits_a_run(word):
        return f"    ngcdl show {word} {typed}".rstrip()
    same = [one for one in commands if sorted(one) == sorted(word)]  # rusn is runs, though run is as near
    near = same or difflib.get_close_matches(word, commands, 1)
    parent = [] if "runs" in commands else ["runs"]
    return f"Did you mean {near[0]}?\n{again([*parent, near[0], *rest])}" if near else ""


def _fits_a_run(word: str) -> bool:
    from ngcdl.cli import lookup
    from ngcdl.storing.store import named

    with contextlib.suppress(NgcdlError):
        return named(word, lookup.open_store().ids()) is not None
    return False


def _in_our_words(word: str, rest: Sequence[str], typed: str) -> str:
    if word == "status" and not rest:
        return "    ngcdl runs"
    if word == "start" and rest and _A_RUN.fullmatch(rest[0]):
        word = "restart"
    if word in ("rm", "remove", "delete"):
        ours = (_OF_RM[one].split() if one in _OF_RM else [one] for one in shlex.split(typed))
        typed = shlex.join(itertools.chain.from_iterable(ours))
    if word == "kill":
        typed = shlex.join(one for one in shlex.split(typed) if not re.fullmatch(r"-(\d+|[A-Z]+)", one))  # -9, -KILL
    if word in ("clean", "cleanup", "prune") and all(re.fullmatch("-[af]+|--all|--force", one) for one in rest):
        typed = ""
    if word == "resume" and (line := _resuming(rest[0] if rest else "last")):
        return f"    {line}"
    typical = _TYPICAL.get(word, "")
    if word in ("train", "benchmark", "bench") and typed.startswith("-"):
        typed = f"{typical} {typed}"
    return _OTHERS[word].format(typed or typical).replace("ngcdl  ", "ngcdl ").rstrip()


def _resuming(name: str) -> str | None:
    """Return the line that continues from the checkpoint of the run that `name` means; None if there is no such run."""
    from ngcdl.cli import lookup, resumed

    store = lookup.open_store()
    with contextlib.suppress(NgcdlError):
        run = store.load(lookup.id_of(name, store))
        return resumed.line(store.folder(run.id), run)
    return None


def _of_run(word: str, rest: Sequence[str]) -> str:
    """Return the line that runs `word`, if it is an image, a training or a script; else ""."""
    from ngcdl import trainings
    from ngcdl.catalog import releases

    if word.rpartition("/")[2].partition(":")[0] in releases.frameworks():
        return again(["run", word, *rest])
    if word in trainings.names():
        return again(["run", "--train", word, *rest])
    if word in _PYTHONS or word.endswith(".py"):
        return again(["run", "--", *([] if word in _PYTHONS else ["python3"]), word, *(x for x in rest if x != "--")])
    return ""


def login(option: str, words: Sequence[str]) -> BadOption | None:
    """Return what to do instead of an option that takes a key or a user's name; None for any other option. The key is
    never repeated."""
    prompt = "    ngcdl login"
    by_pipe = f"{prompt} --password-stdin"
    typed = next((word[:2] for word in words if re.match(r"-p.", word)), None)
    typed = typed or next((name for word in words if (name := word.partition("=")[0]) in _OF_A_KEY), None)
    if typed and words[-1] not in _OF_A_KEY:
        return BadOption(
            f"{typed}: ngcdl takes no key there; what you typed is in your shell's history now.",
            f"Type this, and paste the key there:\n{prompt}\nIn a script, with the key in a file:\n{by_pipe} < FILE",
        )
    if typed or option in _OF_A_USER:
        what = "ngcdl asks for the key" if typed else "a key needs no user name"
        return BadOption(f"{option}: {what}.", by_pipe if "--password-stdin" in words else prompt)
    return None


def newest(option: str, argv: Sequence[str]) -> str | None:
    """Return the lines that show runs again and again, or list as many of the newest as --tail says; None for any other
    option."""
    if option in ("-f", "--follow", "-w", "--watch"):
        return "    watch -n 10 ngcdl runs\n    ngcdl show last --watch 1"
    count = _OF_THE_NEWEST.search(" ".join(argv))
    if count is None or option not in ("-n", "--tail", "--lines"):
        return None
    from ngcdl.cli.runs import NEWEST

    shown = int(count[1])
    return f"    ngcdl runs{' --all' if shown > NEWEST else ''} | head -n {shown + 1}"  # heading, newest first


def of_times(option: str, argv: Sequence[str]) -> BadOption | None:
    """Say that a log has no times, which `docker logs` selects lines by; None for any other option."""
    if option not in _OF_TIMES:
        return None
    has_count = any(word.startswith(("-n", "--tail")) for word in argv)
    instead = ["--tail", "100"] if option == "--since" and not has_count else []
    words = replaced(argv, option, lambda _: instead, has_value=option in ("--since", "--until"))
    words = words or [word.replace("t", "") if re.fullmatch("-[ft]{2,}", word) else word for word in argv]  # -ft
    return BadOption(f"{option}: when a line of a log came is not recorded.", again(words))


def dockers(option: str, argv: Sequence[str]) -> BadOption | None:
    """Return what replaces an option of `docker run` that ngcdl lacks, with the line that was typed, all such options
    in it corrected; None for any other option."""
    if option not in _DOCKERS:
        return None
    words, programs = list(argv), list[str]()

    def started(program: str) -> list[str]:
        programs.append(program)
        return []

    by = {"--mount": _as_volume, "--entrypoint": started}
    for name in _DOCKERS:
        while less := replaced(words, name, by.get(name, lambda _: []), has_value=name not in _DOCKERS_FLAGS):
            words = less
    for program in filter(None, programs):
        words += [] if "--" in words else ["--"]
        words.insert(words.index("--") + 1, program)
    said = f"{option}: ngcdl does not have this option of docker's; {_DOCKERS[option]}."
    is_whole = words != list(argv) and _UNKNOWN not in words
    return BadOption(said, again(words) if is_whole else f"    ngcdl {argv[0]} --help")


def in_time(option: str, argv: Sequence[str]) -> str | None:
    """Return the line that ends a run in time, as `option` does elsewhere; None for any other option, and for an engine
    that takes --time."""
    own = argv[: own_end(argv)]
    if option not in _OF_A_LIMIT or any("time_limit" in kind_of(word.removeprefix("--engine=")).takes for word in own):
        return None
    limit = ""

    def moved(value: str) -> list[str]:
        nonlocal limit
        limit = value
        return ["--seconds", value] if is_training else []

    is_training = any(word.partition("=")[0] == "--train" for word in own)
    words = replaced(argv, option, moved, has_value=True)
    if not words or not limit:
        return None
    if is_training:
        return f"Did you mean --seconds?\n{again(words)}"
    if "--" not in words:
        return None
    at = words.index("--") + 1
    return f"Another program ends a command in time:\n{again([*words[:at], 'timeout', limit, *words[at:]])}"


_UNKNOWN = "..."  # what only the user knows; a line with it is not shown, for it could be run as it stands


def _as_volume(mount: str) -> list[str]:
    """type=bind,source=/a,target=/b,readonly -> -v /a:/b:ro."""
    fields = dict(field.partition("=")[::2] for field in mount.split(","))
    source, target = (
        next((fields[name] for name in names if fields.get(name)), _UNKNOWN)
        for names in (("source", "src"), ("target", "destination", "dst"))
    )
    if _UNKNOWN in (source, target) or fields.get("type") not in (None, "bind", "volume"):
        return [_UNKNOWN]
    return ["-v", f"{source}:{target}" + (":ro" if {"readonly", "ro"} & fields.keys() else "")]


def meant(option: str, known: Collection[str]) -> str | None:
    """Return which of the `known` options was probably meant, with its value if that is clear; None if none is near."""
    same = {**SAME, **_OF_RM} if "--older-than" in known else SAME
    if same.get(option, "").partition(" ")[0] in known:
        return same[option]
    typed = option.removeprefix("--").replace("_", "-").lower()
    long = [name.removeprefix("--") for name in known if name.startswith("--")]
    related = [name for name in long if name.startswith(typed) or typed.startswith(name)]
    near = difflib.get_close_matches(typed, related, 1, 0) or difflib.get_close_matches(typed, long, 1, 0.65)
    return f"--{near[0]}" if near and option.startswith("--") else None
