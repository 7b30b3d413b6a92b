"""A card's peak throughput by NVIDIA's own figures: operations per second, for each precision.

FP32 is cores * 2 * boost clock, as in NVIDIA's datasheets. TF32, FP16 and BF16 are dense tensor-core rates with FP32
accumulation, which GeForce cards do at half the speed of other cards. If a card lacks a precision, its cell is empty,
and the card computes in FP32. `tensor_mhz` is the tensor cores' clock if it is rated lower than the boost clock. A card
that is in no row (laptop GPUs, MIG slices, vGPUs) has no known peak, and nothing is reported for it.

Left out as well are cards that share their name with others that have more cores or another clock:
GTX 1060: https://custompcreview.com/news/nvidia-launches-geforce-gtx-1060-3gb-priced-200
GTX 1070 (notebook): https://mobipicker.com/gtx-1080-and-gtx-1070-for-laptops
RTX 2060: https://hmc-tech.com/gpu/nvidia-geforce-rtx-2060-12gb-vs-nvidia-geforce-gtx-1650-gddr5
RTX 3080: https://atizone.it/news/reader.php?objid=32859
MX150, GT 1030, GTX 1050, GTX 1650, RTX 3050, Quadro P5000: recalled.

Not known are the rates of GB10's tensor cores, of which NVIDIA states only FP4 with sparsity:
https://www.nvidia.com/en-us/products/workstations/dgx-spark/ (https://github.com/huggingface/huggingface.js/pull/1861)
"""

from __future__ import annotations

import re

from ngcdl.catalog.rows import address, is_recalled, rows
from ngcdl.frozen import dataclass

# NVML reports "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3", "GeForce GTX 1080",
# "NVIDIA GH200 144G HBM3e".
_BESIDE = re.compile(r"\b(nvidia|geforce|tesla|graphics|\d+gb?|hbm\d\w?)\b")


@dataclass(frozen=True)
class Peak:
    """`flops` per second at `boost_mhz`, a clock that a card with power and thermal headroom exceeds."""

    boost_mhz: float
    flops: float
    source: str
    recalled: bool


def peak(name: str, precision: str) -> Peak | None:
    """Return the peak of the card that NVML calls `name`; precision: float32, tf32, float16 or bfloat16."""
    for row in rows("peaks"):
        if normal(row["card"]) == normal(name):
            column = {"float32": "fp32_tflops", "tf32": "tf32_tflops"}.get(precision, "half_tflops")
            tflops = float(row[column] or row["fp32_tflops"])
            clock = (column != "fp32_tflops" and row["tensor_mhz"]) or row["boost_mhz"]
            return Peak(float(clock), tflops * 1e12, address(row["source"]), is_recalled(row))
    return None


def normal(name: str) -> str:
    """Reduce a name to what tells cards apart: lower case, without vendor, brand and memory."""
    return " ".join(_BESIDE.sub(" ", re.sub(r"[-()]", " ", name.lower())).split())
