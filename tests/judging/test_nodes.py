"""An image is judged for a cluster's nodes before submission: refused, kept off some nodes, or only warned about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ngcdl import settings
from ngcdl.engines.slurm.nodes import kept_off
from ngcdl.engines.values import Node
from ngcdl.errors import ClusterForbidden, EngineError, ImageUnfit, NotAsked
from ngcdl.judging import imagefacts, nodes
from ngcdl.judging.imagefacts import Found
from ngcdl.spec import ImageRef, Placement

NOWHERE = "127.0.0.1:1"  # nothing listens there: the catalogue is used
V100 = Node("n1", "amd64", card="v100", gpus=4)
H100 = Node("n2", "amd64", card="h100", gpus=8)
ANYWHERE = Placement()
NEW = ImageRef.parse("pytorch:26.07-py3", NOWHERE)  # runs on Turing and newer


@dataclass(frozen=True)
class Cluster:
    told: tuple[Node, ...] | EngineError

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        if isinstance(self.told, EngineError):
            raise self.told
        return self.told

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        return kept_off(placement, bad, good)


@pytest.fixture
def config(tmp_path: Path) -> settings.Settings:
    return settings.load({"HOME": str(tmp_path), "NGCDL_REGISTRY": NOWHERE})


def known(ref: ImageRef, config: settings.Settings) -> Found:
    return imagefacts.look_up(ref, config.cache, "amd64", offline=True)


def before(
    config: settings.Settings,
    *told: Node,
    place: Placement = ANYWHERE,
    ref: ImageRef = NEW,
    on_cpu: bool = False,
    force: bool = False,
) -> tuple[Placement, tuple[str, ...]]:
    cluster = Cluster(told)
    there = nodes.ask(cluster, place, 1)
    return nodes.keep_off_unfit_nodes(
        ref, known(ref, config), there, cluster, place, config, on_cpu=on_cpu, force=force
    )


def test_an_image_that_no_node_can_run_is_refused_with_the_newest_that_has_kernels_for_their_cards(
    config: settings.Settings,
) -> None:
    with pytest.raises(ImageUnfit) as caught:
        before(config, V100, replace(V100, name="n7"))
    error = caught.value
    assert error.message.startswith(f"{NEW} can't run on the cluster's nodes: n1, n7 (v100): the image")
    assert error.newest
    assert error.newest.startswith(f"{NOWHERE}/nvidia/pytorch:2")
    assert "by its kernels (the driver there is not known):" in error.hint
    assert f"ngcdl check {NEW} --host cc=7.0,brand=tesla,arch=amd64" in error.hint
    assert "ngcdl run ... --force" in error.hint
    assert "--gpus none" in error.hint


def test_where_the_driver_is_told_it_is_judged_too(config: settings.Settings) -> None:
    with pytest.raises(ImageUnfit, match=r"driver 470\.57\.02 is too old") as caught:
        before(config, replace(H100, driver="470.57.02", card="NVIDIA-H100-80GB-HBM3", capability="9.0"))
    assert "by its kernels" not in caught.value.hint
    assert "--host driver=470.57.02,cc=9.0,brand=tesla,arch=amd64" in caught.value.hint
    assert before(config, replace(H100, driver="615.61")) == (Placement(), ())


def test_a_run_is_kept_off_the_nodes_that_can_t_run_its_image(config: settings.Settings) -> None:
    place, lines = before(config, V100, H100, place=Placement(account="mine"))
    assert place == Placement(account="mine", gpu_type="h100")
    assert lines[0].startswith(f"n1 (v100) can't run {NEW}: ")
    assert lines[1] == "the run is kept off them"
    a100 = replace(H100, name="n3", card="a100")
    assert before(config, V100, H100, a100)[0] == Placement(avoid=("n1",))


def test_nodes_that_are_too_few_are_as_none(config: settings.Settings) -> None:
    with pytest.raises(ImageUnfit, match="can't run on more than 1 of the cluster's nodes: n1 "):
        before(config, V100, H100, place=Placement(nodes=2))


def test_force_goes_on_everywhere_and_says_what_to_expect(config: settings.Settings) -> None:
    place, (line,) = before(config, V100, force=True)
    assert place == Placement()
    assert line.endswith("Going on because of --force.")
    place, lines = before(config, V100, H100, force=True)
    assert place == Placement()
    assert lines[1] == "nothing keeps the run off them"


def test_nodes_that_somebody_chose_are_his_and_the_others_are_named(config: settings.Settings) -> None:
    typed = Placement(options=("--nodelist=n1",))
    place, lines = before(config, V100, H100, place=typed)
    assert place == typed
    assert lines[:2] == (lines[0], "nothing keeps the run off them")


@pytest.mark.parametrize(
    "node", [Node("n1"), Node("n1", "amd64", card="fake", gpus=1), replace(H100, architecture=None)]
)
def test_what_is_not_known_refuses_nothing_and_is_said_in_a_line(config: settings.Settings, node: Node) -> None:
    place, (line,) = before(config, node)
    assert place == Placement()
    assert "unknown" in line
    assert line.startswith("n")


def test_on_the_cpu_of_a_node_nothing_but_its_processor_counts(config: settings.Settings) -> None:
    assert before(config, replace(V100, card=None), on_cpu=True) == (Placement(), ())
    old = ImageRef.parse("tensorflow:18.01-py2", NOWHERE)
    with pytest.raises(ImageUnfit, match="not for arm64") as caught:
        before(config, Node("n1", "arm64"), ref=old, on_cpu=True)
    assert "--gpus none" not in caught.value.hint


def test_a_cluster_that_does_not_tell_its_nodes_is_a_line_and_the_placement_stays(config: settings.Settings) -> None:
    cluster, place = Cluster(ClusterForbidden('nodes is forbidden: User "me" cannot list it')), Placement(avoid=("n9",))
    told = nodes.ask(cluster, place, 1)
    assert told.architecture == "amd64"
    kept, (line,) = nodes.keep_off_unfit_nodes(NEW, known(NEW, config), told, cluster, place, config)
    assert kept == place
    assert line.startswith(f"it is not known whether the cluster's nodes can run {NEW}: Kubernetes said: nodes is ")


def test_what_is_not_known_of_an_image_is_left_to_those_who_look_for_its_digest(config: settings.Settings) -> None:
    cluster = Cluster((V100,))
    told = nodes.ask(cluster, Placement(), 1)
    nothing = NotAsked(NOWHERE, "x")
    assert nodes.keep_off_unfit_nodes(NEW, nothing, told, cluster, Placement(), config) == (Placement(), ())


def test_an_earlier_choice_is_made_anew_and_only_some_of_many_nodes_are_named(config: settings.Settings) -> None:
    many = [replace(V100, name=f"v{number}") for number in range(64)]
    place, lines = before(config, *many, H100, place=Placement(gpu_type="k80", avoid=("n9",)))
    assert place == Placement(gpu_type="h100")
    assert lines[0].startswith("v0, v1, v2, v3 and 60 more (v100) can't run")


def test_most_nodes_processor_is_the_one_that_the_registry_is_asked_for() -> None:
    arm = Node("g1", "arm64")
    assert nodes.ask(Cluster((arm, replace(arm, name="g2"), V100, Node("n9"))), Placement(), 0).architecture == "arm64"
