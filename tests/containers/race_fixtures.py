"""Fixtures of the tests of cifar10-94: PyTorch, and few images."""

import pytest
from conftest import needs

from trainer import data


@pytest.fixture
def torch():
    needs("torch")
    import torch

    torch.manual_seed(3)
    return torch


@pytest.fixture(scope="module")
def made():
    """Few enough for two steps of 60 per epoch."""
    whole = data.synthetic("train")
    return data.Dataset(whole.images[:120], whole.labels[:120], "synthetic", 1, note="made")
