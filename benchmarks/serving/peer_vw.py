"""The peer of the decision alone: Vowpal Wabbit's predict over 112 actions, in the peers' environment."""

from __future__ import annotations

import json
import time

import numpy as np
from vowpalwabbit import Workspace

rng = np.random.default_rng(0)
model = Workspace("--cb_explore_adf --epsilon 0.05 --quiet -q sa")
contexts = [" ".join(f"f{n}:{value:.4f}" for n, value in enumerate(rng.normal(size=47))) for _ in range(50)]
actions = [f"|a item{n}" for n in range(112)]
for number, context in enumerate(contexts[:20]):  # something has been learned
    taken = [f"0:{-1.0 * (number % 2)}:0.1 {actions[0]}", *actions[1:]]
    model.learn([f"shared |s {context}", *taken])
times = []
for _ in range(4):
    for context in contexts:
        began = time.process_time()
        model.predict([f"shared |s {context}", *actions])
        times.append(time.process_time() - began)
print(json.dumps({"median_us": 1e6 * float(np.median(times))}))
