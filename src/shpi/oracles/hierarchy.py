"""Hierarchical ridge regression in closed form, with coefficients shared by actions and per action.

    f(x, a) = phi(x)'(B psi_a + w_a)
    minimise  sum_i omega_i (y_i - f(x_i, a_i))^2  +  lambda_0 |B|^2  +  lambda sum_a |w_a|^2

psi_a = 1 gives the shared part phi(x)'w_0 of the plain model; psi_a = (1, features of a) makes the shared
part bilinear in context and action, so that actions with similar features learn from each other. The data
cannot distinguish B psi_a from w_a; the two penalties do: w_a is shrunk towards 0, so f(x, a) towards the
shared part. An action that was never taken gets the shared part alone.

Eliminating w_a, with G_a = U_a D_a U_a' (computed once) and s = 1 / (1 + D_a / lambda), both diagonal:

    (lambda_0 I + sum_a psi_a psi_a' (x) K_a) vec B = sum_a psi_a (x) k_a,   K_a = U D s U',  k_a = U s U' c_a
    w_a = U (D + lambda)^-1 U' (c_a - G_a B psi_a)

K_a is the Schur complement: the information of G_a about B after eliminating w_a. A new target needs c_a, one
solve with an existing factor, and a few products. lambda = infinity is allowed; then every w_a is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from shpi.errors import ConfigError
from shpi.oracles.statistics import GramStatistics
from shpi.protocols import Float64Array

_CHUNK = 1 << 24  # floats of the temporary [actions, p, p] of one chunk of actions


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """The eigenvectors and eigenvalues of every G_a, which serve for all penalties."""

    vectors: Float64Array  # [A, p, p]
    values: Float64Array  # [A, p], at least 0

    @classmethod
    def of(cls, statistics: GramStatistics) -> Spectrum:
        """Decompose the actions that were taken; the others have G_a = 0."""
        count, width, _ = statistics.grams.shape
        vectors = np.zeros((count, width, width))
        vectors[:] = np.eye(width)
        values = np.zeros((count, width))
        taken = np.flatnonzero(statistics.counts > 0)
        values[taken], vectors[taken] = np.linalg.eigh(statistics.grams[taken])
        np.maximum(values, 0.0, out=values)
        return cls(vectors=vectors, values=values)

    def rotate(self, rows: Float64Array) -> Float64Array:
        """U_a' v_a for every action [A, p]."""
        turned: Float64Array = np.matmul(rows[:, None, :], self.vectors)[:, 0]
        return turned

    def rotate_back(self, rows: Float64Array) -> Float64Array:
        """U_a v_a for every action [A, p]."""
        turned: Float64Array = np.matmul(self.vectors, rows[:, :, None])[:, :, 0]
        return turned


@dataclass(frozen=True, kw_only=True, eq=False)
class Coupling:
    """sum_a psi_a psi_a' (x) K_a for one lambda, before lambda_0 is added."""

    spectrum: Spectrum
    psi: Float64Array  # [A, m]
    penalty: float
    matrix: Float64Array  # [m p, m p]

    @classmethod
    def of(cls, spectrum: Spectrum, psi: Float64Array, penalty: float) -> Coupling:
        """Sum over the actions, a chunk of them at a time."""
        if not penalty > 0:
            raise ConfigError(expected="a positive penalty", found=str(penalty))
        (count, width), m = spectrum.values.shape, psi.shape[1]
        remaining = spectrum.values / (1.0 + spectrum.values / penalty)  # [A, p] D s
        matrix = np.zeros((m, m, width * width))
        step = max(1, _CHUNK // width**2)
        for start in range(0, count, step):
            block = slice(start, min(start + step, count))
            u = spectrum.vectors[block]
            k = np.matmul(u * remaining[block, None, :], u.transpose(0, 2, 1)).reshape(len(u), -1)
            pairs = psi[block, :, None] * psi[block, None, :]  # [chunk, m, m]
            matrix += (pairs.reshape(len(u), -1).T @ k).reshape(m, m, -1)
        square = matrix.reshape(m, m, width, width).transpose(0, 2, 1, 3).reshape(m * width, m * width)
        return cls(spectrum=spectrum, psi=psi, penalty=penalty, matrix=square)

    def solver(self, shared_penalty: float) -> Solver:
        """Add lambda_0 and factorise."""
        if not (np.isfinite(shared_penalty) and shared_penalty > 0):
            raise ConfigError(expected="a positive, finite shared penalty", found=str(shared_penalty))
        total = self.matrix + shared_penalty * np.eye(len(self.matrix))
        return Solver(coupling=self, factor=linalg.cholesky(total, lower=True, check_finite=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Solver:
    """The factors that do not depend on the targets."""

    coupling: Coupling
    factor: Float64Array  # [m p, m p] lower Cholesky factor

    def solve(self, cross: Float64Array) -> Float64Array:
        """B psi_a + w_a for every action [A, p], from the cross moments c_a [A, p]."""
        spectrum, psi, penalty = self.coupling.spectrum, self.coupling.psi, self.coupling.penalty
        values, turned = spectrum.values, spectrum.rotate(cross)
        right = psi.T @ spectrum.rotate_back(turned / (1.0 + values / penalty))  # [m, p]
        shared = linalg.cho_solve((self.factor, True), right.ravel(), check_finite=False)
        base: Float64Array = psi @ shared.reshape(right.shape)  # [A, p]
        own = (turned - values * spectrum.rotate(base)) / (values + penalty)
        return base + spectrum.rotate_back(own)
