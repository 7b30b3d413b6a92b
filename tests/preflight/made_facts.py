"""An image, cards and hosts as plain facts, and functions that judge them."""

from __future__ import annotations

from dataclasses import replace

from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts, Reason, Verdict

# pytorch:23.10-py3 as in its row
IMAGE = ImageFacts(
    "nvcr.io/nvidia/pytorch:23.10-py3",
    framework="pytorch",
    release="23.10",
    cuda="12.2.2.009",
    has_cuda=True,
    driver="535.104.05",
    minor_floor="525.60.13",
    architectures=("amd64", "arm64"),
    sass=("5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0"),
    ptx="9.0",
    min_capability="6.0",
    compat_branches=(450, 470, 510, 525, 535),
    compat_brands=("tesla", "nvidia"),
    sources={"sass": "https://example/sass", "driver": "registry", "min_capability": "https://example/notes"},
)
T4 = Gpu("7.5", "T4", "tesla", index=0)
RTX_2080 = Gpu("7.5", "RTX 2080", "geforce", index=0)
GTX_980 = Gpu("5.2", "GTX 980", "geforce", index=1)
GTX_750 = Gpu("5.0", "GTX 750 Ti", "geforce", index=1)
HOST = HostFacts(driver="535.104.05", gpus=(T4,))
ON_470 = replace(HOST, driver="470.57.02")


def reason(verdict: Verdict, rule: str) -> Reason:
    return next(one for one in verdict.reasons if one.rule == rule)


def rules(verdict: Verdict) -> list[str]:
    return [one.rule for one in verdict.reasons]
