"""Cards' peak rates, and how a card's name leads to them."""

from __future__ import annotations

import math

import pytest

from ngcdl.catalog.peaks import normal, peak
from ngcdl.catalog.rows import rows


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("GeForce GTX 1080", "float32", 8.87),
        ("NVIDIA GeForce GTX 1080", "float16", 8.87),  # it has no tensor cores
        ("Tesla T4", "float16", 65.1),
        ("NVIDIA A100-SXM4-80GB", "tf32", 155.9),
        ("NVIDIA A100 80GB PCIe", "bfloat16", 311.9),
        ("Tesla V100-SXM2-16GB", "float32", 15.67),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.7),
        ("NVIDIA H100 PCIe", "float16", 756),
        ("NVIDIA GeForce RTX 4090", "tf32", 82.58),
        ("NVIDIA RTX 6000 Ada Generation", "float32", 91.06),
        ("Quadro RTX 6000", "float32", 16.31),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4),
        ("NVIDIA GH200 144G HBM3e", "bfloat16", 989.4),
        ("NVIDIA B200", "float32", 75.02),
        ("NVIDIA GB200", "float32", 80.02),
        ("NVIDIA B300 SXM6 AC", "bfloat16", 2250),
        ("NVIDIA GB300", "tf32", 1250),
    ],
)
def test_a_card_is_found_by_what_nvml_calls_it(name: str, precision: str, tflops: float) -> None:
    found = peak(name, precision)
    assert found is not None
    assert found.flops == pytest.approx(tflops * 1e12, rel=0.001)
    assert found.source.startswith("https://")


@pytest.mark.parametrize(
    ("name", "precision", "boost_mhz"),
    [("H100", "float32", 1980), ("H100", "tf32", 1830), ("H100", "float16", 1830), ("GTX 1080", "float16", 1733)],
)
def test_a_peak_stands_with_the_clock_of_the_cores_that_compute_in_that_precision(
    name: str, precision: str, boost_mhz: float
) -> None:
    found = peak(name, precision)
    assert found is not None
    assert found.boost_mhz == boost_mhz


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        "GeForce GTX 1080 with Max-Q Design",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "GRID T4-8Q",
        "/device:GPU:0",
        "NVIDIA GeForce RTX 3080",  # 10 or 12 GB, with different cores
        "GeForce GTX 1060 3GB",
        "NVIDIA GB10",
        "",
    ],
)
def test_of_a_card_that_is_not_in_the_table_nothing_is_known(name: str) -> None:
    assert peak(name, "float32") is None


def test_no_two_rows_have_the_same_name() -> None:
    names = [normal(row["card"]) for row in rows("peaks")]
    assert sorted(set(names)) == sorted(names)


def test_fp32_is_two_operations_a_core_and_clock() -> None:
    for row in rows("peaks"):
        reckoned = 2e-6 * int(row["cores"]) * int(row["boost_mhz"])
        assert float(row["fp32_tflops"]) == pytest.approx(reckoned, rel=0.01), row


def test_operations_of_a_core_and_clock_are_a_power_of_two() -> None:
    for row in rows("peaks"):
        fp32, tf32, half = (float(row[f"{name}_tflops"] or "nan") for name in ("fp32", "tf32", "half"))
        assert not half < fp32, row
        assert not row["tensor_mhz"] or (row["tf32_tflops"] and row["half_tflops"]), row
        assert not tf32 < fp32 * 0.99, row
        if row["half_tflops"] and row["card"] != "A10G":  # its figures are AWS's
            clock = float(row["tensor_mhz"] or row["boost_mhz"])
            each = 1e6 * half / (int(row["cores"]) * clock)
            assert each == pytest.approx(2 ** round(math.log2(each)), rel=0.01), row
