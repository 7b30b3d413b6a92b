"""In which numbers PyTorch computes, whether it compiles, and how pictures lie: what was asked for, made so."""
import contextlib
import warnings

import torch

from ... import computing
from ...events import Stop
from ...fits import is_out_of_memory

HALVES = {name: getattr(torch, name) for name in ("float16", "bfloat16") if hasattr(torch, name)}
LAST = getattr(torch, "channels_last", None)  # PyTorch 1.5 and later


def chosen(asked, device):
    """Give what computing.numbers() gives, and switch TF32 on or off for all that stays float32."""
    capability = torch.cuda.get_device_capability() if device == "gpu" else None  # of this replica's card
    # before 2.0 a GPU's convolutions are slow in bfloat16, or fail: https://github.com/pytorch/pytorch/issues/58861
    precision = computing.numbers(asked, device, capability, "bfloat16" if hasattr(torch, "compile") else "float16")
    if precision in HALVES and not hasattr(torch, "autocast"):
        raise Stop("bad_argument", f"PyTorch {torch.__version__} has no torch.autocast, as 1.10 and later have: "
                   "leave --precision away, or take a later image")
    allow_tf32(precision != "float32" and capability is not None and capability >= computing.TENSOR_FLOAT)
    return precision


def allow_tf32(allowed):
    """Say it in the words of this PyTorch: https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32"""
    products, cudnn = getattr(torch.backends.cuda, "matmul", None), torch.backends.cudnn
    if products is None:  # before 1.7: what NVIDIA's own builds have of TF32 goes by computing.prepare()
        return
    if hasattr(products, "fp32_precision"):  # 2.9 and later, where allow_tf32 is deprecated
        # torch.compile still asks in the old words, and fails where they say otherwise than the new ones:
        # https://github.com/pytorch/pytorch/issues/166387 and /179445
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cudnn.allow_tf32 = allowed
        for library in products, cudnn.conv, cudnn.rnn:
            library.fp32_precision = "tf32" if allowed else "ieee"
    else:
        products.allow_tf32 = cudnn.allow_tf32 = allowed


def casting(precision, device):
    """Give what makes the context in which a network is computed in this precision."""
    if precision not in HALVES:
        return contextlib.ExitStack  # empty: it does nothing
    kind = {"gpu": "cuda"}.get(device, device)
    return lambda: torch.autocast(kind, dtype=HALVES[precision])


def uncast(x, half):
    """Give the context in which a layer says its numbers itself; half: what casting() casts to, or None."""
    return torch.autocast(x.device.type, enabled=False) if half else contextlib.ExitStack()


def recurrent(half, on):
    """Give the kind of numbers that LSTMs are computed in amid `half`, None where that is None: float32 (by TF32) on a
    GPU whose cuDNN has none in bfloat16. PyTorch's own there is kernel after kernel, and before 2.3 there is none:
    https://github.com/pytorch/pytorch/issues/116925"""
    if half is None or half != HALVES.get("bfloat16") or on.type != "cuda" or has_bfloat16_lstm(on):
        return half
    return torch.float32


def has_bfloat16_lstm(on):
    """Has cuDNN LSTMs in bfloat16, and gives PyTorch it any? https://github.com/pytorch/pytorch/pull/164411"""
    return (torch.backends.cudnn.version() or 0) >= 91300 and torch.cudnn_is_acceptable(
        torch.empty(1, dtype=torch.bfloat16, device=on))


def layout(asked, model, precision, device):
    """Give whether pictures lie channels last: by default all but those in plain float32 on a GPU, which is slower so
    (2.76 s instead of 1.68 s on a V100): https://github.com/pytorch/pytorch/issues/44943"""
    if LAST is None:
        if asked:
            raise Stop("bad_argument", f"PyTorch {torch.__version__} has no channels last, as 1.5 and later have: "
                       "leave --channels-last away")
        asked = False if len(model.shape) == 3 else None
    return computing.layout(asked, model, None, usual=(device, precision) != ("gpu", "float32"))


def compiled(function):
    """Give the function compiled; what cannot be raises Stop when it is first called."""
    if not hasattr(torch, "compile"):
        raise Stop("bad_argument", f"PyTorch {torch.__version__} has no torch.compile, as 2.0 and later have: "
                   "leave --compile away, or take a later image")
    made = torch.compile(function, dynamic=False)

    def call(*arguments):
        try:
            return made(*arguments)
        except Exception as error:
            ours = type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "triton"))
            if not ours or is_out_of_memory(str(error)):
                raise
            reason = str(error).strip().split("\n\n")[0][:1000]  # what follows is advice for PyTorch's own developers
            raise Stop("bad_argument", f"torch.compile failed: {reason}\nIt needs a C++ compiler, and on a GPU Triton: "
                       "leave --compile away, or take an image that has them") from error

    return call
