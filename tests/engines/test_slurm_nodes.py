"""What Slurm reports of its nodes, as in releases 22.05 and 24.11, and how a run is kept off some of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from stand_ins import says, stand_in

from ngcdl.engines.slurm import SlurmEngine, nodes
from ngcdl.engines.values import Node
from ngcdl.errors import BadOption
from ngcdl.spec import Placement

V100 = Node("n1", "amd64", card="v100", gpus=4)
H100 = Node("n2", "amd64", card="h100", gpus=8)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for a Slurm of four nodes in two partitions."""
    for name in ("SBATCH_PARTITION", "SBATCH_CONSTRAINT", "SBATCH_RESERVATION", "SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    says(tmp_path, "sinfo", "main*\nold")
    says(tmp_path, "scontrol", SAID)
    return tmp_path


def test_the_default_partition_s_nodes_are_told_with_their_cards(programs: Path) -> None:
    found = nodes.with_gpus(Placement(), 1)
    assert found == (
        Node("n1", "amd64", card="h100", gpus=8),
        Node("n2", "arm64", card="nvidia_gh200_480gb", gpus=1),
        Node("n3", card="a100_1g.5gb", gpus=7),
        Node("n3", card="a100", gpus=3),
    )
    assert nodes.with_gpus(Placement(), 8) == (found[0], found[2], found[3]), "n3 has ten, of two kinds"
    assert nodes.with_gpus(Placement(), 0) == (Node("n1", "amd64"), Node("n2", "arm64"), Node("n3"))


def test_an_architecture_that_hardly_any_image_is_made_for_is_not_taken_for_unknown(programs: Path) -> None:
    says(programs, "scontrol", "NodeName=n1 Arch=ppc64le CoresPerSocket=1 Gres=gpu:v100:4 Partitions=main")
    assert nodes.with_gpus(Placement(), 1) == (Node("n1", "ppc64le", card="v100", gpus=4),)


@pytest.mark.parametrize(
    ("placement", "variable", "names"),
    [
        (Placement(partition="old"), None, {"n2", "n4"}),
        (Placement(partition="old,main"), None, {"n1", "n2", "n3", "n4"}),
        (Placement(partition="main"), "old", {"n1", "n2", "n3"}),
        (Placement(), "old", {"n2", "n4"}),
        (Placement(options=("--partition=old",)), "main", {"n2", "n4"}),
        (Placement(options=("-pold",)), None, {"n2", "n4"}),
        (Placement(options=("-p old",)), None, {"n2", "n4"}),
        (Placement(partition="none"), None, set()),
    ],
)
def test_the_nodes_are_those_of_the_partition_that_sbatch_would_take(
    programs: Path, monkeypatch: pytest.MonkeyPatch, placement: Placement, variable: str | None, names: set[str]
) -> None:
    if variable:
        monkeypatch.setenv("SBATCH_PARTITION", variable)
    assert {node.name for node in nodes.with_gpus(placement, 1)} == names


@pytest.mark.parametrize(
    ("options", "sbatch", "of_all", "is_meant"),
    [
        (("--clusters=other",), None, None, False),
        (("-Mother",), None, "lab", False),
        (("-M other",), None, "other", True),
        ((), "other", None, False),
        ((), None, "other", True),
        ((), None, "other,lab", False),
        ((), None, "all", False),
        (("--cluster-constraint=big",), None, None, True),
    ],
)
def test_a_cluster_that_only_sbatch_would_speak_to_is_refused(
    programs: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...],
    sbatch: str | None, of_all: str | None, is_meant: bool,
) -> None:  # fmt: skip
    for name, value in (("SBATCH_CLUSTERS", sbatch), ("SLURM_CLUSTERS", of_all)):
        if value:
            monkeypatch.setenv(name, value)
    placement = Placement(options=options, container="docker")
    if is_meant:
        assert len(nodes.with_gpus(placement, 1)) == 4
        assert SlurmEngine(programs).placed(placement)
        return
    for choose in (lambda: nodes.with_gpus(placement, 1), lambda: SlurmEngine(programs).placed(placement)):
        with pytest.raises(BadOption, match="squeue and scancel"):
            choose()


@pytest.mark.parametrize("word", [
    "--array=1-4", "--arr 1-4", "-a1-4", "--output=x", "-o x", "--error=x", "-e x", "--wait", "-W", "--wrap=x",
    "--test-only",
])  # fmt: skip
def test_an_option_with_which_a_job_can_t_be_followed_is_refused(programs: Path, word: str) -> None:
    with pytest.raises(BadOption, match=re.escape(f"--sbatch={word}: ")) as refused:
        SlurmEngine(programs).placed(Placement(options=("--exclusive", word), container="docker"))
    assert "ngcdl export slurm RUN" in refused.value.hint


@pytest.mark.parametrize(
    "word", ["--wait-all-nodes=1", "--export=ALL", "--open-mode=truncate", "-A a", "-w n1", "--overcommit", "x"]
)
def test_an_option_that_only_looks_like_one_of_those_is_not(programs: Path, word: str) -> None:
    assert SlurmEngine(programs).placed(Placement(options=(word,), container="docker"))


FREE = "NodeName=n1 CPUAlloc=0 CPUEfctv=124 CPUTot=128 CPULoad=0.01 Gres=gpu:h100:8 Partitions=main"


@pytest.mark.parametrize(
    ("said", "gpus", "cpus"),
    [
        (FREE, 8, 15),
        (f"{FREE}\n{FREE.replace('124', '96')}\n{FREE.replace('h100:8', 'h100:2').replace('124', '8')}", 8, 12),
        (f"{FREE}\n{FREE.replace('124', '96')}\n{FREE.replace('h100:8', 'h100:2').replace('124', '8')}", 2, 4),
        (FREE.replace(" CPUEfctv=124", ""), 1, 16),
        (FREE, 0, 15),
        (FREE.replace("gpu:h100:8", "(null)"), 0, 124),
        (FREE.replace("124", "4"), 8, 1),
        (FREE, 9, None),
        (FREE.replace("Partitions=main", "Partitions=old"), 1, 15),
        ("", 1, None),
    ],
)
def test_a_gpu_s_share_is_the_least_of_the_nodes_that_have_enough_less_what_a_node_keeps_for_itself(
    programs: Path, said: str, gpus: int, cpus: int | None
) -> None:
    says(programs, "scontrol", said)
    assert nodes.cpus_per_gpu(Placement(), gpus) == cpus


@pytest.mark.parametrize(
    ("placement", "gpus", "cpus"),
    [
        (Placement(), 4, 10),
        (Placement(), 8, 16),
        (Placement(gpu_type="v100"), 4, 10),
        (Placement(gpu_type="a100"), 4, 16),
        (Placement(avoid=("v1",)), 4, 16),
        (Placement(options=("--constraint=v100",)), 4, 10),
        (Placement(options=("--gres=gpu:v100:4",)), 4, 10),
    ],
)
def test_a_job_asks_for_no_more_processors_than_each_node_has_that_may_take_it(
    programs: Path, placement: Placement, gpus: int, cpus: int
) -> None:
    a100, v100 = (
        FREE.replace("124", "128").replace("h100", "a100"),
        FREE.replace("124", "40").replace("h100:8", "v100:4"),
    )
    says(programs, "scontrol", f"{a100} AvailableFeatures=(null)\n{v100.replace('n1', 'v1')} AvailableFeatures=v100")
    assert nodes.cpus_per_gpu(placement, gpus) == cpus


@pytest.mark.parametrize(
    ("words", "nodes_wanted", "cpus"),
    [
        (("--exclude=old",), 1, 16),
        (("-xold,g1",), 1, 16),
        (("--exclude=./names",), 1, 2),
        (("--nodelist=g1",), 1, 16),
        (("-w g1",), 2, 2),
        (("--nodelist=g[1-2]",), 2, 16),
        (("--constraint=big",), 1, 16),
        (("-C ib&big",), 1, 16),
        (("--constraint=none|big",), 1, 16),
        (("--constraint=ib",), 1, 2),
        (("--constraint=[big|none]",), 1, 16),
        (("--constraint=ib&(big|none)",), 1, 16),
        (("--constraint=(none|(ib&big))",), 1, 16),
        (("--constraint=none|ib&big",), 1, 16),
        (("--constraint=big&none|ib",), 1, 2),
        (("--constraint=[big*1&ib*1]",), 1, 2),
        (("--constraint=big*1",), 1, 2),
        (("--gres=gpu:a100:1",), 1, 16),
        (("--gpus-per-node=a100:1",), 1, 16),
        (("-Gk80:1",), 1, 2),
        (("--gres=gpu:a100:1", "--gres=gpu:1"), 1, 2),
        (("--gres=gpu:1,disk:2",), 1, 2),
        (("--prefer=big",), 1, 2),
        (("--reservation=class",), 1, 16),
        (("--reservation class,class",), 2, 16),
        (("--reservation=class,licences",), 1, 2),
    ],
)
def test_a_node_that_somebody_does_not_want_cuts_no_processors_of_his_job(
    programs: Path, words: tuple[str, ...], nodes_wanted: int, cpus: int
) -> None:
    node = "NodeName={} CPUTot={} AvailableFeatures={} Gres=gpu:{} State=IDLE Partitions=main"
    there = (("g1", 128, "big,ib", "a100:8"), ("g2", 128, "big,ib", "a100:8"), ("old", 8, "ib", "k80:4"))
    lines = "\n".join(node.format(*one) for one in there)
    hosts = 'case $3 in "g[1-2]") echo g1; echo g2;; *) echo "$3" | tr , "\\n";; esac'
    held = 'case $3 in class) echo "Nodes=g[1-2] NodeCnt=2";; *) echo "Nodes=(null) NodeCnt=0";; esac'
    cases = f"hostnames) {hosts};; reservation) {held};; *) echo '{lines}';;"
    stand_in(programs, "scontrol", f"case $2 in {cases} esac")
    assert nodes.cpus_per_gpu(Placement(nodes_wanted, options=words), 1) == cpus


@pytest.mark.parametrize(
    ("words", "cpus"), [((), 16), (("-C ib",), 2), (("--constraint=big",), 16), (("--constraint=none",), None)]
)
def test_a_constraint_in_the_shell_s_variable_counts_unless_one_was_typed(
    programs: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], cpus: int | None
) -> None:
    monkeypatch.setenv("SBATCH_CONSTRAINT", "big")
    node = "NodeName={} CPUTot={} AvailableFeatures={} Gres=gpu:8 State=IDLE Partitions=main"
    says(programs, "scontrol", "\n".join(node.format(*one) for one in (("g1", 128, "big,ib"), ("old", 16, "ib"))))
    assert nodes.cpus_per_gpu(Placement(options=words), 1) == cpus


@pytest.mark.parametrize(
    ("state", "nodes_wanted", "cpus"),
    [
        ("DOWN+DRAIN", 1, 16),
        ("DOWN*+NOT_RESPONDING", 1, 16),
        ("MIXED+DRAIN", 2, 16),
        ("IDLE+FAIL", 1, 16),
        ("DOWN+DRAIN", 3, 2),
        ("IDLE+CLOUD+POWERED_DOWN", 1, 2),
        ("ALLOCATED", 1, 2),
    ],
)
def test_a_node_that_is_down_or_drained_cuts_nobody_s_processors_unless_too_few_others_are_left(
    programs: Path, state: str, nodes_wanted: int, cpus: int
) -> None:
    node = "NodeName={} CPUTot={} Gres=gpu:{} State={} Partitions=main Reason=was DOWN [root@2026-11-21T12:00:00]"
    there = (("g1", 128, "a100:8", "IDLE"), ("g2", 128, "a100:8", "MIXED"), ("old", 8, "k80:4", state))
    says(programs, "scontrol", "\n".join(node.format(*one) for one in there))
    assert nodes.cpus_per_gpu(Placement(nodes_wanted), 1) == cpus


def test_a_partition_that_shares_its_nodes_gives_no_more_processors_than_it_may(programs: Path) -> None:
    partition = "PartitionName={0} MaxNodes=UNLIMITED MaxCPUsPerNode={1} Nodes=n1"
    limits = "\n".join(partition.format(*each) for each in (("main", 32), ("old", 8), ("more", "UNLIMITED")))
    lines = FREE.replace("Partitions=main", "Partitions=main,old,more")
    stand_in(programs, "scontrol", f"case $2 in partition) echo '{limits}';; *) echo '{lines}';; esac")
    found = {name: nodes.cpus_per_gpu(Placement(partition=name), 8) for name in ("main", "old", "more", "main,old")}
    assert found == {"main": 4, "old": 1, "more": 15, "main,old": 1}


@pytest.mark.parametrize(
    ("default", "own", "of_all", "gpus", "cpus"),
    [
        ("main*", "(null)", "(null)", 8, 15),
        ("main*", "DefCpuPerGPU=6,DefMemPerGPU=4096", "(null)", 8, 6),
        ("main*", "(null)", "DefMemPerGPU=4096,DefCpuPerGPU=7", 8, 7),
        ("main*", "DefCpuPerGPU=6", "DefCpuPerGPU=4", 8, 6),
        ("main*", "DefCpuPerGPU=20", "(null)", 8, 15),
        ("main*", "DefCpuPerGPU=6", "(null)", 0, 15),
        ("main", "DefCpuPerGPU=6", "DefCpuPerGPU=4", 8, 4),
    ],
)
def test_a_gpu_comes_with_no_more_processors_than_the_site_gives_it_by_default(
    programs: Path, default: str, own: str, of_all: str, gpus: int, cpus: int
) -> None:
    cases = f"partition) echo 'PartitionName=main JobDefaults={own} MaxCPUsPerNode=UNLIMITED';;"
    cases += f"config) echo 'JobDefaults             = {of_all}';; *) echo '{FREE}';;"
    stand_in(programs, "scontrol", f"case $2 in {cases} esac")
    says(programs, "sinfo", default)
    assert nodes.cpus_per_gpu(Placement(), gpus) == cpus


@pytest.mark.parametrize(
    ("placement", "variable", "cpus"),
    [
        (Placement(), None, 2),
        (Placement(), "gpu", 12),
        (Placement(partition="gpu"), "main", 12),
        (Placement(partition="main", options=("-p gpu",)), None, 12),
        (Placement(partition="none"), None, None),
        (Placement(cpus=5), None, 5),
    ],
)
def test_processors_are_shared_out_of_the_partition_that_the_job_goes_to(
    programs: Path, monkeypatch: pytest.MonkeyPatch, placement: Placement, variable: str | None, cpus: int | None
) -> None:
    gpu = "NodeName=n9 CPUTot=96 Gres=gpu:h100:8 Partitions=gpu"
    says(programs, "scontrol", f"NodeName=n1 CPUTot=16 Gres=gpu:8 Partitions=main\n{gpu}")
    if variable:
        monkeypatch.setenv("SBATCH_PARTITION", variable)
    assert SlurmEngine(programs).with_cpus(placement, 8).cpus == cpus


def test_where_the_default_partition_lacks_the_gpus_and_a_plugin_of_the_site_s_may_choose_another_that_one_counts(
    programs: Path,
) -> None:
    lines = f"{FREE}\n{FREE.replace('gpu:h100:8', '(null)')}".replace("main", "gpu", 1)
    partition = "PartitionName=gpu MaxCPUsPerNode=64\nPartitionName=main MaxCPUsPerNode=8"
    stand_in(programs, "scontrol", f"case $2 in partition) echo '{partition}';; *) echo '{lines}';; esac")
    assert nodes.cpus_per_gpu(Placement(), 8) == 8
    assert nodes.cpus_per_gpu(Placement(), 0) == 8, "the default one has nodes for this"
    assert nodes.cpus_per_gpu(Placement(partition="main"), 8) is None, "this one was named"
    assert nodes.with_gpus(Placement(), 8) == (), "whether there is such a plugin is not known"


def test_without_a_default_partition_all_nodes_count(programs: Path) -> None:
    says(programs, "sinfo", "main\nold")
    assert {node.name for node in nodes.with_gpus(Placement(), 1)} == {"n1", "n2", "n3", "n4"}


def test_one_type_of_gpus_is_asked_for_else_nodes_are_left_out_by_name() -> None:
    a100 = replace(H100, name="n3", card="a100")
    assert nodes.kept_off(Placement(), [V100], [H100]) == Placement(gpu_type="h100")
    assert nodes.kept_off(Placement(), [V100], [H100, a100]) == Placement(avoid=("n1",))
    untyped = replace(H100, card=None)
    assert nodes.kept_off(Placement(), [V100], [untyped]) == Placement(avoid=("n1",))
    arm = replace(H100, name="n5", architecture="arm64")
    assert nodes.kept_off(Placement(), [arm], [H100]) == Placement(avoid=("n5",)), "of the same type"


def test_a_node_with_both_is_left_out_where_enough_others_are_left() -> None:
    both = replace(H100, name="n1")
    a100 = replace(H100, name="n3", card="a100")
    assert nodes.kept_off(Placement(), [V100], [both, a100]) == Placement(avoid=("n1",))
    assert nodes.kept_off(Placement(nodes=2), [V100], [both, a100]) is None


@pytest.mark.parametrize("word", ["--gres=gpu:a100:2", "--exclude=n1", "-wn2", "--constraint=new", "--gpus-per-node=1"])
def test_what_somebody_chose_himself_is_left_as_it_is(word: str) -> None:
    assert nodes.kept_off(Placement(options=(word,)), [V100], [H100]) is None
    assert nodes.kept_off(Placement(options=("--comment=mine",)), [V100], [H100]) is not None


# From a real 22.05.8 and a 24.11.5, with other names, Gres and partitions; n3 as one that never came up.
SAID = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=2.40 AvailableFeatures=driver550 \
ActiveFeatures=driver550 Gres=gpu:h100:8(S:0-1) NodeAddr=127.0.0.1 NodeHostName=vm Port=51537 Version=22.05.8 OS=Linux \
6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=9642 AllocMem=0 FreeMem=12622 Sockets=2 Boards=1 State=IDLE \
ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main  BootTime=2026-11-21T11:50:03 \
CfgTRES=cpu=2,mem=9642M,billing=2,gres/gpu:k80=9 AllocTRES= CapWatts=n/a ExtSensorsTemp=n/s
NodeName=n2 Arch=aarch64 CoresPerSocket=1 CPUAlloc=0 Gres=gpu:nvidia_gh200_480gb:1 State=IDLE Partitions=old,main
NodeName=n3 CoresPerSocket=1 CPUAlloc=0 Gres=gpu:a100_1g.5gb:7,gpu:a100:3 State=DOWN*+NOT_RESPONDING Partitions=main \
Reason=Gres=gpu:k80:9 Partitions=old [root@2026-11-21T12:00:00]
NodeName=n4 Arch=x86_64 CoresPerSocket=1 Gres=gpu:2 State=IDLE Partitions=old
NodeName=n5 Arch=x86_64 CoresPerSocket=1 Gres=(null) State=IDLE Partitions=old"""


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--gres=gpu:2",), 2),
        (("--gres gpu:1g.10gb:3(S:0),disk:9",), 3),
        (("--gres=gpu:a100:2,gpu:v100:1",), 3),
        (("--gpus-per-node=1", "-Ga100:4"), 2),
        (("--gpus=3",), None),  # of two nodes
        (("--exclusive", "--gres=gpu:a100,gpu:1g.10gb,gpu:v100:4"), 6),
        (("--gres=gpu",), 1),
        (("--gpus-per-node=a100,v100:4",), 5),
        (("--gres=shard:4",), None),
    ],
)
def test_gpus_that_were_typed_for_sbatch_are_as_many_as_the_run_has(
    programs: Path, words: tuple[str, ...], count: int | None
) -> None:
    says(programs, "scontrol", "")
    engine, placement = SlurmEngine(programs), Placement(2, "gpu", options=words)
    if count:
        with pytest.raises(BadOption, match=f"would have {count} GPUs on each node, and the run is for 8") as refused:
            engine.with_cpus(placement, 8)
        assert f"--gpus {count} --sbatch={words[-1]}" in refused.value.hint
    for fine in (count or 8, 0):  # without GPUs the image decides
        engine.with_cpus(placement, fine)
