"""The default regressions of f, from linear to nonlinear."""

from __future__ import annotations

from shpi.data.logged import LoggedData
from shpi.features.additive import Powers
from shpi.features.cells import CellsMap, distinct
from shpi.features.defaults import curves, lines
from shpi.oracles import Oracle, Ridge

FEW_CELLS = 256  # one-hot features up to this number of distinct contexts
ROWS_PER_CELL = 10  # least mean number of decisions per context for one-hot features
NARROW, FEW_ACTIONS = 8, 100  # Fourier features are tried up to this many dimensions and actions
CURVES, BANDWIDTH = 100, 2.0  # random Fourier features, and their bandwidth in medians of the distance
PLAIN = {"actions": Ridge(features=Powers(degree=0))}  # a number per action, whatever the context
FEATURE_ROWS = 50_000  # rows from which means and scales are estimated


def few_contexts(logs: LoggedData) -> CellsMap | None:
    """One-hot features of the context, if contexts take few values and each is seen often; else None."""
    cells = distinct(logs.contexts, min(FEW_CELLS, len(logs) // ROWS_PER_CELL))
    return None if cells is None else CellsMap(cells=cells)


def default_oracles(logs: LoggedData, table: CellsMap | None, seed: int) -> dict[str, Oracle]:
    """A mean per (x, a) if contexts are few; else linear, and with few dimensions also Fourier features."""
    if table is not None:
        return {"table": Ridge(features=table, action_features=False)}
    sample = logs.contexts[:: 1 + len(logs) // FEATURE_ROWS]
    oracles: dict[str, Oracle] = {"lines": Ridge(features=lines(intercept=False).fit(sample))}
    if 0 < logs.schema.width <= NARROW and logs.n_actions <= FEW_ACTIONS:
        oracles["curves"] = Ridge(
            features=curves(CURVES, BANDWIDTH, seed, intercept=False, beside_lines=True)
        )
    return oracles
