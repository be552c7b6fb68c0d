"""Adam on one flat vector: torch's own kernel, without the bookkeeping around it.

`torch.optim.Adam(fused=True)` gives the same bits. What it does around the kernel at every step (hooks,
groups of parameters, a profiler's marks) took a quarter of a step of 128 x 128 with batches of 256.
"""

from __future__ import annotations

from typing import Any

FIRST, SECOND, TINY = (
    0.9,
    0.999,
    1e-8,
)  # decay of both moments and what is added to the root: torch's defaults


class Adam:
    """Steps of Adam on ``values`` along ``values.grad``, in place; to be called without autograd."""

    def __init__(self, torch: Any, values: Any, learning_rate: float) -> None:
        self._kernel, self._rate = torch._fused_adam_, learning_rate
        self._values, self._slopes = [values], [values.grad]
        self._means, self._squares = [torch.zeros_like(values)], [torch.zeros_like(values)]
        self._count = torch.zeros(())

    def step(self) -> None:
        """One step."""
        self._count += 1
        self._kernel(
            self._values,
            self._slopes,
            self._means,
            self._squares,
            [],
            [self._count],
            lr=self._rate,
            beta1=FIRST,
            beta2=SECOND,
            weight_decay=0.0,
            eps=TINY,
            amsgrad=False,
            maximize=False,
        )
