r"""Weighted discounted sums over windows, for all rows at once.

    sum_t = z_t + sum_{m=1}^{L_t - 1} gamma^m c(w_{t+1}^{t+m}) z_{t+m},      w_a^b = rho_a rho_{a+1} … rho_b

where L_t is the length of row t's window and c clips, or is the identity. There are three algorithms:

*recursion*, one operation per row: without clipping, if all windows of a stretch of rows end at the same row,
sum_t = z_t + gamma rho_{t+1} sum_{t+1}. All rows at the same distance from their end are computed together,
without a loop over trajectories.

*doubling*, log k operations per row: for a fixed k and weights of 1, from the sums over 1, 2, 4, … rows.

*forward*, one operation per row and per step of its window: for a fixed k with weights, and for clipped
products, since a clipped product is not the product of clipped ratios. Rows are processed in blocks that fit
the CPU cache, as slices while most of their windows continue. A row is done when its window ends, or when its
product is 0 (a deterministic policy would not have taken the logged action): from there on all its weights
are q1, and the rest is q1 times a plain sum.
"""

from __future__ import annotations

import numpy as np

from shpi.protocols import Float64Array, Int64Array

_BLOCK = 16_384  # rows per block, which fit the CPU cache
_LARGEST = 1e280  # largest product; larger ones are clipped here, so that they never become infinite

Clip = tuple[float, float] | None


def weighted_sums(
    terms: Float64Array, ratios: Float64Array | None, stops: Int64Array, gamma: float, clip: Clip
) -> tuple[Float64Array, Float64Array]:
    """The sums [n], and the unclipped products w_{t+1}^{stop-1} over whole windows [n] (1 for one row).

    Args:
        terms: terms z [n].
        ratios: importance ratios rho [n]; None: weights of 1.
        stops: row after each window [n]; an empty window has sum 0.
        gamma: discount factor.
        clip: clipping range (q1, q2); None: no clipping.
    """
    rows = np.arange(len(terms))
    if ratios is not None and (ratios == 1.0).all() and (clip is None or clip[0] <= 1.0 <= clip[1]):
        ratios = None  # pi = mu: every weight is 1
    shared = bool(((stops[:-1] <= rows[1:]) | (stops[:-1] == stops[1:])).all())
    if shared and (clip is None or ratios is None):
        return _by_recursion(terms, ratios, stops, gamma)
    if ratios is None:
        return _by_doubling(terms, stops, gamma), np.ones(len(terms))
    plain = _by_recursion(terms, None, stops, gamma)[0] if shared else None
    return _forward(terms, ratios, stops, gamma, clip, plain)


def _by_recursion(
    terms: Float64Array, ratios: Float64Array | None, stops: Int64Array, gamma: float
) -> tuple[Float64Array, Float64Array]:
    lengths = stops - np.arange(len(terms))
    sums, products = np.where(lengths > 0, terms, 0.0), np.ones(len(terms))
    order = np.argsort(lengths, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(lengths)))
    for length in range(2, len(bounds) - 1):
        now = order[bounds[length] : bounds[length + 1]]
        then = now + 1
        if ratios is None:
            sums[now] += gamma * sums[then]
        else:
            with np.errstate(over="ignore"):  # the caller refuses sums that are not finite
                sums[now] += gamma * ratios[then] * sums[then]
            products[now] = np.minimum(ratios[then] * products[then], _LARGEST)
    return sums, products


def _by_doubling(terms: Float64Array, stops: Int64Array, gamma: float) -> Float64Array:
    """Plain sums over windows of any lengths, from those over 1, 2, 4, … rows: log k passes instead of k.

    Rows are processed in blocks that fit the CPU cache, with the following rows that their windows reach.
    """
    n, sums = len(terms), np.zeros(len(terms))
    lengths = stops - np.arange(n)
    rows_at_once = max(_BLOCK, 4 * int(lengths.max(initial=0)))
    for first in range(0, n, rows_at_once):
        end = min(first + rows_at_once, n)
        left, total = lengths[first:end], sums[first:end]
        place, discount = np.arange(len(left)), np.ones(len(left))
        block = terms[first : max(int(stops[first:end].max()), end)].copy()  # sums over `size` rows
        size, step = 1, gamma  # step = gamma^size
        while True:
            rows = np.flatnonzero(left & size)
            total[rows] += discount[rows] * block[place[rows]]
            place[rows] += size
            discount[rows] *= step
            if 2 * size > left.max(initial=0):
                break
            block[:-size] += step * block[size:]
            size, step = 2 * size, step * step
    return sums


def _forward(
    terms: Float64Array,
    ratios: Float64Array,
    stops: Int64Array,
    gamma: float,
    clip: Clip,
    plain: Float64Array | None,
) -> tuple[Float64Array, Float64Array]:
    """The forward algorithm; ``plain``: the sums with weights 1, if windows share their ends, else None."""
    sums, products = np.empty(len(terms)), np.ones(len(terms))
    for first in range(0, len(terms), _BLOCK):
        place = np.arange(first, min(first + _BLOCK, len(terms)))
        left = stops[place] - place  # [b] length of each window
        total, product = np.where(left > 0, terms[place], 0.0), np.ones(len(place))
        discount, m = 1.0, 0
        if plain is None:
            m, discount = _side_by_side(terms, ratios, first, left, gamma, clip, total, product)
        going = left > m + 1
        while True:
            if not going.all():
                done = ~going
                sums[place[done]], products[place[done]] = total[done], product[done]
                place, left, total, product = place[going], left[going], total[going], product[going]
            if not len(place):
                break
            m, discount = m + 1, discount * gamma
            ahead = place + m
            going = left > m + 1
            product *= ratios[ahead]
            np.minimum(product, _LARGEST, out=product)
            weight = product if clip is None else np.clip(product, *clip)
            step = terms[ahead]
            if plain is not None and clip is not None:
                dead = product == 0
                step = np.where(dead, plain[ahead], step)
                going &= ~dead
            total += discount * weight * step
    return sums, products


def _side_by_side(
    terms: Float64Array,
    ratios: Float64Array,
    first: int,
    left: Int64Array,
    gamma: float,
    clip: Clip,
    total: Float64Array,
    product: Float64Array,
) -> tuple[int, float]:
    """The first steps of `_forward` on neighbouring rows, while most windows of the block continue.

    With a slice instead of a gather a step is so cheap that ended windows are computed too; their values at
    the end are restored afterwards. Updates ``total`` and ``product`` in place, and returns the last step m
    and gamma^m.
    """
    b, discount, m, most = len(left), 1.0, 0, len(left)
    weight, ended = np.empty(b), []
    while first + m + 1 + b <= len(terms):
        last = np.flatnonzero(left == m + 1 if m else left <= 1)
        most -= len(last)
        if 2 * most < b:
            break
        if len(last):
            ended.append((last, total[last], product[last]))
        m, discount = m + 1, discount * gamma
        rows = slice(first + m, first + m + b)
        product *= ratios[rows]
        np.minimum(product, _LARGEST, out=product)
        np.clip(product, *(clip or (0.0, _LARGEST)), out=weight)
        with np.errstate(over="ignore", invalid="ignore"):  # rows past their end; the caller refuses others
            weight *= terms[rows]
            weight *= discount
            total += weight
    for last, sums, products in ended:
        total[last], product[last] = sums, products
    return m, discount
