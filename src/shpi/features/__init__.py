"""Feature maps of a context: fitting a recipe to contexts gives a map that never changes.

recipe = Chain((Standardise(), RandomFourier(n_features=200, seed=0)))
phi = recipe.fit(logs.contexts)
phi.transform(contexts)          # [n, phi.width]
"""

from shpi.features.additive import Hinges, HingesMap, Powers, PowersMap
from shpi.features.base import FeatureMap, Recipe, fit_features
from shpi.features.cells import Cells, CellsMap
from shpi.features.chain import Chain, ChainMap
from shpi.features.fourier import RandomFourier, RandomFourierMap
from shpi.features.onehot import OneHot, OneHotMap
from shpi.features.scale import Identity, IdentityMap, Standardise, StandardiseMap
from shpi.features.union import Union, UnionMap

__all__ = [
    "Cells",
    "CellsMap",
    "Chain",
    "ChainMap",
    "FeatureMap",
    "Hinges",
    "HingesMap",
    "Identity",
    "IdentityMap",
    "OneHot",
    "OneHotMap",
    "Powers",
    "PowersMap",
    "RandomFourier",
    "RandomFourierMap",
    "Recipe",
    "Standardise",
    "StandardiseMap",
    "Union",
    "UnionMap",
    "fit_features",
]
