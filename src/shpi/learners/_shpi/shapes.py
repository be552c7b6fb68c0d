"""The regressions that are tried for f, from plain to curved."""

from __future__ import annotations

from shpi.data.logged import LoggedData
from shpi.features.cells import CellsMap, distinct
from shpi.features.defaults import curves, lines
from shpi.oracles import Oracle, Ridge

FEW_CELLS = 256  # up to so many distinct contexts every context is a feature of its own
ROWS_PER_CELL = 10  # decisions per context, on average, from which its mean is more than one observation
NARROW, FEW_ACTIONS = 8, 100  # curves are tried up to so many dimensions and actions
CURVES, BANDWIDTH = 100, 2.0  # random Fourier features, and their bandwidth in medians of the distance
FEATURE_ROWS = 50_000  # on which means and scales are taken


def few_contexts(logs: LoggedData) -> CellsMap | None:
    """A feature for every context, where contexts take few values and every value is seen often."""
    cells = distinct(logs.contexts, min(FEW_CELLS, len(logs) // ROWS_PER_CELL))
    return None if cells is None else CellsMap(cells=cells)


def default_oracles(logs: LoggedData, table: CellsMap | None, seed: int) -> dict[str, Oracle]:
    """A mean per (x, a) where contexts are few; else lines, and curves too where contexts are narrow."""
    if table is not None:
        return {"table": Ridge(features=table, action_features=False)}
    sample = logs.contexts[:: 1 + len(logs) // FEATURE_ROWS]
    oracles: dict[str, Oracle] = {"lines": Ridge(features=lines(intercept=False).fit(sample))}
    if 0 < logs.schema.width <= NARROW and logs.n_actions <= FEW_ACTIONS:
        oracles["curves"] = Ridge(
            features=curves(CURVES, BANDWIDTH, seed, intercept=False, beside_lines=True)
        )
    return oracles
