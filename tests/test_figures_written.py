"""A figure that is not known is n/a, and a small one is not 0."""

from __future__ import annotations

from ngcdl.figures import measured, number, size


def test_sizes_and_numbers_are_rounded_and_unknown_is_not_zero() -> None:
    assert [size(value) for value in (None, 0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "n/a",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3072.0 GiB",
    ]
    assert number(None, 1, "%") == "n/a"
    assert number(0.0) == "0.0"
    assert number(1234.56, 1, " W") == "1,234.6 W"


def test_a_small_figure_has_two_digits_and_is_never_0() -> None:
    assert [measured(value) for value in (None, 0.0, 0.934, 1.0, 599.94, 4688.2)] == [
        "n/a",
        "0.0",
        "0.93",
        "1.0",
        "599.9",
        "4,688.2",
    ]
    assert [measured(value, 4) for value in (0.0881, 0.00012, 0.0000314)] == ["0.0881", "0.00012", "0.000031"]
