"""Muon, for all filters at once: each moves by the nearest orthogonal matrix to its gradient's momentum.

A filter is a matrix [outputs, all else]. Those with as many rows are stacked, the narrower ones padded with columns of
zeros, which change nothing: three small products per step for each group instead of for each filter. A few steps of
an odd polynomial approach the nearest orthogonal matrix (Newton-Schulz): https://kellerjordan.github.io/posts/muon/
"""
import torch
from torch.nn import functional


def orthogonal(stack, polynomials, kind):
    """Return each matrix of [n, rows, columns] with its singular values near 1, computed in `kind`, which may be a
    16-bit dtype because the matrices are first scaled to a norm of 1; rows <= columns. Zeros stay zeros."""
    x = (stack / (stack.flatten(1).norm(dim=1) + 1e-7)[:, None, None]).to(kind)
    for a, b, c in polynomials:
        products = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(products, products, products, beta=b, alpha=c), x, beta=a)
    return x


def grouped(shapes):
    """Return {rows: [indices]} of matrices of these shapes."""
    found = {}
    for which, (rows, _) in enumerate(shapes):
        found.setdefault(rows, []).append(which)
    return found


def stacked(matrices):
    widest = max(one.shape[1] for one in matrices)
    return torch.stack([functional.pad(one, (0, widest - one.shape[1])) for one in matrices])


def move(weights, momenta, rate, polynomials, kind):
    """Scale each weight (a matrix, changed in place) to a norm of sqrt(rows), that of an orthogonal one, and subtract
    rate times the orthogonal matrix of its momentum, computed in `kind`."""
    for rows, members in grouped([one.shape for one in weights]).items():
        old = stacked([weights[which] for which in members])
        steps = orthogonal(stacked([momenta[which] for which in members]), polynomials, kind)
        new = old * (rows**0.5 / old.flatten(1).norm(dim=1))[:, None, None] - rate * steps
        for place, which in enumerate(members):
            weights[which].copy_(new[place, :, : weights[which].shape[1]])
