"""Default features: standardised contexts, either linear ("lines") or random Fourier features ("curves").

Curves need data everywhere in the context space, so they are used only up to a few dimensions. The limits
depend on the use of the features, and are all set here.
"""

from __future__ import annotations

from shpi.features.base import Recipe
from shpi.features.chain import Chain
from shpi.features.fourier import RandomFourier
from shpi.features.scale import Identity, Standardise
from shpi.features.union import Union

# Largest number of context dimensions for curves, by use of the features.
CURVED_UP_TO = {
    "oracle": 5,  # every action has its own curves, and few rows to fit them
    "value": 6,
    "outcome model": 6,
    "clone": 8,  # a held-out loss chooses, with lines among the choices
}


def may_curve(width: int, use: str) -> bool:
    """Whether contexts of this width are narrow enough for curves."""
    return 0 < width <= CURVED_UP_TO[use]


def lines(*, intercept: bool = True) -> Chain:
    """Standardised contexts as linear features."""
    return Chain((Standardise(), Identity(intercept=intercept)))


def curves(
    n_features: int, bandwidth: float, seed: int, *, intercept: bool = True, beside_lines: bool = False
) -> Chain:
    """Random Fourier features of standardised contexts.

    Args:
        n_features: the number of Fourier features.
        bandwidth: width of the kernel, as a multiple of the median distance between two contexts.
        seed: random seed of the frequencies.
        intercept: add a constant feature.
        beside_lines: add the linear features too, which extrapolate.
    """
    fourier: Recipe = RandomFourier(
        n_features=n_features, bandwidth_factor=bandwidth, intercept=intercept, seed=seed
    )
    return Chain((Standardise(), Union((Identity(intercept=False), fourier)) if beside_lines else fourier))
