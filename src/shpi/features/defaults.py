"""Default features: standardised contexts as lines, or as curves.

Curves are random Fourier features. They need data everywhere, so they are tried up to a few dimensions only;
how many depends on what the features are for, and stands here for all of them.
"""

from __future__ import annotations

from shpi.features.base import Recipe
from shpi.features.chain import Chain
from shpi.features.fourier import RandomFourier
from shpi.features.scale import Identity, Standardise
from shpi.features.union import Union

# Context dimensions up to which curves are tried, by what the features are for.
CURVED_UP_TO = {
    "oracle": 5,  # every action has its own curves, and few rows for them
    "value": 6,
    "outcome model": 6,
    "clone": 8,  # a held-out loss chooses, and lines are among the choices
}


def may_curve(width: int, use: str) -> bool:
    """Whether contexts of this width are narrow enough for curves."""
    return 0 < width <= CURVED_UP_TO[use]


def lines(*, intercept: bool = True) -> Chain:
    """Standardised contexts as they are."""
    return Chain((Standardise(), Identity(intercept=intercept)))


def curves(
    n_features: int, bandwidth: float, seed: int, *, intercept: bool = True, beside_lines: bool = False
) -> Chain:
    """Random Fourier features of standardised contexts.

    Args:
        n_features: the number of Fourier features.
        bandwidth: width of the kernel, in medians of the distance between two contexts.
        seed: random seed of the frequencies.
        intercept: add a constant feature.
        beside_lines: add the contexts themselves, which extrapolate.
    """
    fourier: Recipe = RandomFourier(
        n_features=n_features, bandwidth_factor=bandwidth, intercept=intercept, seed=seed
    )
    return Chain((Standardise(), Union((Identity(intercept=False), fourier)) if beside_lines else fourier))
