"""The fixed parts of a RecoGym world: chain of user states, product embeddings, view and click probabilities.

Notation: P products, K latent dimensions, s(x) = 1/(1+exp(-x)), omega the latent interest of a user.

    version 1    view   ~ softmax(Gamma omega + mu_organic)
                 click  ~ Bernoulli( s(5 s(2 s(0.3 x) - 2) - 6) ),     x = <beta_a, omega> + mu_bandit_a
    version 0    view   ~ uniform in the cluster of the product seen last
                 click  ~ Bernoulli( M[a, product seen last] ),        M = s((P/5)(T + T') + phi - 5)

The worlds are drawn like those of the original RecoGym, so the same seed gives the same embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from shpi.envs.base import real_number, whole_number
from shpi.envs.streams import checked_seed
from shpi.errors import ConfigError
from shpi.protocols import Float64Array, Int64Array

ORGANIC, BANDIT, STOP = 0, 1, 2  # codes of a user's states


def click_curve(x: ArrayLike) -> Float64Array:
    """The click probability of an affinity x: s(5 s(2 s(0.3 x) - 2) - 6), between 0.0045 and 0.0293."""
    inner = expit(0.3 * np.asarray(x, dtype=np.float64))
    return np.asarray(expit(5.0 * expit(2.0 * inner - 2.0) - 6.0), dtype=np.float64)


def chain(
    organic_to_bandit: float, bandit_to_organic: float, leave_organic: float, leave_bandit: float
) -> Float64Array:
    """Transition probabilities [3, 3] between organic, bandit and stop; rows sum to 1."""
    return np.array(
        [
            [1.0 - (organic_to_bandit + leave_organic), organic_to_bandit, leave_organic],
            [bandit_to_organic, 1.0 - (bandit_to_organic + leave_bandit), leave_bandit],
            [0.0, 0.0, 1.0],
        ]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LatentWorld:
    """The products of version 1: embeddings and popularity, for browsing and for recommendations."""

    gamma: Float64Array  # [P, K] organic embeddings
    mu_organic: Float64Array  # [P]
    beta: Float64Array  # [P, K] embeddings of the response to a recommendation
    mu_bandit: Float64Array  # [P]

    @classmethod
    def draw(
        cls,
        seed: int,
        *,
        n_products: int = 100,
        latent: int = 5,
        sigma_mu_organic: float = 3.0,
        number_of_flips: int = 0,
        normalize_beta: bool = False,
        as_original: bool = False,
    ) -> LatentWorld:
        """Gamma ~ N(0, 1) row by row, then mu_organic ~ N(0, sigma_mu_organic), as in the original."""
        shape = (whole_number("n_products", n_products, least=1), whole_number("latent", latent, least=1))
        scale = real_number("sigma_mu_organic", sigma_mu_organic, least=0.0)
        rng = np.random.RandomState(_legacy_seed(seed))
        gamma = rng.normal(size=shape)
        mu = rng.normal(0.0, scale, size=shape[0])
        return cls.of(
            gamma, mu, number_of_flips=number_of_flips, normalize_beta=normalize_beta, as_original=as_original
        )

    @classmethod
    def of(
        cls,
        gamma: ArrayLike,
        mu: ArrayLike,
        *,
        number_of_flips: int = 0,
        normalize_beta: bool = False,
        as_original: bool = False,
    ) -> LatentWorld:
        """The world of given embeddings Gamma [P, K] and popularities mu [P] (or [P, 1])."""
        organic = np.array(gamma, dtype=np.float64)
        offset = np.array(mu, dtype=np.float64).reshape(-1)
        if organic.ndim != 2 or not organic.size or offset.shape != (len(organic),):
            raise ConfigError(
                expected="Gamma of shape [P, K] and mu of shape [P]",
                found=f"shapes {organic.shape} and {np.shape(mu)}",
            )
        if not (np.isfinite(organic).all() and np.isfinite(offset).all()):
            raise ConfigError(expected="finite Gamma and mu", found="NaN or infinity")
        swapped = flipped_products(organic, number_of_flips, as_original=as_original)
        beta = organic[swapped]
        if normalize_beta:
            beta = beta / np.sqrt((beta**2).sum(axis=1, keepdims=True))
        return cls(gamma=organic, mu_organic=offset, beta=beta, mu_bandit=offset[swapped])

    @property
    def n_products(self) -> int:
        """P."""
        return len(self.gamma)

    @property
    def latent(self) -> int:
        """K."""
        return int(self.gamma.shape[1])

    def organic_probs(self, omega: Float64Array) -> Float64Array:
        """The probability of viewing each product next: omega [n, K] to [n, P]."""
        logits = omega @ self.gamma.T + self.mu_organic
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)

    def click_probs(self, omega: Float64Array) -> Float64Array:
        """The probability of a click on each product, if it is recommended: omega [n, K] to [n, P]."""
        return click_curve(omega @ self.beta.T + self.mu_bandit)


def flipped_products(gamma: Float64Array, flips: int, *, as_original: bool) -> Int64Array:
    """The organic product [P] that each recommended product behaves like: similar pairs are exchanged.

    Pairs are taken greedily by <Gamma_i, Gamma_j>, each product at most once. The original also lets a
    product be exchanged with itself, which counts as a flip, once no pair with a positive product is left.
    """
    count, total = whole_number("number_of_flips", flips, least=0), len(gamma)
    if not as_original and 2 * count > total:
        raise ConfigError(
            expected=f"number_of_flips of at most {total // 2}, half of the {total} products",
            found=str(count),
        )
    index = np.arange(total)
    if count == 0:
        return index
    similarity = gamma @ gamma.T
    np.fill_diagonal(similarity, 0.0 if as_original else -np.inf)
    used = np.zeros(total, dtype=bool)
    done = 0
    for pair in np.argsort(similarity, axis=None)[::-1]:
        i, j = divmod(int(pair), total)
        if used[i] or used[j]:
            continue
        index[i], index[j] = j, i
        used[i] = used[j] = True
        done += 1
        if done == count:
            break
    return index


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterWorld:
    """The products of version 0: equal clusters, and noise between browsing and recommendations."""

    num_clusters: int
    phi: Float64Array  # [P, P]

    def __post_init__(self) -> None:
        total = len(self.phi)
        if self.phi.shape != (total, total) or not total or not np.isfinite(self.phi).all():
            raise ConfigError(expected="finite phi of shape [P, P]", found=f"shape {self.phi.shape}")
        if total % whole_number("num_clusters", self.num_clusters, least=1):
            raise ConfigError(
                expected="n_products divisible by num_clusters", found=f"{total} and {self.num_clusters}"
            )

    @classmethod
    def draw(
        cls, seed: int, *, n_products: int = 100, num_clusters: int = 2, phi_var: float = 0.1
    ) -> ClusterWorld:
        """Noise phi ~ N(0, sqrt(phi_var)) for each pair of products, as the original draws it."""
        size = whole_number("n_products", n_products, least=1)
        spread = np.sqrt(real_number("phi_var", phi_var, least=0.0))
        rng = np.random.RandomState(_legacy_seed(seed))
        return cls(num_clusters=num_clusters, phi=rng.normal(0.0, spread, size=(size, size)))

    @property
    def n_products(self) -> int:
        """P."""
        return len(self.phi)

    @property
    def cluster_size(self) -> int:
        """P / C."""
        return self.n_products // self.num_clusters

    @property
    def product_transition(self) -> Float64Array:
        """T [P, P]: C/P within a cluster, 0 elsewhere."""
        block = np.full((self.cluster_size, self.cluster_size), 1.0 / self.cluster_size)
        return np.kron(np.eye(self.num_clusters), block)

    def click_probs(self) -> Float64Array:
        """M [P, P]: the click probability of action a (row) when product j was seen last (column)."""
        step = self.product_transition
        logits = self.n_products / 5.0 * (step + step.T) + self.phi - 5.0
        return np.asarray(expit(logits), dtype=np.float64)


def _legacy_seed(seed: int) -> int:
    """A seed that the original's generator accepts."""
    number = checked_seed(seed)
    if number >= 2**32:
        raise ConfigError(expected="world_seed below 2**32", found=str(number))
    return number
