"""Muon, of all filters at once: each is moved by the nearest orthogonal matrix to its gradient's momentum.

A filter is a matrix [outputs, all else]. Those with as many rows are laid on each other, the narrower ones with columns
of zeros, which change nothing: three small products each step for every group instead of for every filter. The nearest
orthogonal matrix is approached by a few steps of an odd polynomial (Newton-Schulz): https://kellerjordan.github.io/posts/muon/
"""
import torch
from torch.nn import functional


def orthogonal(stack, polynomials, kind):
    """Give each matrix of [n, rows, columns] with its singular values near 1, computed in `kind`, which is of 16 bits
    only after they have a norm of 1; rows <= columns. Of zeros come zeros."""
    x = (stack / (stack.flatten(1).norm(dim=1) + 1e-7)[:, None, None]).to(kind)
    for a, b, c in polynomials:
        products = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(products, products, products, beta=b, alpha=c), x, beta=a)
    return x


def grouped(shapes):
    """Give {rows: [which]} of matrices of these shapes."""
    found = {}
    for which, (rows, _) in enumerate(shapes):
        found.setdefault(rows, []).append(which)
    return found


def stacked(matrices):
    widest = max(one.shape[1] for one in matrices)
    return torch.stack([functional.pad(one, (0, widest - one.shape[1])) for one in matrices])


def move(weights, momenta, rate, polynomials, kind):
    """Scale each weight (a matrix, changed in place) to a norm of sqrt(rows), which is that of an orthogonal one, and
    take away rate times the orthogonal matrix of its momentum, computed in `kind`."""
    for rows, members in grouped([one.shape for one in weights]).items():
        old = stacked([weights[which] for which in members])
        steps = orthogonal(stacked([momenta[which] for which in members]), polynomials, kind)
        new = old * (rows**0.5 / old.flatten(1).norm(dim=1))[:, None, None] - rate * steps
        for place, which in enumerate(members):
            weights[which].copy_(new[place, :, : weights[which].shape[1]])
