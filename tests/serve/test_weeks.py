from __future__ import annotations

from pathlib import Path

import numpy as np

from shpi.serve.demo import Shop
from shpi.serve.demo.weeks import run_weeks, served_by
from shpi.serve.loop.control import Control


def test_some_days_of_the_shop_over_http(tmp_path: Path) -> None:
    """A small size of `python -m benchmarks serve_shop`: traffic, a cycle, and the truth beside it."""
    folder, shop = tmp_path / "shop", Shop()
    weeks = run_weeks(folder, shop, days=5, learn_on=(4,), arrivals=70, seed=5)
    assert weeks.decisions > 600
    assert len(weeks.clicks) == 5
    assert len(weeks.cycles) == 1
    assert weeks.cycles[0].startswith("cycle 1: ")
    control = Control.read(folder)
    assert control.champion == "apprentice"  # whatever was learned is on trial at most
    policies = sorted(path.name for path in (folder / "policies").iterdir() if path.is_dir())
    assert len(policies) == 1
    contexts = shop.contexts(np.array([0, 1, 2]), np.array([0.2, 0.4, 0.9]), 0)
    probs = served_by(folder, policies[0])(contexts)
    assert np.allclose(probs.sum(axis=1), 1)
    assert (probs >= 0.3 / 5 - 1e-12).all()  # the floor is never lost
