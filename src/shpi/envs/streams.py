"""Random numbers that depend on the user, not on the batch: a pure function of (seed, user, label, counter).

Ten thousand users simulated at once and the same users in ten calls of one thousand get the same numbers,
bit for bit, because no generator is shared between them. Each number is a hash of its own address:

    key_u             = mix(mix(s_0 + u G) + s_1)                 once per user, s = SeedSequence(seed)
    z                 = mix(key_u + mix(s_2 + label H) + counter G)
    z (with columns)  = mix(z + (column + 1) H)
    uniform           = (floor(z / 2^12) + 1/2) / 2^52            never 0 and never 1

``mix`` is Stafford's thirteenth 64-bit finaliser, the output function of SplitMix64 (Steele, Lea and Flood,
2014), so the numbers of one user along the counter are a SplitMix64 stream that starts at a random place.
"""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float64Array, Int64Array, IntArray

UInt64Array = NDArray[np.uint64]

_WORD = (1 << 64) - 1  # a mask of 64 bits
_G = 0x9E3779B97F4A7C15  # odd, 2^64 / golden ratio: the increment of SplitMix64
_H = 0xD1342543DE82EF95  # odd, another increment, for labels and columns
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # multipliers of SplitMix64
_ROUNDS = ((np.uint64(30), np.uint64(_M1)), (np.uint64(27), np.uint64(_M2)))
_LAST_SHIFT, _TO_52_BITS = np.uint64(31), np.uint64(12)
_ONE = np.uint64(0x3FF0000000000000)  # the bits of 1.0
_NEARLY_ONE = 1.0 - 2.0**-53  # subtracted, it takes [1, 2) to (0, 1)
_BLOCK = 1 << 13  # numbers hashed at a time, so that the passes over them stay in the cache


class Streams:
    """The random numbers of some users under one seed. Holds one 64-bit key per user, and no state."""

    __slots__ = ("_keys", "_label_word", "users")

    def __init__(self, seed: int, users: Int64Array) -> None:
        words = np.random.SeedSequence(checked_seed(seed)).generate_state(3, np.uint64)
        self.users: Int64Array = np.ascontiguousarray(users, dtype=np.int64)
        if self.users.ndim != 1:
            raise ConfigError(expected="users of shape [n]", found=f"shape {self.users.shape}")
        self._label_word = int(words[2])
        keys = self.users.view(np.uint64) * np.uint64(_G)
        keys += words[0]
        _mix(keys)
        keys += words[1]
        _mix(keys)
        self._keys: UInt64Array = keys

    def __len__(self) -> int:
        return len(self.users)

    def take(self, index: IntArray | BoolArray) -> Streams:
        """The streams of some of the users (positions, or a mask)."""
        taken = object.__new__(Streams)
        taken.users, taken._keys, taken._label_word = self.users[index], self._keys[index], self._label_word
        return taken

    def uniform(self, label: int, counter: int | IntArray, width: int | None = None) -> Float64Array:
        """Numbers in the open interval (0, 1), [n] or [n, width].

        Args:
            label: purpose of the numbers; different purposes never share a number.
            counter: position along the user's stream, one for all users or one per user [n].
            width: number of columns that each user gets at this counter; None for one number and no column.
        """
        n = len(self._keys)
        start, step = self._address(label, counter)
        if width is None:
            out = np.empty(n)
            for block in _blocks(n, _BLOCK):
                _to_unit(self._row(block, start, step), out[block])
            return out
        out = np.empty((n, width))
        columns = np.arange(1, width + 1, dtype=np.uint64)[:, None] * np.uint64(_H)
        for block in _blocks(n, max(_BLOCK // max(width, 1), 1)):
            z = columns + self._row(block, start, step)  # [width, rows]: rows are long even if width is 2
            _mix(z)
            _to_unit(z, out[block].T)
        return out

    def _row(self, block: slice, start: np.uint64, step: UInt64Array | None) -> UInt64Array:
        z: UInt64Array = self._keys[block] + start
        if step is not None:
            z += step[block]
        _mix(z)
        return z

    def normal(self, label: int, counter: int | IntArray, width: int | None = None) -> Float64Array:
        """Standard normal numbers, [n] or [n, width]: the normal quantile of `uniform`."""
        out = self.uniform(label, counter, width)
        ndtri(out, out=out)
        return out

    def _address(self, label: int, counter: int | IntArray) -> tuple[np.uint64, UInt64Array | None]:
        """The offset of the label and a common counter, and the further offsets of counters by user."""
        start = _mix_word(self._label_word + label * _H)
        if not isinstance(counter, np.ndarray) or counter.ndim == 0:
            return np.uint64((start + int(counter) * _G) & _WORD), None
        if counter.shape != self.users.shape or counter.dtype.kind not in "iu":
            raise ConfigError(
                expected=f"one integer counter, or {len(self.users)} of them",
                found=f"shape {counter.shape}, dtype {counter.dtype}",
            )
        return np.uint64(start), counter.astype(np.int64).view(np.uint64) * np.uint64(_G)


def checked_seed(seed: int) -> int:
    """Check that the seed is a non-negative integer, and return it as a plain int."""
    try:
        number = -1 if isinstance(seed, bool | np.bool_) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise ConfigError(expected="a seed that is a whole number >= 0", found=repr(seed))
    return number


def _mix(z: UInt64Array) -> None:
    """Stafford's finaliser (variant 13), in place."""
    scratch = np.empty_like(z)
    for shift, multiplier in _ROUNDS:
        np.right_shift(z, shift, out=scratch)
        np.bitwise_xor(z, scratch, out=z)
        np.multiply(z, multiplier, out=z)
    np.right_shift(z, _LAST_SHIFT, out=scratch)
    np.bitwise_xor(z, scratch, out=z)


def _mix_word(word: int) -> int:
    """`_mix` of one number."""
    z = word & _WORD
    z = ((z ^ (z >> 30)) * _M1) & _WORD
    z = ((z ^ (z >> 27)) * _M2) & _WORD
    return z ^ (z >> 31)


def _blocks(n: int, rows: int) -> list[slice]:
    return [slice(low, low + rows) for low in range(0, n, rows)]


def _to_unit(z: UInt64Array, out: Float64Array) -> None:
    """The upper 52 bits as the mantissa of a number in [1, 2), moved into (0, 1); exact."""
    np.right_shift(z, _TO_52_BITS, out=z)
    np.bitwise_or(z, _ONE, out=z)
    np.subtract(z.view(np.float64), _NEARLY_ONE, out=out)
