"""Import torch when needed, run it on one thread, and make networks that depend only on their seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shpi.errors import MissingExtraError


def import_torch() -> Any:
    """The module torch, or an error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "neural") from None
    return torch


@contextmanager
def one_thread() -> Iterator[Any]:
    """Torch with one thread, and denormal numbers (below 1e-38) flushed to 0.

    For networks this small, two threads are never faster and may be far slower. Adam's moments of an inactive
    unit decay below 1e-38, where arithmetic is some ten times slower.
    """
    torch = import_torch()
    threads, flushed = torch.get_num_threads(), _flushed(torch)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def _flushed(torch: Any) -> bool:
    """Whether denormal numbers are already flushed to 0."""
    return not bool(torch.tensor(1e-40).mul(1.0) > 0)


def network_layers(torch: Any, sizes: Sequence[int], random: Any, *, last_zero: bool = False) -> Any:
    """Linear layers with relu between them and Glorot uniform weights, drawn from ``random`` alone."""
    parts: list[Any] = []
    for index, (width_in, width_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layer = torch.nn.Linear(width_in, width_out)
        last = index == len(sizes) - 2
        torch.nn.init.xavier_uniform_(layer.weight, generator=random)
        torch.nn.init.zeros_(layer.bias)
        if last and last_zero:  # an action without data then scores the mean of all targets
            torch.nn.init.zeros_(layer.weight)
        parts += [layer] if last else [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)
