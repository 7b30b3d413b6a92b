"""What makes TensorFlow compute otherwise than the record says is refused."""

import pytest
from trainer_process import events, trainer

from trainer import computing
from trainer.events import Stop

MIXED, REWRITE = "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE"


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in MIXED, REWRITE, "TF_XLA_FLAGS":
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        (MIXED, "1", "--precision amp"),
        (REWRITE, "true", "--precision amp"),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit", "--compile"),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=0 --tf_xla_auto_jit=fusible", "--compile"),
    ],
)
def test_a_variable_that_rewrites_graphs_is_named_and_so_is_the_option_that_is_recorded(
    monkeypatch, name, value, option
):
    monkeypatch.setenv(name, value)
    with pytest.raises(Stop) as stop:
        computing.check_rewriting()
    assert stop.value.kind == "bad_argument"
    assert stop.value.message.startswith(f"{name}={value} changes how TensorFlow computes")
    assert stop.value.message.endswith(f"leave it out; TensorFlow 2 and PyTorch have {option}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (MIXED, "0"),
        (REWRITE, ""),
        (MIXED, "False"),
        ("TF_XLA_FLAGS", ""),
        ("TF_XLA_FLAGS", "--tf_xla_enable_xla_devices"),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=-1"),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_auto_jit=0"),
    ],
)
def test_a_variable_that_changes_nothing_is_left_alone(monkeypatch, name, value):
    computing.check_rewriting()
    monkeypatch.setenv(name, value)
    computing.check_rewriting()


def test_only_tensorflow_reads_them(framework, tmp_path):
    words = "batch-sweep", "--framework", framework, "--device", "cpu", "--batch", 4, "--steps", 2, "--no-eval"
    code, _, err = trainer(*words, "--out", tmp_path, **{MIXED: "1"})
    assert code == (framework == "tf2"), err
    assert [event["kind"] for event in events(tmp_path, "error")] == ["bad_argument"] * code
