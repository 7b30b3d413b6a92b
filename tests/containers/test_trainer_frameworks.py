"""Real CPU trainings on the synthetic set. Pinned values hold in each framework, so they agree."""

import signal

import numpy as np
import pytest
from own_process import on_cpu
from trainer_process import events, start, train, trainer

from trainer import checkpoint, data, layers
from trainer.recipe import Model
from trainer.workloads import cifar10


def losses(folder):
    return {event["step"]: event["loss"] for event in events(folder, "step")}


def test_a_hundred_steps_learn_the_easy_set(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--steps", 101, "--batch", 32
    out = train("cifar10", "--out", tmp_path, *common, images={"test": 1000})
    (begun,) = events(tmp_path, "start")
    assert (begun["framework"], begun["device"], begun["parameters"]) == (framework, "cpu", 1068298)
    assert (begun["dataset"], begun["dataset_images"], begun["dataset_sha256"]) == ("synthetic", 20000, None)
    assert "SYNTHETIC" in out
    found = losses(tmp_path)
    assert 4.60 <= found[0] <= 4.75
    assert found[0] == pytest.approx(4.6808, abs=0.001)  # the same weights, images and distortions in every framework
    assert found[10] == pytest.approx(4.635, abs=0.01)
    assert found[100] < 4
    (tested,) = events(tmp_path, "eval")
    assert tested["examples"] == 1000
    assert tested["precision_at_1"] > 0.5  # 0.74 to 1 were seen: the order of a sum decides how soon it learns
    assert [event["event"] for event in events(tmp_path)][-1] == "finish"


def test_one_thread_is_enough_to_train(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--steps", 3, "--batch", 16, "--no-eval"
    train("cifar10", "--out", tmp_path, *common, "--threads", 1)
    assert [event["threads"] for event in events(tmp_path, "start")] == [1]
    assert events(tmp_path, "finish")


def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--no-eval", "--batch", 32, "--log-frequency", 1
    train("cifar10", "--out", tmp_path / "a", "--steps", 8, *common)
    train("cifar10", "--out", tmp_path / "b", "--steps", 5, *common)
    train("cifar10", "--out", tmp_path / "b", "--steps", 8, "--resume", tmp_path / "b", *common)
    straight, resumed = losses(tmp_path / "a"), losses(tmp_path / "b")
    assert list(resumed) == list(range(8))
    for step in range(8):
        assert resumed[step] == pytest.approx(straight[step], abs=0.01)
    _, values = checkpoint.read(str(tmp_path / "a" / "checkpoints" / "step-8.npz"))
    _, others = checkpoint.read(str(tmp_path / "b" / "checkpoints" / "step-8.npz"))
    assert len(values) == len(others) == 20
    for name in values:
        assert np.abs(values[name] - others[name]).max() < 1e-3


def test_told_to_end_it_leaves_a_checkpoint(framework, tmp_path, few):
    words = "--framework", framework, "--device", "cpu", "--batch", 16, "--record"
    process = start("cifar10", "--out", tmp_path, *words, PYTHONPATH=few)
    while ": step 10, " not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
    (error,) = events(tmp_path, "error")
    assert error["kind"] == "interrupted"
    assert checkpoint.read(str(tmp_path / "checkpoints" / f"step-{error['step']}.npz"))[0]["step"] == error["step"]


@pytest.mark.parametrize("name", ["cifar10", "smoke"])
def test_a_gpu_that_is_asked_for_and_not_there_stops_before_any_work(framework, tmp_path, name):
    words = name, "--out", tmp_path, "--framework", framework, "--device", "gpu"
    code, _, err = trainer(*words, CUDA_VISIBLE_DEVICES="-1")
    assert code == 1
    (error,) = events(tmp_path)
    assert error["kind"] == "no_gpu"
    assert "sees no GPU" in err


def test_logits_are_those_of_the_words_taken_literally(framework):
    model = Model(cifar10.NETWORK, cifar10.RECIPE, cifar10.INPUT, 3)
    network = on_cpu(framework, model)
    random, weights = np.random.RandomState(3), layers.initial(cifar10.NETWORK, 5)
    for name in weights:
        weights[name] = weights[name] + random.normal(size=weights[name].shape).astype(np.float32) * np.float32(0.01)
    network.load({**model.first(0), **{"average/" + name: value for name, value in weights.items()}})
    images = data.central(random.randint(0, 256, (3, 32, 32, 3)).astype(np.uint8), 24)
    assert np.abs(network.logits(images) - literally(images, weights)).max() < 1e-3
    kept = network.values()
    for name, value in weights.items():
        assert (kept["average/" + name] == value).all()


def literally(x, weights):
    """Compute the network in float64, straight from the definitions."""
    x = x.astype(np.float64)
    for word in cifar10.NETWORK:
        op = word["op"]
        if op in ("conv", "dense"):
            w, b = weights[word["name"] + "/weights"].astype(np.float64), weights[word["name"] + "/biases"]
        if op == "conv":
            edge, side = word["shape"][0] // 2, x.shape[1]
            padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
            x = b + sum(
                padded[:, i : i + side, j : j + side] @ w[i, j] for i in range(w.shape[0]) for j in range(w.shape[1])
            )
        elif op == "dense":
            x = x.reshape(len(x), -1) @ w + b
        elif op == "relu":
            x = np.maximum(x, 0)
        elif op == "max_pool":
            padded = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=-np.inf)
            x = np.max(
                [padded[:, i : i + x.shape[1] : 2, j : j + x.shape[2] : 2] for i in range(3) for j in range(3)], axis=0
            )
        elif op == "lrn":
            squares = np.pad(x**2, ((0, 0), (0, 0), (0, 0), (4, 4)))
            near = sum(squares[..., k : k + x.shape[-1]] for k in range(9))
            x = x / (word["bias"] + word["alpha"] * near) ** word["beta"]
    return x


def test_an_epoch_of_cifar10_keras_is_told_as_keras_tells_it_and_tested(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--log-frequency", 5, "--steps", 20, "--batch", 100
    out = train("cifar10-keras", "--out", tmp_path, *common, images={"train": 2000, "test": 500})
    (begun,) = events(tmp_path, "start")
    assert (begun["workload"], begun["parameters"], begun["dropout"]) == ("cifar10-keras", 1667594, True)
    assert "Filling queue" not in out
    (epoch,) = events(tmp_path, "epoch")
    assert (epoch["step"], epoch["epoch"], epoch["examples"]) == (20, 1, 2000)
    assert 0.2 < epoch["accuracy"] < 1
    assert f": epoch 1, loss = {epoch['loss']:.4f}, accuracy = {epoch['accuracy']:.4f} (" in out
    (tested,) = events(tmp_path, "eval")
    assert (tested["examples"], tested["step"]) == (500, 20)
    assert tested["precision_at_1"] > 0.8


@pytest.mark.torch
def test_what_trains_on_noise_is_not_tested(tmp_path):
    common = "--framework", "pytorch", "--device", "cpu", "--steps", 2, "--batch", 4
    out = train("lstm", "--out", tmp_path, *common)
    assert "Training on 29049 SYNTHETIC sequences, not on the Penn Treebank: " in out
    assert [event["event"] for event in events(tmp_path)] == ["start", "step", "checkpoint", "finish"]
    _, values = checkpoint.read(str(tmp_path / "checkpoints" / "step-2.npz"))
    assert values["lstm1/cell"].shape == (4, 256)
