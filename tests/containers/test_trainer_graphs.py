"""How a step is recorded as a CUDA graph. Without a GPU a stand-in replaces torch.cuda: it computes nothing, and treats
streams, memory and random numbers as PyTorch's CUDAGraph.cpp and CUDAGeneratorImpl.cpp do."""

from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from own_process import places

pytestmark = pytest.mark.torch
GIB = 2**30


class Chance:
    """A generator as in PyTorch until 2026: once told that a recording begins, it draws only within that recording,
    until told that it has ended. It can share another's state; draws in a recording don't advance the state."""

    is_recording = False

    def __init__(self, device=None):
        self.state = {"seed": 67280421310721, "recorded": False, "drawn": 0}

    def manual_seed(self, seed):
        self.state.update(seed=seed, drawn=0)

    def initial_seed(self):
        return self.state["seed"]

    def graphsafe_set_state(self, other):
        self.state = other.state

    def draw(self):
        if self.state["recorded"] and not self.is_recording:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        self.state["drawn"] += not self.is_recording
        return self.state["seed"], self.state["drawn"]


class Card:
    """A stand-in for torch.cuda with a card of this size. A recording that fails is not reported to the generator."""

    def __init__(self, whole=16 * GIB, free=16 * GIB, reserved=0, most=0, **has):
        self.default_generators, self.streams, self.on, self.recorded_on = (Chance(),), 0, 0, []
        self.workspaces = {0: "ordinary memory", 1: "ordinary memory"}  # cuBLAS's, by stream
        self.get_device_properties = lambda _: SimpleNamespace(total_memory=whole, **has)
        self.mem_get_info = lambda: (free, whole)
        self.memory_reserved, self.max_memory_allocated = (lambda: reserved), (lambda: most)

    CUDAGraph = SimpleNamespace
    graph_pool_handle = current_device = staticmethod(lambda: 0)

    def Stream(self):  # noqa: N802
        self.streams += 1
        return self.streams

    def current_stream(self):
        return self.on

    def multiply(self):
        """Return the workspace used: like cuBLAS, this stream's, or else a new one."""
        self.workspaces.setdefault(self.on, "the graph's" if self.default_generators[0].is_recording else "ordinary")
        return self.workspaces[self.on]

    def set_stream(self, stream):
        self.on = stream

    @contextmanager
    def graph(self, graph, pool, stream):
        before, self.on, chance = self.on, stream, self.default_generators[0]
        self.recorded_on.append(stream)
        chance.state["recorded"] = chance.is_recording = True
        try:
            yield
        except RuntimeError as error:  # neither the stream nor the generator is reset
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture") from error
        finally:
            chance.is_recording = False
        chance.state["recorded"], self.on, graph.replay = False, before, "played"


@pytest.fixture
def on_a(torch, monkeypatch):
    """Make a Recorder on this card."""
    from trainer.frameworks.pytorch import graphs

    def made(card, fraction=None):
        held = SimpleNamespace(_cuda_clearCublasWorkspaces=card.workspaces.clear)
        monkeypatch.setattr(graphs, "torch", SimpleNamespace(cuda=card, Generator=Chance, _C=held))
        return graphs.Recorder(fraction)

    return made


def fail():
    raise RuntimeError("operation not permitted when stream is capturing")


def test_a_step_is_recorded_on_the_stream_of_the_steps_before_it(on_a):
    card = Card()
    recorder = on_a(card)
    assert recorder.recorded(lambda: None) == "played"
    assert (card.recorded_on, card.on) == ([recorder.stream], 0)


@pytest.mark.parametrize("step", [lambda: None, fail])
def test_a_recorded_step_multiplies_in_memory_of_its_own_which_nothing_else_uses_later(on_a, step):
    card, used = Card(), []
    recorder = on_a(card)

    def multiplies():
        used.append(card.multiply())
        step()

    with suppress(RuntimeError):
        recorder.recorded(multiplies)
    assert used == ["the graph's"]
    assert card.multiply() == "ordinary"


@pytest.mark.parametrize("place", places())
def test_after_a_recording_that_failed_chance_draws_as_at_the_steps_begin(torch, on_a, place):
    if place == "gpu":
        from trainer.frameworks.pytorch.graphs import Recorder

        recorder, seed, draw = Recorder(), torch.manual_seed, lambda: torch.rand(3, device="cuda").tolist()
    else:
        recorder = on_a(card := Card())
        seed, draw = card.default_generators[0].manual_seed, card.default_generators[0].draw

    def fails():
        draw()
        fail()

    seed(7)
    wanted = draw()
    seed(7)
    with pytest.raises(RuntimeError):
        recorder.recorded(fails)
    assert draw() == wanted
    assert place == "gpu" or card.on == 0, "and on the stream that it was on"


def test_a_recording_that_failed_says_so_where_pytorch_cannot_free_its_chance(on_a, monkeypatch):
    monkeypatch.delattr(Chance, "graphsafe_set_state")
    recorder = on_a(Card())
    with pytest.raises(RuntimeError, match="during capture"):
        recorder.recorded(fail)


# on a 16 GiB card, where a step took at most 3 GiB and the process has 4 reserved
@pytest.mark.parametrize(
    ("free", "fraction", "is_tight"),
    [
        (12, None, False),
        (12, 0.4, False),
        (12, 0.3, True),  # 4.8 GiB allowed, and two steps take 6
        (2, None, False),
        (1, None, True),  # another process has 11
    ],
)
def test_a_graph_is_too_large_by_what_this_process_may_still_take(on_a, free, fraction, is_tight):
    card = Card(free=free * GIB, reserved=4 * GIB, most=3 * GIB)
    assert on_a(card, fraction).is_tight() is is_tight


@pytest.mark.parametrize(("has", "is_tight"), [({}, True), ({"is_integrated": 0}, True), ({"is_integrated": 1}, False)])
def test_the_file_cache_counts_as_free_where_the_gpu_has_the_machines_memory(on_a, monkeypatch, has, is_tight):
    from trainer import host

    monkeypatch.setattr(host, "memory", lambda: {"MemAvailable": 12 * GIB})
    card = Card(free=1 * GIB, reserved=4 * GIB, most=3 * GIB, **has)
    assert on_a(card).is_tight() is is_tight


def test_a_pytorch_that_does_not_tell_what_is_free_is_asked_for_the_whole(on_a):
    card = Card(free=0, most=3 * GIB)
    del card.mem_get_info
    assert [on_a(card, fraction).is_tight() for fraction in (None, 0.3)] == [False, True]


WHOLE = {"CUDAGraph", "set_sync_debug_mode"}


def having(names, cuda="11.3"):
    """Return a PyTorch built with this CUDA (None: with ROCm), whose torch.cuda has these."""
    return SimpleNamespace(cuda=SimpleNamespace(**dict.fromkeys(names)), version=SimpleNamespace(cuda=cuda))


@pytest.mark.parametrize("lacking", sorted(WHOLE))
def test_a_pytorch_that_cannot_say_where_the_host_waits_records_nothing(torch, lacking, monkeypatch):
    from trainer.frameworks.pytorch import graphs

    for names, has in (WHOLE, True), (WHOLE - {lacking}, False):
        monkeypatch.setattr(graphs, "torch", having(names))
        assert graphs.has_graphs(torch.device("cuda")) is has
    assert not graphs.has_graphs(torch.device("cpu"))


@pytest.mark.parametrize(("cuda", "has"), [("10.2", False), ("11.0", True), ("13.0", True), (None, True)])
def test_a_pytorch_built_with_a_cuda_that_has_no_graphs_records_nothing(torch, cuda, has, monkeypatch):
    from trainer.frameworks.pytorch import graphs

    monkeypatch.setattr(graphs, "torch", having(WHOLE, cuda))
    assert graphs.has_graphs(torch.device("cuda")) is has
