"""What was mistyped, or is another tool's, as typed: a usage error that leads on to the line that was meant."""

from __future__ import annotations

import re
import shlex

import pytest
from house import TRAIN, House

from ngcdl.cli import mistyped
from ngcdl.cli import typed as typed_words
from ngcdl.record import Run


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nonsense",), "ngcdl: nonsense: ngcdl has no such command.\n      ngcdl --help\n"),
        (("rusn", "--all"), "  Did you mean runs?\n      ngcdl runs --all\n"),
        (("docter", "--fix"), "  Did you mean doctor?\n      ngcdl doctor --fix\n"),
        (("shell",), "    ngcdl run pytorch\n"),
        (("attach", "abc"), "    ngcdl logs -f abc\n"),
        (("tail",), "    ngcdl logs -f last\n"),
        (("queue",), "    ngcdl runs\n"),
        (("cp", "last:/x", "."), "    ngcdl exec last -- cat FILE > FILE\n"),
        (("status",), "    ngcdl runs\n"),
        (("status", "abc"), "    ngcdl show abc\n"),
        (("resume",), "    ngcdl run --train cifar10 --resume last\n"),
        (("config",), "    ngcdl login\n"),
        (("monitor",), "    ngcdl gpu --watch 1\n"),
        (("benchmark", "resnet-56"), "    ngcdl compare --train resnet-56\n"),
        (("kill", "-9"), "    ngcdl stop last\n"),
        (("help",), "    ngcdl --help\n"),
        (("help", "runs", "diff"), "    ngcdl runs diff --help\n"),
        (("update",), "    git pull\n"),
        (("train.py", "--lr", "3"), "    ngcdl run -- python3 train.py --lr 3\n"),
        (("python", "train.py"), "    ngcdl run -- python train.py\n"),
        (("--", "ls"), "    ngcdl run -- ls\n"),
        (("--train", "cifar10"), "    ngcdl run --train cifar10\n"),
        (("--json", "runs"), "    ngcdl runs --json\n"),
        (("--gpus", "all", "run", "pytorch", "--", "x"), "    ngcdl run --gpus all pytorch -- x\n"),
        (("--steps=5", "compare", "--train", "cifar10"), "    ngcdl compare --steps=5 --train cifar10\n"),
        (("--dry-run", "runs", "rm", "last"), "    ngcdl runs rm --dry-run last\n"),
        (("--dry-run", "images"), "--dry-run: ngcdl has no such option.\n      ngcdl images --help\n"),
        (("-e", "A_KEY=hush", "run", "x:1"), "    ngcdl run -e A_KEY x:1\n"),
        (("-V",), "    ngcdl --version\n"),
        (("ps", "-q"), "ps: ngcdl has no such command.\n      ngcdl runs\n"),
        (("train", "resnet-50", "--steps", "9"), "    ngcdl run --train resnet-50 --steps 9\n"),
        (("train",), "    ngcdl run --train cifar10\n"),
        (("train", "--steps", "5"), "    ngcdl run --train cifar10 --steps 5\n"),
        (("start", "pytorch", "--", "ls", "a b"), "    ngcdl run pytorch -- ls 'a b'\n"),
        (("inspect",), "    ngcdl show last\n"),
        (("rm", "a b", "-f"), "    ngcdl runs rm 'a b' --yes\n"),
        (("prune", "-af"), "    ngcdl runs rm --older-than 30d --dry-run\n"),
        (("runs", "rm", "--all", "-y"), "    ngcdl runs rm --older-than 0h -y\n"),
        (("replay",), "replay: ngcdl has no such command.\n      ngcdl runs replay last\n"),
        (("diff", "last", "last-3"), "    ngcdl runs diff last last-3\n"),
        (("exec", "-it", "last", "ls", "-l"), "    ngcdl exec -it last -- ls -l\n"),
        (("exec", "last", "-uroot", "bash"), "    ngcdl exec last -- -uroot bash\n"),
        (("jupyter", "lab"), "    ngcdl run pytorch -p 127.0.0.1:8888:8888 -- jupyter lab "),
        (("start", "last"), "    ngcdl runs replay last\n"),
        (("start", "-e", "HF_TOKEN=hush"), "    ngcdl run -e 'HF_TOKEN=***'\n"),
        (("runs", "ls"), "runs ls: ngcdl has no such command.\n      ngcdl runs\n"),
        (("runs", "inspect", "abc"), "    ngcdl show abc\n"),
        (("runs", "logs", "abc", "-f"), "    ngcdl logs abc -f\n"),
        (("runs", "--json", "diff", "a", "b"), "    ngcdl runs diff --json a b\n"),
        (("runs", "--json", "replay", "a"), "    ngcdl runs replay --json a\n"),
        (("runs", "--json", "rm", "a"), "runs --json rm: what stands before rm is for the list of runs.\n"),
        (("runs", "-a", "rm", "a"), "    ngcdl runs rm --help\n"),
        (("runs", "nonsense"), "runs nonsense: ngcdl has no such command.\n      ngcdl runs --help\n"),
        (("runs", "dif", "a", "b"), "    ngcdl runs diff a b\n"),
        (("runs", "last"), "    ngcdl show last\n"),
        (("version",), "    ngcdl --version\n"),
        (("pytorch",), "    ngcdl run pytorch\n"),
        (("nvidia/pytorch:25.03-py3", "--", "ls"), "    ngcdl run nvidia/pytorch:25.03-py3 -- ls\n"),
        (("resnet-56", "--steps", "9"), "    ngcdl run --train resnet-56 --steps 9\n"),
        (("logs", "--lines=5"), "    ngcdl logs --tail=5\n"),
        (("logs", "-n", "-1"), "--tail -1: must be a whole number, 0 or more.\n"),
        (("logs", "--since", "2h", "a", "-f"), "is not recorded.\n      ngcdl logs --tail 100 a -f\n"),
        (("logs", "-ft", "a", "-n9"), "-t: when a line of a log came is not recorded.\n      ngcdl logs -f a -n9\n"),
        (("runs", "-f"), "    watch -n 10 ngcdl runs\n      ngcdl show last --watch 1\n"),
        (("runs", "-n3"), "    ngcdl runs | head -n 4\n"),
        (("runs", "--tail", "30"), "    ngcdl runs --all | head -n 31\n"),
        (("login", "-u", "$oauthtoken", "--password-stdin"), "    ngcdl login --password-stdin\n"),
        (("login", "--password"), "--password: ngcdl asks for the key.\n      ngcdl login\n"),
        (("login", "--enrot", "hush"), "  Did you mean --enroot?\n      ngcdl login --enroot\n"),
        (("login", "nvcr.io", "hush"), "ngcdl: login: more words than it takes.\n"),
        (("run", "--nonsense"), "ngcdl: --nonsense: ngcdl run has no such option.\n      ngcdl run --help\n"),
        (
            ("run", "--vary=threads=1,2", "--train", "cifar10"),
            "--vary: ngcdl run has no such option.\n      ngcdl compare --vary=threads=1,2 --train cifar10\n",
        ),
        (("run", "--gpu", "all", "x:1"), "  Did you mean --gpus?\n      ngcdl run --gpus all x:1\n"),
        (("run", "--tarin", "cifar10"), "    ngcdl run --train cifar10\n"),
        (("run", "--batch-size", "8", "--train", "cifar10"), "    ngcdl run --batch 8 --train cifar10\n"),
        (("compare", "--train", "cifar10", "--epoch=3"), "    ngcdl compare --train cifar10 --epochs=3\n"),
        (("run", "x:1", "--pip", "-r", "a.txt", "--", "ls"), "    ngcdl run x:1 --pip a.txt -- ls\n"),
        (("run", "--shm_size", "2g", "x:1", "--", "ls"), "    ngcdl run --shm-size 2g x:1 -- ls\n"),
        (("run", "--image", "x:1", "--gpus", "1", "--", "ls"), "    ngcdl run x:1 --gpus 1 -- ls\n"),
        (("pull", "--image=x:1"), "    ngcdl pull x:1\n"),
        (("run", "--image"), "    ngcdl run --help\n"),
        (("run", "-gpus", "all", "x:1"), "    ngcdl run --gpus all x:1\n"),
        (("run", "--timeout", "30", "x:1", "--", "ls"), "    ngcdl run x:1 -- timeout 30 ls\n"),
        (("run", "--timeout=30", "--", "a", "--train", "b"), "    ngcdl run -- timeout 30 a --train b\n"),
        (("run", "--timeout=30", "--", "a", "--engine=slurm"), "    ngcdl run -- timeout 30 a --engine=slurm\n"),
        (("compare", "--train=cifar10", "--times=4"), "    ngcdl compare --train=cifar10 --repeat=4\n"),
        (("compare", "--train=cifar10", "--timeout=30"), "    ngcdl compare --train=cifar10 --seconds 30\n"),
        (("run", "--engine", "slurm", "x:1", "--timeout", "30"), "  Did you mean --time?\n"),
        (("run", "--cpu", "x:1"), "  Did you mean --gpus none?\n      ngcdl run --gpus none x:1\n"),
        (("run", "--gpu=1", "-e", "A_KEY=hush", "x:1"), "    ngcdl run --gpus=1 -e A_KEY x:1\n"),
        (("run", "x:1", "train", "--lr", "3"), "    ngcdl run x:1 -- train --lr 3\n"),
        (("run", "ls", "--colour"), "    ngcdl run -- ls --colour\n"),
        (("show", "--jsn", "last"), "    ngcdl show --json last\n"),
        (("show", "last", "-w", "2"), "    ngcdl show last --watch 2\n"),
        (("show", "last", "-w"), "    ngcdl show last --watch 1\n"),
        (("gpu", "-i", "5"), "    ngcdl gpu --watch 5\n"),
        (("gpu", "-l"), "    ngcdl gpu --watch 1\n"),
        (("gpu", "--interval=2"), "    ngcdl gpu --watch=2\n"),
        (("show", "--follow", "last"), "    ngcdl show --watch 1 last\n"),
        (("gpu", "--watch"), "ngcdl: --watch: how often?\n      ngcdl gpu --watch 1\n"),
        (("show", "--json=1"), "ngcdl: --json: it takes no value.\n      ngcdl show --help\n"),
        (("run", "--rm=true", "-d", "x:1"), "--rm: it takes no value.\n      ngcdl run --rm -d x:1\n"),
        (("run", "--detach=false", "x:1", "--", "ls"), "    ngcdl run x:1 -- ls\n"),
        (
            ("run", "-e", "A=1", "x:1", "env", "-v"),
            "-v: its value is missing: HOST:CONTAINER[:ro].\n  If it belongs to ",
        ),
        (("run", "-e", "A=1", "x:1", "env", "-v"), "    ngcdl run -e A=1 x:1 -- env -v\n"),
        (("run", "--gpus"), "--gpus: its value is missing: auto|none|all|N|0,2|UUID.\n      ngcdl run --help\n"),
        (("run", "--train", "cifar10", "--resume"), "    ngcdl run --train cifar10 --resume last\n      ngcdl runs\n"),
        (
            ("compare", "x:1", "--vary=seed=1,2", "--train", "cifar10", "--repeat", "2", "--trace", "3"),
            "  A run alone has it:\n      ngcdl run x:1 --train cifar10 --trace 3\n",
        ),
        (("images", ""), "ngcdl: '' is not an image name: it is empty"),
        (("compare", "--show"), "--show: which comparison?\n      ngcdl compare --show last\n"),
        (
            ("run", "pytorch", "tensorflow:24.05-tf2-py3", "--train", "lstm"),
            "tensorflow:24.05-tf2-py3: a run has one "
            "image.\n  To compare several:\n      ngcdl compare pytorch tensorflow:24.05-tf2-py3 --train lstm\n",
        ),
        (("run", "pytorch", "tensorflow", "--train", "smoke"), "a run has one image.\n      ngcdl run --help\n"),
        (
            ("run", "--train", "smoke", "--seconds", "0"),
            "--seconds must be a number above 0.\n      ngcdl run --help\n",
        ),
        (("runs", "import", "nowhere"), "nowhere: there is no such file.\n      ngcdl runs import --help\n"),
        (("show", "last", "last-1"), "ngcdl: show takes one run; last-1 is one too many.\n"),
        (("show", "last", "--json", "last-1"), "    ngcdl runs diff last last-1\n      ngcdl report last last-1\n"),
        (("stop", "a", "b", "c"), "b c are too many.\n      ngcdl stop a\n      ngcdl stop b\n      ngcdl stop c\n"),
        (("run", "--resume", "--train", "smoke"), "--resume: its value is missing before --train.\n"),
        (("run", "--resume", "--train", "smoke"), "    ngcdl run --resume last --train smoke\n      ngcdl runs\n"),
        (
            ("run", "--gpus", "--train", "smoke"),
            "--gpus: its value is missing before --train.\n      ngcdl run --help\n",
        ),
        (("run", "--train"), "ngcdl: --train: which training? cifar10, cifar10-keras, "),
        (("run", "--train"), ", smoke.\n      ngcdl workloads\n"),
        (("doctor", "x"), "ngcdl: doctor x: more words than it takes.\n      ngcdl doctor --help\n"),
        (("runs", "diff", "last"), "runs diff: B is missing.\n      ngcdl runs diff last-1 last\n"),
        (("run",), "Nothing to run: name an image"),
        (("run",), "    ngcdl run --train cifar10\n      ngcdl run -- python3 train.py\n"),
        (("run", "--steps", "many", "--train", "cifar10"), "--steps many: must be a whole number.\n"),
        (("run", "--train", "nonsense"), "cifar10-keras"),
        (("run", "--train", "cifar10", "--steps", "0"), "must be a whole number, 1 or more"),
        (("run", "--train", "cifar10", "--threads", "4097"), "--threads must be at most 4096"),
        (("run", "--train", "cifar10", "--gpus", "0"), "--gpus 0,"),
        (("run", "--train", "cifar10", "--gpus", "device=0,1"), "    --gpus 0,1"),
        (("run", "--train", "cifar10", "--gpus", "x"), "not understood"),
        (("run", "--train", "cifar10", "--engine", "x"), "auto, docker, local"),
        (("run", "--train", "cifar10", "--device", "tpu"), "auto, cpu or gpu"),
        (("run", "--train", "cifar10", "--", "ls"), "no command can follow --"),
        (("run", "--train", "cifar10", "--shm-size", "0"), "must be a size"),
        (("run", "--train", "cifar10", "--memory", "0"), "must be a size"),
        (
            ("run", "pytorch", "--shm-size", "8", "--", "ls"),
            " are too few.\n  Did you mean:\n      ngcdl run pytorch --shm-size 8g -- ls",
        ),
        (
            ("run", "pytorch", "--memory", "65536", "--", "ls"),
            " are too few.\n  Did you mean:\n      ngcdl run pytorch --memory 65536m -- ls",
        ),
        (("compare", "--train", "cifar10", "--memory", "0.1"), "must be a size"),
        (("run", "--train", "cifar10", "--cpus", "0"), "--cpus 0: must be a number above 0, such as 8 or 0.5"),
        (("compare", "pytorch:1", "--engine", "slurm", "--cpus", "0.5", "--", "x"), "--cpus 0.5: Slurm divides no CPU"),
        (("run", "--sample-every", "0.05", "--", "ls"), "0.05: must be a number of seconds from 0.1 to 30"),
        (("run", "x:1", "--engine", "slurm", "--sample-every", "2", "--", "x"), "each node samples once a second"),
        (("compare", "--train", "cifar10", "--sample-every", "nan"), "--sample-every nan: must be a number of seconds"),
        (("run", "--train", "cifar10", "--ulimit", "x"), "NAME=NUMBER"),
        (("run", "--train", "cifar10", "--ulimit", "stack=1:2"), "both the soft and the hard limit"),
        (("run", "--train", "cifar10", "--ulimit", "foo=1"), "core, cpu, data, fsize, locks, memlock"),
        (("run", "--train", "cifar10", "--ulimit", "foo=host"), "not a limit of Docker's"),
        (("run", "--train", "cifar10", "-v", "x"), "HOST:CONTAINER"),
        (("run", "--train", "cifar10", "-p", "x"), "8888:8888"),
        (("run", "--train", "cifar10", "-e", "UNSET"), "not set here"),
        (("run", "--train", "cifar10", "--pull", "x"), "missing or always"),
        (("run", "--train", "cifar10", "--amp", "--precision", "float32"), "--amp and --precision float32: use only"),
        (("run", "--train", "cifar10", "--steps", "9", "--epochs", "2"), "both set how long"),
        (("run", "--train", "cifar10", "--seconds", "nan"), "must be a number above 0"),
        (("run", "--train", "cifar10", "--batch", "most"), "or largest"),
        (("run", "--train", "cifar10", "--teacher", "kept"), "cifar10 has none"),
        (("run", "--train", "cifar10", "--gpus", "none", "--precision", "tf32"), "computes on the CPU"),
        (("run", "--train", "resnet-56", "--batch", "1"), "batch norm of resnet-56 needs 2 examples"),
        (("run", "--train", "resnet-56", "--batch", "3", "--gpus", "2"), "too small for 2 replicas"),
        (("compare", "--train", "resnet-56", "--vary", "batch=1,8"), "compare --train resnet-56 --vary batch=2,8\n"),
        (("run", "--train", "lstm", "--times", "3", "--seed", "4"), "    ngcdl run --train lstm --seed 4\n"),
        (
            ("run", "pytorch:1", "--train", "lstm", "-it", "--engine", "slurm"),
            "    ngcdl run pytorch:1 --train lstm -t --engine slurm\n",
        ),
        (
            ("compare", "--train", "cifar10", "--gpus", "64", "--vary", "nodes=1,4", "--engine", "slurm", "t:1"),
            "too small for 256 replicas",
        ),
        (("run", "tensorflow:1", "--device", "cpu"), "--device: only --train reads that"),
        (
            ("run", "tensorflow:1", "--feed", "plain", "--amp", "--channels-first", "--batch", "largest"),
            "--batch, --feed, --amp, --channels-first: only --train reads that",
        ),
        (("run", "tensorflow:1", "--autotune"), "--autotune: only --train reads that"),
        (("run", "pytorch:1", "--epochs", "3"), "    ngcdl run pytorch:1 --train cifar10-keras --epochs 3\n"),
        (("run", "--epochs", "3"), "    ngcdl run --train cifar10-keras --epochs 3\n"),
        (
            ("run", "-e", "A_KEY=hush", "pytorch:1", "--times", "3"),
            "    ngcdl run -e A_KEY pytorch:1 --train cifar10-94 --times 3\n",
        ),
        (("run", "tensorflow:1", "--times", "3"), "    ngcdl workloads\n"),
        (("run", "pytorch:1", "--epochs", "3", "--", "ls"), "if the command reads it, type it after --"),
        (("run", "tensorflow:1", "--engine", "local"), "not an image"),
        (("run", "cuda"), "no 'latest'. No engine here was asked for cuda:latest: No Docker engine answers"),
        (("run", "ubuntu"), "  On Docker Hub?\n      ngcdl run docker.io/ubuntu:latest\n"),
        (("run", "-e", "A=1", "ubuntu", "--", "ls", "ubuntu"), "run -e A=1 docker.io/ubuntu:latest -- ls ubuntu\n"),
        (("pull", "pytorch/pytorch"), "    ngcdl pull docker.io/pytorch/pytorch:latest\n"),
        (("compare", "docker.io/me/mine", "--", "ls"), "    ngcdl compare docker.io/me/mine:latest -- ls\n"),
        (("run", "cifar10"), "    ngcdl run --train cifar10"),
        (("compare", "cifar10"), "    ngcdl compare --train cifar10"),
        (("compare", "cuda", "--train", "cifar10"), "which release"),
        (("run", "TensorFlow:1-A", "--", "ls"), "lower case.\n  Did you mean tensorflow:1-A?\n"),
        (("run", "-e", "A_KEY=x", "TensorFlow:1-A", "--", "ls", "TOKEN=x"), "A_KEY tensorflow:1-A -- ls 'TOKEN=***'"),
        (("run", "-deA_KEY=hush", "--shm-size", "2g", "PyTorch"), "    ngcdl run -deA_KEY --shm-size 2g pytorch\n"),
        (("run", "https://nvcr.io/nvidia/pytorch:1"), "    ngcdl run nvcr.io/nvidia/pytorch:1\n"),
        (("images", "PyTorch"), "PyTorch: the repository must be lower case.\n  Did you mean pytorch?\n"),
        (("resolve", "PyTorch", "--json"), "    ngcdl resolve pytorch --json\n"),
        (("pull", "pytorh"), "    ngcdl pull pytorch\n"),
        (("compare", "pytorh", "--train", "cifar10"), "    ngcdl compare pytorch --train cifar10\n"),
        (("run", "tensorflow:1", "python", "train.py"), "    ngcdl run tensorflow:1 -- python train.py"),
        (("run", "tensorflow:1", "train.py"), "    ngcdl run tensorflow:1 -- python train.py\n"),
        (("run", "pytorch", "./train.sh", "1"), "    ngcdl run pytorch -- bash ./train.sh 1\n"),
        (("run", "tensorflow:1", "python", "train.py", "--epochs", "3"), "-- python train.py --epochs 3"),
        (
            ("run", "--gpus", "all", "-e", "A=1 2", "-v", "/tmp:/t", "tensorflow:1", "sh", "-i", "a b"),
            "    ngcdl run --gpus all -e 'A=1 2' -v /tmp:/t tensorflow:1 -- sh -i 'a b'\n",
        ),
        (("run", "tensorflow:1", "--gpus", "2", "sh", "--", "-c", "ls"), " tensorflow:1 --gpus 2 -- sh -c ls\n"),
        (("run", "tensorflow:1", "--train", "cifar10", "-w", "/x"), "its own working directory"),
        ((*TRAIN, "-v", "/a:/a", "-p", "80:80", "--shm-size", "2g"), "-v, -p, --shm-size: only for containers"),
        ((*TRAIN, "--cpus", "2", "--memory", "4g"), " none.\n  In an image:\n      ngcdl run pytorch --train cifar10 "),
        ((*TRAIN, "--ulimit", "stack=1", "-i", "--root", "--pull", "always"), "--ulimit, -i, --root, --pull: only"),
        (("run", "--name", "last-try", "--", "ls"), "--name last-try: must begin with a letter or"),
        (("run", "--time", "10", "--", "ls"), "    timeout 10m ngcdl run -- ls\n"),
        (("run", "--time=1-2:30", "--", "ls"), "    timeout 1590m ngcdl run -- ls\n"),
        (("run", "--time", "5:30", "--", "ls"), "    timeout 330s ngcdl run -- ls\n"),
        (("run", "--time", "2:00:00", "--", "ls"), "    timeout 120m ngcdl run -- ls\n"),
        (("run", "--time", "soon", "--", "ls"), "    timeout 30m ngcdl run -- ls\n"),
        (("run", "x:1", "--time=9", "--engine", "k8s"), "slurm does.\n      ngcdl run x:1 --time=9 --engine slurm\n"),
        (("compare", "x:1", "--batch", "largest", "--train", "lstm"), "ngcdl run x:1 --train lstm --batch largest\n"),
        (("pull", ""), "empty"),
        (("gpu", "--watch", "x"), "--watch x: must be a number.\n      ngcdl gpu --help\n"),
        (("_watch",), "RUN"),
        (("run", "\N{EM DASH}train", "cifar10"), "    ngcdl run --train cifar10\n"),
        (("run", "pytorch", "\N{EM DASH}", "ls", "-l"), "    ngcdl run pytorch -- ls -l\n"),
        (("show", "last", "\N{EN DASH}w", "1"), "    ngcdl show last --watch 1\n"),
        (("show", "\N{EN DASH}-watch=1"), "    ngcdl show --watch=1\n"),
        (("login", "\N{EM DASH}key", "hush"), "paste the key there:\n      ngcdl login\n"),
    ],
)
def test_what_can_t_be_meant_is_a_usage_error_with_what_was_wanted(
    house: House, argv: tuple[str, ...], said: str
) -> None:
    done = house.run(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.startswith("ngcdl: "), "in one voice"
    assert "hush" not in done.stderr
    assert house.store.ids() == [], "nothing was recorded"
    for line in re.findall(r"^ {6}(?:timeout \S+ )?ngcdl ([^|<\n]+)", done.stderr, re.MULTILINE):
        parse(shlex.split(line))


def parse(words: list[str]) -> None:
    """Raise typer's usage error for a line that its command does not take."""
    typed = mistyped._Line.of(words)
    own = words[: typed_words.own_end(words)]
    if own[-1] not in ("--help", "--version"):
        typed.command.make_context(typed.path, own[len(typed.path.split()) :])


def test_a_run_s_name_in_a_command_s_place_leads_on_to_its_record(house: House) -> None:
    house.store.create(Run("20261121-143222-lr3-a665ad", "finished", 1.0))
    for words in (("lr3",), ("runs", "lr3"), ("runs", "a665")):
        assert house.run(*words).stderr.endswith(f"ngcdl has no such command.\n      ngcdl show {words[-1]}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "ngcdl: check: IMAGE is missing.\n      ngcdl check pytorch\n"),
        (("pytorch:25.03-py3", "--jsn"), "  Did you mean --json?\n      ngcdl check pytorch:25.03-py3 --json\n"),
        (("pytorch:25.03-py3", "--gpu"), "--gpu: its value is missing: FACTS.\n"),
        (("nosuch",), "    ngcdl images nosuch\n"),
        (("pytorh", "--json"), "  Did you mean pytorch?\n      ngcdl check pytorch --json\n"),
        (("pytorch:25.03-py3", "--host", "foo=1"), "'foo=1' is not understood"),
    ],
)
def test_what_was_mistyped_is_no_verdict(house: House, words: tuple[str, ...], said: str) -> None:
    done = house.run("check", *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--password", "hush"),
        ("--password=hush",),
        ("-phush",),
        ("-u", "$oauthtoken", "-p", "hush", "nvcr.io"),
        ("--api-key", "hush"),
    ],
)
def test_a_key_typed_as_an_option_is_not_repeated_and_known_to_be_in_the_history(
    house: House, words: tuple[str, ...]
) -> None:
    done = house.run("login", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "what you typed is in your shell's history now.\n" in done.stderr
    assert "      ngcdl login\n" in done.stderr
    assert "hush" not in done.stderr


@pytest.mark.parametrize(
    "typed",
    [
        "show {} x",
        "logs {} x",
        "logs {} run-format-1",
        "report --markdown - {} x",
        "export {} slurm x",
        "runs diff {} x run-format-1",
        "runs rm --dry-run {} x",
        "logout {} ghcr.io",
        "check {} pytorh",
        "gpu {} x",
    ],
)
def test_what_follows_two_dashes_is_a_word_like_any_other_unless_a_command_can_stand_there(
    kept: House, typed: str
) -> None:
    plain, dashed = (kept.run(*typed.format(dashes).split()) for dashes in ("", "--"))
    assert (dashed.returncode, dashed.stdout) == (plain.returncode, plain.stdout)
    assert dashed.stderr.replace(" --\n", "\n").replace(" -- ", " ") == plain.stderr
