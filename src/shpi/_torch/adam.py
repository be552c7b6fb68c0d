"""Adam on one flat vector: torch's function, without the bookkeeping of an optimizer object.

`torch.optim.Adam(fused=True)` gives the same bits. What it does around the function at every step (hooks,
groups of parameters, a profiler's marks) took a third of a step on 40,000 numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

FIRST, SECOND = 0.9, 0.999  # decay of both moments: torch's defaults
TINY = 1e-8  # added to the root of the second one: torch's default


class Adam:
    """Steps of Adam on ``values`` along ``values.grad``, in place; to be called without autograd."""

    def __init__(self, torch: Any, values: Any, learning_rate: float) -> None:
        from torch.optim.adam import adam  # not an attribute of torch.optim

        self._step = partial(
            adam,
            [values],
            [values.grad],
            [torch.zeros_like(values)],
            [torch.zeros_like(values)],
            [],
            [torch.zeros(())],
            fused=True,
            amsgrad=False,
            beta1=FIRST,
            beta2=SECOND,
            lr=learning_rate,
            weight_decay=0.0,
            eps=TINY,
            maximize=False,
        )

    def step(self) -> None:
        """One step."""
        self._step()
