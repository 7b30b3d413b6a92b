"""A real Slurm on this machine: munged, slurmctld and a slurmd for each node, with ports, spool and state of its own.

All nodes are this host under other names; a GPU is a harmless character device, which Slurm counts, hands out and names
in CUDA_VISIBLE_DEVICES as it does a card. With accounting there are slurmdbd and MariaDB, too; with pyxis a plugin of
ours that takes NVIDIA pyxis' options, writes down what each task got, and runs the task on the host (pyxis.c).
Nothing is installed: the programs are Debian's, unpacked into the cache. NGCDL_LAB_SLURM=24.11 takes those of Debian
13, with that one's C library (and installs patchelf); else it is Debian 12's 22.05.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lab_parts import packages, processes
from lab_parts.where import PARTS, Lab, LabError, step, write_whole

# Slurm asks for CUDA_VISIBLE_DEVICES of character devices only; every node may have the same ones.
CARDS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")
PROGRAMS = (
    *("usr/sbin/munged", "usr/bin/munge", "usr/sbin/slurmctld-wlm", "usr/sbin/slurmd-wlm", "usr/sbin/slurmstepd-wlm"),
    *(f"usr/bin/{name}" for name in ("sbatch", "srun", "squeue", "scontrol", "scancel", "sacct", "sinfo", "salloc")),
)
NEWER = "24.11"
LIBRARIES, LOADER = "usr/lib/x86_64-linux-gnu", "ld-linux-x86-64.so.2"
ACCOUNTING = ("usr/sbin/slurmdbd", "usr/bin/sacctmgr", "usr/sbin/mariadbd")
# Time-outs are short, so that a node that is gone is noticed in 13 s. No limit is raised: that may not be allowed.
CONF = """ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
PluginDir={plugins}
PlugStackConfig={dir}/plugstack.conf
SlurmctldPort={port}
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/logs/slurmctld.txt
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmdLogFile={dir}/logs/slurmd-%n.txt
SlurmdSpoolDir={dir}/spool/%n
StateSaveLocation={dir}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000
ReturnToService=2
SlurmdTimeout=4
SlurmctldTimeout=10
MessageTimeout=5
TCPTimeout=1
InactiveLimit=0
KillWait=2
MinJobAge=3600
CompleteWait=0
JobRequeue=1
PropagateResourceLimits=NONE
GresTypes=gpu
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/{accounting}
"""
CONF_ACCOUNTING = """AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStorageTRES=gres/gpu
AccountingStoragePass={dir}/munge.sock
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={megabytes}"
PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO\n"
DBD_CONF = """AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
PluginDir={plugins}
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={dir}/slurmdbd.pid
LogFile={dir}/logs/slurmdbd.txt
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_lab
"""
START = '#!/bin/sh\nexport SLURM_CONF="{conf}"{libraries}\n'
SQL = ["--skip-name-resolve", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M"]
SQL += ["--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900", "--bind-address=127.0.0.1"]


class Cluster:
    """A cluster in a folder of its own. `bin` goes to the front of PATH: it has sbatch, srun and the others."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        nodes: int = 2,
        gpus: int = 1,
        accounting: bool = False,
        pyxis: bool = False,
        types: Sequence[str] = ("fake",),
    ) -> None:
        """`types` are what the nodes' GPUs are called, in turn."""
        if len(str(folder)) > 80:  # of a Unix socket's path
            raise LabError(f"{folder} is too long a path for the cluster's sockets")
        self.lab = Lab(folder, lab.cache)
        self.folder, self.nodes = folder, [f"n{number}" for number in range(1, nodes + 1)]
        self.gpus, self.accounting, self.pyxis = gpus, accounting, pyxis
        self.types = dict(zip(self.nodes, itertools.cycle(types)))

    def __enter__(self) -> Cluster:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def record(self) -> Path:
        """What each task was given of pyxis' options, a line each: job=1<tab>node=n1<tab>proc=0<tab>..."""
        return self.folder / "pyxis.tsv"

    def environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", "")
        return {"SLURM_CONF": str(self.conf), "PATH": f"{self.bin}:{path}"}

    def up(self) -> None:
        """Start it and wait until all nodes are idle."""
        with step(f"Slurm with {len(self.nodes)} nodes{', slurmdbd' if self.accounting else ''}"):
            for part in ("bin", "programs", "state", "spool", "logs"):
                (self.folder / part).mkdir(parents=True)
            self._programs()
            self._configure()
            self._munge()
            if self.accounting:
                self._accounting()
            self._start("slurmctld", [self._at("slurmctld"), "-D", "-c"], lambda: self._says("sinfo", "-h"))
            for name in self.nodes:
                self.start_node(name)
            self._idle(len(self.nodes))

    def down(self) -> None:
        """End all of it, jobs included, and remove the folder."""
        if self.conf.exists():
            self._says("scancel", "--user", str(os.geteuid()))
        for name in [*self.nodes, "slurmctld"]:
            processes.stop(self.lab, name, seconds=2)
        self._kill_steps()
        for name in ("slurmdbd", "mariadbd", "munged"):
            processes.stop(self.lab, name, seconds=5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_node(self, name: str) -> None:
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        command = [self._at("slurmd"), "-D", "-f", str(self.conf), "-N", name, "-d", self._at("slurmstepd")]
        self._start(name, command, lambda: True)

    def kill_node(self, name: str, announced: bool = False) -> None:
        """Let a node crash: its slurmd, its steps and their tasks go at once, without a word.

        slurmctld finds out after 13 s, or is told. Containers that an engine runs for the tasks stay.
        """
        pid = processes.pid_of(self.lab, name)
        if pid:
            os.kill(pid, signal.SIGKILL)
        self._kill_steps(name)
        if announced:
            self._run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=lost")

    def wait_idle(self, count: int | None = None) -> None:
        self._idle(len(self.nodes) if count is None else count)

    # -- its files ----------------------------------------------------------------------------------------------------

    def _programs(self) -> None:
        """Write what starts each program, with the libraries that lie beside it."""
        names = ["slurm", *(["slurm-accounting"] if self.accounting else [])]
        is_newer = os.environ.get("NGCDL_LAB_SLURM") == NEWER
        own = [packages.unpacked(self.lab, f"{name}-{NEWER}") for name in names] if is_newer else []
        others = [packages.unpacked(self.lab, name) for name in names]  # of the database with either
        self._roots = [*own, *others]
        self._plugins = ":".join(f"{root}/{LIBRARIES}/slurm-wlm" for root in own or others)
        with_others = f' LD_LIBRARY_PATH="{_libraries(others)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
        for path in (*PROGRAMS, *(ACCOUNTING if self.accounting else ())):
            root = next(root for root in self._roots if (root / path).exists())
            # Debian adds -wlm and links to it; a daemon that does not find its own name leaves the GPUs out
            link = self.folder / "programs" / path.rpartition("/")[2].removesuffix("-wlm")
            if root in own:
                _with_own_libraries(root / path, link, own)
            else:
                link.symlink_to(root / path)
            start = START.format(conf=self.conf, libraries="" if root in own else with_others)
            write_whole(self.bin / link.name, f'{start}exec {link} "$@"\n', 0o755)

    def _configure(self) -> None:
        host, port = socket.gethostname().partition(".")[0], _free_ports(3 + len(self.nodes))
        self._facts = {
            "dir": self.folder, "host": host, "user": _user(), "port": port[0], "plugins": self._plugins,
            "accounting": "slurmdbd" if self.accounting else "none",
        }  # fmt: skip
        self._db_port, self._sql_port = port[1], port[2]
        lines = CONF.format(**self._facts)
        if self.accounting:
            lines += CONF_ACCOUNTING.format(port=self._db_port, dir=self.folder)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        for number, name in enumerate(self.nodes):
            about = {"name": name, "host": host, "port": port[3 + number], "cpus": os.cpu_count()}
            gres = f" Gres=gpu:{self.types[name]}:{self.gpus}" if self.gpus else ""
            lines += NODE.format(**about, megabytes=int(memory * 0.4)) + gres + " State=UNKNOWN\n"
        write_whole(self.conf, lines + PARTITION)
        cards = [
            f"NodeName={name} Name=gpu Type={kind} File={card}\n"
            for name, kind in self.types.items()
            for card in CARDS[: self.gpus]
        ]
        write_whole(self.folder / "gres.conf", "".join(["AutoDetect=off\n", *cards]) if cards else "")
        write_whole(self.folder / "cgroup.conf", "CgroupPlugin=disabled\n" if self._release() >= 23 else "")
        plug = f"required {self._pyxis()} record={self.record}\n" if self.pyxis else ""
        write_whole(self.folder / "plugstack.conf", plug)

    def _release(self) -> int:
        said = subprocess.run([self._at("slurmctld"), "-V"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"(\d+)\.", said)
        if not found:
            raise LabError(f"slurmctld -V says {said!r}")
        return int(found[1])

    def _pyxis(self) -> Path:
        plugin = self.folder / "pyxis.so"
        packages.ensure_installed({"gcc": "gcc", "cc": "libc6-dev"})
        headers = f"-I{self._roots[0]}/usr/include"
        command = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", headers, "-o", str(plugin), str(PARTS / "pyxis.c")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"pyxis.c does not compile:\n{done.stderr[-1500:]}")
        return plugin

    # -- its daemons --------------------------------------------------------------------------------------------------

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self.folder.chmod(0o755)
        named = {"socket": "munge.sock", "key-file": key.name, "pid-file": "munge.pid", "log-file": "logs/munge.txt"}
        named["seed-file"] = "munge.seed"
        options = [f"--{option}={self.folder}/{name}" for option, name in named.items()]
        # --force: a parent that others may write in, such as /tmp, is no reason to refuse
        command = [self._at("munged"), "--foreground", "--force", "--num-threads=2", *options]
        self._start("munged", command, lambda: self._says("munge", "-S", f"{self.folder}/munge.sock", "-n"))

    def _accounting(self) -> None:
        password, data = secrets.token_hex(12), self.folder / "sql"
        root = self._roots[-1]
        made = subprocess.run(
            [root / "usr/bin/mariadb-install-db", "--no-defaults", f"--basedir={root}/usr", f"--datadir={data}",
             "--auth-root-authentication-method=normal", "--skip-test-db", f"--user={_user()}"],
            capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": f"{root}/usr/lib/x86_64-linux-gnu"},
        )  # fmt: skip
        if made.returncode:
            raise LabError(f"mariadb-install-db failed:\n{(made.stdout + made.stderr)[-1500:]}")
        first = self.folder / "sql.txt"
        user = "'slurm'@'127.0.0.1'"
        write_whole(
            first, f"CREATE USER {user} IDENTIFIED BY '{password}';\nGRANT ALL ON slurm_lab.* TO {user};\n", 0o600
        )
        places = [f"--datadir={data}", f"--socket={self.folder}/sql.sock", f"--pid-file={self.folder}/sql.pid"]
        places += [f"--port={self._sql_port}", f"--init-file={first}", f"--user={_user()}", f"--basedir={root}/usr"]
        places += [f"--lc-messages-dir={root}/usr/share/mysql"]
        command = [self._at("mariadbd"), "--no-defaults", *SQL, *places]
        self._start("mariadbd", command, lambda: _listens(self._sql_port))
        facts = {**self._facts, "port": self._db_port, "sql_port": self._sql_port, "password": password}
        write_whole(self.folder / "slurmdbd.conf", DBD_CONF.format(**facts), 0o600)
        self._start("slurmdbd", [self._at("slurmdbd"), "-D"], lambda: self._says("sacctmgr", "-n", "show", "cluster"))
        self._run("sacctmgr", "-i", "add", "cluster", "lab")

    def _start(self, name: str, command: list[str], ready: Callable[[], object]) -> None:
        processes.start(self.lab, name, command, lambda: bool(ready()), env={**os.environ, **self.environment()})

    def _at(self, name: str) -> str:
        return str(self.bin / name)

    def _says(self, name: str, *words: str) -> str | None:
        """Give what a program answers; None where it fails or does not answer."""
        try:
            done = subprocess.run([self._at(name), *words], capture_output=True, text=True, timeout=5)
        except subprocess.TimeoutExpired:
            return None
        return (done.stdout or " ") if done.returncode == 0 else None

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run([self._at(name), *words], capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise LabError(f"{name} {' '.join(words)} failed: {(done.stderr or done.stdout).strip()[-500:]}")

    def _idle(self, count: int, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while len(set((self._says("sinfo", "-h", "-N", "-t", "idle", "-o", "%N") or "").split())) < count:
            if time.monotonic() > until:
                raise LabError(f"not {count} nodes are idle after {seconds:.0f} s:\n{self._says('sinfo', '-N', '-l')}")
            time.sleep(0.1)

    def _kill_steps(self, node: str | None = None) -> None:
        """Kill this cluster's slurmstepd's, which would report their tasks' end, and then the tasks."""
        found = list(_of_cluster(self.conf, node))
        for pid in [pid for pid, is_step in found if is_step] + [pid for pid, is_step in found if not is_step]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _libraries(roots: Sequence[Path]) -> str:
    return ":".join(f"{root}/{LIBRARIES}{sub}" for root in roots for sub in ("", "/slurm-wlm"))


def _with_own_libraries(program: Path, copy: Path, roots: Sequence[Path]) -> None:
    """Copy a program that runs with the C library of its own Debian, and starts others with this machine's."""
    packages.ensure_installed({"patchelf": "patchelf"})
    shutil.copy2(program, copy)
    loader = f"{roots[0]}/{LIBRARIES}/{LOADER}"
    subprocess.run(
        ["patchelf", "--set-interpreter", loader, "--force-rpath", "--set-rpath", _libraries(roots), str(copy)],
        check=True,
    )


def _of_cluster(conf: Path, node: str | None) -> Iterator[tuple[int, bool]]:
    """Yield (pid, is it a slurmstepd?) of the steps and tasks of a cluster, or of one node of it."""
    mine = f"SLURM_CONF={conf}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            program = (folder / "cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2]
            if mine not in environment:
                continue
            is_step = program.startswith(b"slurmstepd")
            is_task = any(entry.startswith(b"SLURM_JOB_ID=") for entry in environment)
            if not (is_step or is_task):
                continue
            if node and f"SLURMD_NODENAME={node}".encode() not in environment and not _holds(folder, node):
                continue
        except OSError:
            continue
        yield int(folder.name), is_step


def _holds(process: Path, node: str) -> bool:
    """A slurmstepd names its node nowhere but in the files of that slurmd which it holds open."""
    marks = (f"/slurmd-{node}.txt", f"/spool/{node}/")
    for link in (process / "fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if any(mark in target for mark in marks):
            return True
    return False


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Give ports that nobody listens on; they stay free unless somebody is quicker."""
    with_sockets = [socket.socket() for _ in range(count)]
    try:
        for one in with_sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in with_sockets]
    finally:
        for one in with_sockets:
            one.close()
