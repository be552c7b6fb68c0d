"""The module of each kind of saved object, imported only when a file asks for it.

A file names kinds such as ``policies/greedy``. A process that only did ``import shpi`` has none of their
classes yet; importing whole packages would be slow, and would miss modules that no package imports.
The entries are strings, not imports, so this module depends on none of the packages it names.

A new ``@saveable`` class needs an entry: `tests/policies/test_fresh_process.py` compares with the sources.
"""

from __future__ import annotations

HOMES = {  # kind -> module that defines its class
    "envs/logging-policy": "shpi.envs.logging",
    "envs/world-bins": "shpi.envs.fitted.tables",
    "envs/world-cells": "shpi.envs.fitted.donors",
    "envs/world-counters": "shpi.envs.kuairand.counters",
    "envs/world-models": "shpi.envs.fitted.outcome_models",
    "envs/world-neighbours": "shpi.envs.fitted.moves",
    "envs/world-tables": "shpi.envs.fitted.tables",
    "features/cells": "shpi.features.cells",
    "features/chain": "shpi.features.chain",
    "features/hinges": "shpi.features.additive",
    "features/identity": "shpi.features.scale",
    "features/one-hot": "shpi.features.onehot",
    "features/powers": "shpi.features.additive",
    "features/random-fourier": "shpi.features.fourier",
    "features/standardise": "shpi.features.scale",
    "features/union": "shpi.features.union",
    "learners/batch-constrained": "shpi.learners.neural.bcq",
    "learners/scaled-value": "shpi.learners.online._steady",
    "learners/sum-scorer": "shpi.learners.bandit",
    "oracles/gbdt-scorer": "shpi.oracles.gbdt",
    "policies/among-likely": "shpi.policies.near_mu.likely",
    "policies/behaviour-regularised": "shpi.policies.heads",
    "policies/bounded-ratio": "shpi.policies.near_mu.bounded",
    "policies/cloned": "shpi.policies.near_mu.cloned",
    "policies/constant": "shpi.policies.plain",
    "policies/epsilon-greedy": "shpi.policies.heads",
    "policies/greedy": "shpi.policies.heads",
    "policies/linear-scorer": "shpi.policies.scorers",
    "policies/logistic": "shpi.policies.near_mu.logistic",
    "policies/mixture": "shpi.policies.plain",
    "policies/mlp-scorer": "shpi.policies.scorers",
    "policies/padded": "shpi.policies.new_items",
    "policies/policy-density": "shpi.policies.near_mu.support",
    "policies/pseudo-counts": "shpi.policies.near_mu.support",
    "policies/relative-density": "shpi.policies.near_mu.support",
    "policies/shared-scorer": "shpi.policies.shared",
    "policies/softmax": "shpi.policies.heads",
    "policies/support-limited": "shpi.policies.near_mu.support",
    "policies/tabular": "shpi.policies.plain",
    "policies/tilted": "shpi.policies.near_mu.tilted",
    "policies/uniform": "shpi.policies.plain",
    "values/constant": "shpi.values.simple",
    "values/linear": "shpi.values.lstd",
    "values/lower-ensemble": "shpi.values.pessimistic",
    "values/lower-linear": "shpi.values.pessimistic",
    "values/network": "shpi.values.neural.network",
    "values/past": "shpi.values.past",
    "values/select": "shpi.values.levels",
}
