"""In which precision and memory layout PyTorch computes, and whether it compiles: applies what was asked for."""
import contextlib
import warnings

import numpy
import torch

from ... import computing
from ...events import Stop
from ...fits import is_out_of_memory

HALVES = {name: getattr(torch, name) for name in ("float16", "bfloat16") if hasattr(torch, name)}
LAST = getattr(torch, "channels_last", None)  # PyTorch 1.2 and later


def chosen(asked, device):
    """Return what computing.numbers() returns, and switch TF32 on or off for all that stays float32."""
    # until PyTorch 1.0 the card must be named: https://github.com/pytorch/pytorch/issues/17210
    capability = torch.cuda.get_device_capability(torch.cuda.current_device()) if device == "gpu" else None
    # before 2.0 bfloat16 convolutions on a GPU are slow, or fail: https://github.com/pytorch/pytorch/issues/58861
    precision = computing.numbers(asked, device, capability, "bfloat16" if hasattr(torch, "compile") else "float16")
    if precision in HALVES and not can_cast(precision, device):
        raise Stop("bad_argument", f"PyTorch {torch.__version__} has no torch.autocast that takes a dtype and "
                   f"computes in {precision} here: leave --precision out, or use a later container image")
    allow_tf32(precision != "float32" and capability is not None and capability >= computing.TENSOR_FLOAT)
    return precision


def allow_tf32(allowed):
    """Switch TF32 by the API of this PyTorch: https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32"""
    # before 1.1 torch.backends has no cuda
    products, cudnn = getattr(getattr(torch.backends, "cuda", None), "matmul", None), torch.backends.cudnn
    if products is None:  # before 1.7: TF32 in NVIDIA's own builds obeys computing.prepare()
        return
    # 2.9 and later, where allow_tf32 is deprecated. hasattr(products, "fp32_precision") fails until 2.0, whose products
    # raise AssertionError for what they lack
    if hasattr(cudnn, "conv"):
        # torch.compile still reads the old settings, and fails if they contradict the new ones:
        # https://github.com/pytorch/pytorch/issues/166387 and /179445
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cudnn.allow_tf32 = allowed
        for library in products, cudnn.conv, cudnn.rnn:
            library.fp32_precision = "tf32" if allowed else "ieee"
    else:
        products.allow_tf32 = cudnn.allow_tf32 = allowed


def flush_denormals():
    """Make the CPU flush float32 denormals, numbers below 1.2e-38, to zero, as TensorFlow's threads do. Denormals halve
    the CPU's speed, and once a network has learned, its gradients are full of them. A thread inherits this setting from
    the thread that starts it, so it must be made before PyTorch has started any."""
    for kind in "float32", "float64":
        numpy.finfo(kind)  # until 2.3 NumPy warns if it first looks at a type's limits when denormals are zero
    torch.set_flush_denormal(True)


def casting(precision, device):
    """Return a function that makes the context in which a network is computed in this precision."""
    if precision not in HALVES:
        return contextlib.ExitStack  # empty: it does nothing
    kind = {"gpu": "cuda"}.get(device, device)
    return lambda: torch.autocast(kind, dtype=HALVES[precision])


def can_cast(precision, device):
    """Return whether PyTorch has the context that casting() makes, and on a CPU computes in it: 1.10 has no bfloat16
    max_pool2d there. In the 1.10.0a0 of NVIDIA's images 21.07 to 21.09 the parameter for the dtype had another name."""
    try:
        with casting(precision, device)():
            if device == "cpu":
                x = torch.nn.functional.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1))
                torch.nn.functional.max_pool2d(x, 2)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True


def uncast(x, half):
    """Return the context in which a layer chooses its dtype itself; half: what casting() casts to, or None."""
    return torch.autocast(x.device.type, enabled=False) if half else contextlib.ExitStack()


def recurrent(half, on):
    """Return the dtype that LSTMs compute in, in a network that computes in `half`: None if that is None, and float32
    (with TF32) on a GPU whose cuDNN has no bfloat16 LSTM. PyTorch's own LSTM launches one kernel after another there,
    and before 2.3 there is none in bfloat16: https://github.com/pytorch/pytorch/issues/116925"""
    if half is None or half != HALVES.get("bfloat16") or on.type != "cuda" or has_bfloat16_lstm(on):
        return half
    return torch.float32


def has_bfloat16_lstm(on):
    """Return whether cuDNN has bfloat16 LSTMs and PyTorch uses them: https://github.com/pytorch/pytorch/pull/164411"""
    return (torch.backends.cudnn.version() or 0) >= 91300 and torch.cudnn_is_acceptable(
        torch.empty(1, dtype=torch.bfloat16, device=on))


def layout(asked, model, precision, device):
    """Return whether images are channels-last: by default all but those in plain float32 on a GPU, where that is slower
    (2.76 s instead of 1.68 s on a V100): https://github.com/pytorch/pytorch/issues/44943"""
    if LAST is None:
        if asked:
            raise Stop("bad_argument", f"PyTorch {torch.__version__} has no channels last: leave --channels-last out, "
                       "or use a later container image")
        asked = False if len(model.shape) == 3 else None
    return computing.layout(asked, model, None, usual=(device, precision) != ("gpu", "float32"))


def compiled(function):
    """Return the function, to be compiled at its first call, which raises Stop if that fails."""
    if not hasattr(torch, "compile"):
        raise Stop("bad_argument", f"PyTorch {torch.__version__} has no torch.compile, which needs 2.0 or later: "
                   "leave --compile out, or use a later container image")
    try:
        made = torch.compile(function, dynamic=False)
    except RuntimeError as error:  # it does not know this Python: 2.0 on 3.11, 2.1 on 3.12
        raise Stop("bad_argument", f"PyTorch {torch.__version__} does not compile here: {error}\nLeave --compile out, "
                   "or use a later container image") from error

    def call(*arguments):
        try:
            return made(*arguments)
        except Exception as error:
            ours = type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "triton"))
            if not ours or is_out_of_memory(str(error)):
                raise
            reason = str(error).strip().split("\n\n")[0][:1000]  # what follows is advice for PyTorch's own developers
            raise Stop("bad_argument", f"torch.compile failed: {reason}\nIt needs a C++ compiler, and on a GPU Triton: "
                       "leave --compile out, or use a container image that has them") from error

    return call
