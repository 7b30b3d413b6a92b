"""oneDNN's products are right, and used only where they pay off."""

from types import SimpleNamespace

import numpy as np
import pytest

from trainer import host

pytestmark = pytest.mark.torch


@pytest.fixture
def products(monkeypatch):
    """The module, as on a processor that is not Intel's."""
    from trainer.frameworks.pytorch import products

    monkeypatch.setattr(host, "is_intel", lambda: False)
    chosen = products.onednn
    chosen.cache_clear()
    yield products
    chosen.cache_clear()


class Unknowing:
    def __getattr__(self, name):
        raise RuntimeError(f"No such operator mkldnn::{name}")


def drawn(*shape):
    return np.random.RandomState(sum(shape)).standard_normal(shape).astype(np.float32)


def farthest(given, wanted):
    """Return the largest difference: pytest.approx takes seconds for so many."""
    return np.abs(given.detach().numpy() - wanted).max()


@pytest.mark.parametrize("examples", [128, 2])
def test_large_products_are_onednns_and_small_ones_pytorchs(torch, products, examples, monkeypatch):
    operator, calls = products.onednn(), []
    if operator is None:
        pytest.skip("PyTorch here has no MKL beside oneDNN")
    monkeypatch.setattr(products, "onednn", lambda: lambda *words: [calls.append(1), operator(*words)][1])
    a, b = drawn(examples, 2304), drawn(2304, 384)
    found = products.mm(torch.from_numpy(a), torch.from_numpy(b))
    assert farthest(found, a.astype(np.float64) @ b) < 2e-3
    assert len(calls) == (1 if examples == 128 else 0), "two rows are too few to pay"


@pytest.mark.parametrize("turned", [(), (0,), (1,), (0, 1)])
def test_a_transposed_matrix_is_multiplied_as_it_is_and_one_with_gaps_not_by_onednn(torch, products, turned):
    a, b = (array.T if which in turned else array for which, array in enumerate((drawn(160, 160), drawn(160, 2048))))
    a, b = (a, b) if 1 not in turned else (b, a)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    assert products.pays(left, right)
    assert not products.pays(left, torch.cat([right, right], 1)[:, ::2])
    assert farthest(products.mm(left, right), a.astype(np.float64) @ b) < 2e-3


def test_on_intel_processors_and_without_mkl_or_the_operator_pytorch_multiplies_itself(torch, products, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mkl, "is_available", lambda: False)
        assert products.onednn() is None
    products.onednn.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "ops", SimpleNamespace())
        assert products.onednn() is None
    products.onednn.cache_clear()
    with monkeypatch.context() as patch:  # 1.4: neither is there, and asking for an operator raises
        patch.delattr(torch, "compile")
        patch.delattr(torch.backends, "mkldnn")
        patch.setattr(torch, "ops", Unknowing())
        assert products.onednn() is None
    products.onednn.cache_clear()
    monkeypatch.setattr(host, "is_intel", lambda: True)
    assert products.onednn() is None
    a, b = torch.from_numpy(drawn(400, 144)), torch.from_numpy(drawn(144, 8192))
    assert torch.equal(products.mm(a, b), torch.mm(a, b))


def test_the_processors_vendor_is_read_where_it_is_told(monkeypatch):
    for told, wanted in (("vendor_id\t: GenuineIntel\n", True), ("vendor_id\t: AuthenticAMD\n", False), (None, False)):
        monkeypatch.setattr(host, "text", {"/proc/cpuinfo": told}.get)
        assert host.is_intel() is wanted
