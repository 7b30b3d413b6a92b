"""Losses and optimisers of recipe.py in PyTorch, as plain loops over the weights."""
import torch
from torch.nn import functional

from ...recipe import SHARE, TEMPERATURE


def distill(logits, labels, answers):
    # written out: kl_div's mean over the batch came in 1.0 (https://github.com/pytorch/pytorch/pull/14457)
    wanted = functional.log_softmax(answers / TEMPERATURE, 1)
    apart = (wanted.exp() * (wanted - functional.log_softmax(logits / TEMPERATURE, 1))).sum(1).mean()
    return SHARE * functional.cross_entropy(logits, labels) + (1 - SHARE) * TEMPERATURE**2 * apart


LOSSES = {
    "softmax": functional.cross_entropy,
    "distill": distill,
    "sigmoid": lambda logits, labels: functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float()),
}


def right(model, logits, labels):
    guesses = logits.argmax(1) if model.loss != "sigmoid" else (logits[:, 0] > 0).long()
    return (guesses == labels.reshape(-1)).sum()


def each(op, tensors, *others, **said):
    """Do tensor.op_(other..., ...) for each tensor; by one call for all if this PyTorch can, because launches keep a
    GPU waiting."""
    # _foreach_addcmul_ tells: 1.7.0a0 (in NVIDIA's images 20.08 and 20.09) could only add one number to all tensors
    at_once = getattr(torch, f"_foreach_{op}_", None) if hasattr(torch, "_foreach_addcmul_") else None
    if at_once:
        at_once(tensors, *others, **said)
        return
    for k, tensor in enumerate(tensors):
        own = [other[k] if isinstance(other, (list, tuple)) else other for other in others]
        getattr(tensor, op + "_")(*own, **said)


def squares(tensors):
    """Return the sum of all squares; on the CPU not by the norm, which is off by 1e-5 there for a million numbers."""
    if tensors[0].device.type != "cpu" and hasattr(torch, "_foreach_norm"):
        return torch.stack(torch._foreach_norm(tensors)).pow(2).sum()
    return torch.stack([tensor.pow(2).sum() for tensor in tensors]).sum()


def unscaled(scale, gradients, step):
    """Unscale the gradients, update the scale (computing.Scale), and return whether all of them are finite."""
    each("mul", gradients, 1 / scale.value)
    finite = bool(torch.isfinite(squares(gradients)))
    scale.move(finite, step)
    return finite


def clip(gradients, most):
    norm = squares(gradients).sqrt()
    # NaN if the norm overflows, as in TensorFlow 2: with 0 the training would stand still, and not say that it diverged
    scale = (most / norm).clamp(max=1.0) + (norm - norm)
    for gradient in gradients:
        gradient.mul_(scale)


def take(weights, steps, rate):
    """Subtract rate * step from each weight. A rate on the device (graphed.py) can't be alpha: the host would have to
    read it."""
    if isinstance(rate, torch.Tensor):
        each("sub", weights, scaled(steps, rate))
    else:
        each("add", weights, steps, alpha=-rate)


def scaled(tensors, factor):
    """Return each tensor times a scalar on the device."""
    if "Tensor" in overloads("_foreach_mul"):
        return torch._foreach_mul(tensors, factor)
    return [tensor * factor for tensor in tensors]


def overloads(name):
    """Return the overloads of an operation; () if it does not exist, and before PyTorch 1.12, which does not report
    them."""
    return getattr(getattr(torch.ops.aten, name), "overloads", tuple)() if hasattr(torch, name) else ()


def follow(averages, weights, keep):
    """Update exponential moving averages: keep this share of each, and take the rest from its weight."""
    share = 1 - keep
    if isinstance(share, torch.Tensor) and "Tensor" in overloads("_foreach_mul_"):
        apart = torch._foreach_sub(weights, averages)
        torch._foreach_mul_(apart, share)
        each("add", averages, apart)
    elif isinstance(share, torch.Tensor):
        for average, weight in zip(averages, weights):
            average.lerp_(weight, share)
    else:
        each("lerp", averages, weights, share)


def sgd(words, weights, slots, rate, gradients):
    take(weights, gradients, rate)


def momentum(words, weights, slots, rate, gradients):
    each("mul", slots[0], words["share"])
    each("add", slots[0], gradients)
    take(weights, slots[0], rate)


def is_fused(device):
    """Return whether this PyTorch has a fused Adam: on the CPU from 2.4 on, on GPUs with the rate on the device from
    2.1 on. Asking for the kernel of an operation that does not exist (before 1.13) is an error."""
    if device.type == "cpu":
        return (hasattr(torch, "_fused_adam_")
                and torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_adam_", "CPU"))
    return device.type == "cuda" and "tensor_lr" in overloads("_fused_adam_")


def adam(words, weights, slots, rate, gradients):
    first, second = slots
    if is_fused(weights[0].device):
        # the kernel reads memory linearly, whatever the strides; infinitely many steps make its own bias correction by
        # the powers of b1 and b2 equal to 1, because the rate already includes the correction
        laid = [torch.empty_like(one).copy_(gradient) if one.stride() != gradient.stride() else gradient
                for one, gradient in zip(weights, gradients)]
        steps = [torch.full((), float("inf"), device=weights[0].device)] * len(weights)
        torch._fused_adam_(
            weights, laid, first, second, [], steps, lr=rate,
            beta1=words["b1"], beta2=words["b2"], weight_decay=0.0, eps=words["epsilon"], amsgrad=False, maximize=False)
        return
    each("mul", first, words["b1"])
    each("add", first, gradients, alpha=1 - words["b1"])
    each("mul", second, words["b2"])
    each("addcmul", second, gradients, gradients, value=1 - words["b2"])
    roots = [value.sqrt() for value in second]
    each("add", roots, words["epsilon"])
    if isinstance(rate, torch.Tensor):
        take(weights, [one / root for one, root in zip(first, roots)], rate)
    else:
        each("addcdiv", weights, first, roots, value=-rate)


OPTIMISERS = {"sgd": sgd, "momentum": momentum, "adam": adam}
