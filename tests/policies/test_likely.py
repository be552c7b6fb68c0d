"""AmongLikely: f's best action among those that mu is likely to take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.policies import AmongLikely, Greedy, LinearScorer, UniformPolicy, load_policy, save_policy
from shpi.testing import check_policy

FEATURES = Identity(intercept=False).fit(np.zeros((1, 3)))
X = np.random.default_rng(1).normal(size=(50, 3))
MU = np.array([0.5, 0.3, 0.15, 0.05])


class Fixed:
    """The same probabilities everywhere, over the candidates."""

    n_actions = 4

    def action_probs(self, contexts, candidates=None):
        table = np.tile(MU, (len(contexts), 1))
        if candidates is not None:
            table = np.where(candidates, table, 0.0)
        return table / table.sum(axis=1, keepdims=True)


def scorer(seed: int = 0, n_actions: int = 4) -> LinearScorer:
    return LinearScorer(np.random.default_rng(seed).normal(size=(n_actions, 3)), FEATURES)


@pytest.mark.parametrize(("share", "eligible"), [(1.0, 1), (0.6, 2), (0.3, 3), (0.11, 3), (0.1, 4), (0.0, 4)])
def test_it_takes_the_best_of_the_eligible(share: float, eligible: int) -> None:
    scores = scorer().scores(X)[:, :eligible]  # the actions are in the order of mu
    probs = AmongLikely(scorer(), Fixed(), share).action_probs(X)
    np.testing.assert_array_equal(probs.argmax(axis=1), scores.argmax(axis=1))
    np.testing.assert_array_equal(np.sort(probs, axis=1)[:, -1], 1.0)


def test_the_ends_are_the_favourite_and_the_greedy_policy() -> None:
    assert (AmongLikely(scorer(), Fixed(), 1.0).action_probs(X)[:, 0] == 1).all()
    greedy = Greedy(scorer()).action_probs(X)
    for policy in (AmongLikely(scorer(), Fixed(), 0.0), AmongLikely(scorer(), UniformPolicy(4), 1.0)):
        np.testing.assert_array_equal(policy.action_probs(X), greedy)


def test_the_favourite_is_that_of_the_allowed_actions() -> None:
    mask = np.tile([False, True, True, False], (len(X), 1))
    probs = AmongLikely(scorer(), Fixed(), 1.0).action_probs(X, mask)
    assert (probs[:, 1] == 1).all()


def test_it_conforms_and_can_be_saved(tmp_path: Path) -> None:
    policy = AmongLikely(scorer(), UniformPolicy(4), 0.3)
    check_policy(policy, X)
    loaded = load_policy(save_policy(policy, tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.action_probs(X), policy.action_probs(X))


def test_it_says_what_it_does() -> None:
    assert "favourite action" in AmongLikely(scorer(), Fixed(), 1.0).described
    assert "30%" in AmongLikely(scorer(), Fixed(), 0.3).described


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan])
def test_a_share_is_a_part_of_one(share: float) -> None:
    with pytest.raises(ConfigError, match="share in"):
        AmongLikely(scorer(), UniformPolicy(4), share)


def test_f_and_mu_know_the_same_actions() -> None:
    with pytest.raises(Exception, match="3"):
        AmongLikely(scorer(), UniformPolicy(3), 0.5)
