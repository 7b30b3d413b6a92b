"""How certain it is that the mean of several trainings exceeds a bound, by a one-sided Student's t-test."""
from __future__ import absolute_import, division, print_function

import math

import numpy as np

POINTS = 20001


def spread(values):
    """Return the mean and the sample standard deviation, which is None for a single value."""
    values = np.asarray(values, np.float64)
    # relative to the first, because the mean of equal numbers may be off by a rounding, and they then seem to differ
    apart = values - values[0]
    return values[0] + apart.mean(), apart.std(ddof=1) if len(values) > 1 else None


def chance_below(values, bound):
    """Return the p-value: the probability that the mean of as many values is at least theirs if the true mean is the
    bound. None for a single value, or if all values are equal."""
    mean, deviation = spread(values)
    if not deviation:
        return None
    return beyond((mean - bound) / deviation * math.sqrt(len(values)), len(values) - 1)


def beyond(t, freedom):
    """Return the probability that Student's t with this many degrees of freedom exceeds t.

    With t = sqrt(freedom) * tan(angle) its density is cos(angle) ** (freedom - 1), up to a constant factor.
    """
    angle = math.atan(t / math.sqrt(freedom))
    return area(angle, math.pi / 2, freedom - 1) / area(-math.pi / 2, math.pi / 2, freedom - 1)


def area(first, last, power):
    """Integrate cos ** power by Simpson's rule."""
    values = np.maximum(np.cos(np.linspace(first, last, POINTS)), 0.0) ** power
    return (last - first) / (POINTS - 1) / 3 * (
        values[0] + values[-1] + 4 * values[1:-1:2].sum() + 2 * values[2:-1:2].sum())
