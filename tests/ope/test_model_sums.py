"""Sums of outcome models and what users add through them, against the formulas written out row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.ope.models.backups import Adjoint, contributions
from shpi.ope.models.linear import Design, blocks, model_sums, products, sums_by_step
from shpi.ope.problem import Problem, Settings
from shpi.policies import LinearScorer, Softmax

Target = Literal["pi", "mu"]
USERS, STEPS, WIDTH, ACTIONS = 40, 5, 2, 6


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng, n = np.random.default_rng(4), USERS * STEPS
    contexts = rng.normal(size=(n, WIDTH))
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=rng.integers(0, ACTIONS, n), rewards=rng.normal(size=n), n_actions=ACTIONS,
        propensities=np.full(n, 1 / ACTIONS), offsets=np.arange(USERS + 1) * STEPS,
        terminated=rng.random(USERS) < 0.5, final_contexts=rng.normal(size=(USERS, WIDTH)),
    )  # fmt: skip
    features = Identity().fit(contexts)
    policy = Softmax(LinearScorer(rng.normal(size=(ACTIONS, WIDTH + 1)), features), 1.0)
    return Problem.of(policy, logs, Settings(gamma=0.9))


def own_slopes(target: Target) -> Design:
    codes = np.concatenate([np.ones((ACTIONS, 1)), np.eye(ACTIONS)], axis=1)
    design = Design(features=Identity(intercept=False).fit(np.zeros((1, WIDTH))), codes=codes, target=target)
    assert not design.dense
    return design


def two_kinds(target: Target) -> Design:
    codes = np.stack([np.ones(ACTIONS), np.arange(ACTIONS) % 2], axis=1)
    design = Design(features=Identity(intercept=False).fit(np.zeros((1, WIDTH))), codes=codes, target=target)
    assert design.dense
    return design


def written_out(problem: Problem, design: Design) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """phi and psi of every decision [n, p], and how much each counts as a transition [n]."""
    chunk = next(problem.chunks())
    logs, (block,) = chunk.logs, [*blocks(problem, chunk, design)]
    phi = products(design.codes[logs.actions], design.of(logs.contexts))
    code = chunk.probs_of(slice(0, len(logs))) @ design.codes
    if design.target == "mu":
        code = design.codes[logs.actions]
    psi = np.zeros_like(phi)
    psi[:-1] = products(code, design.of(logs.contexts))[1:]
    psi[logs.offsets[1:] - 1] = 0.0  # nothing follows, or mu there is unknown
    return phi, psi, block.known


@pytest.mark.parametrize("target", ["pi", "mu"])
def test_sums_by_action_are_those_of_all_features(problem: Problem, target: Target) -> None:
    design, chunk = own_slopes(target), next(problem.chunks())
    sums = model_sums(problem, design)
    phi, psi, known = written_out(problem, design)
    assert 0 < (known > 0).sum() < len(known)
    for fold in range(problem.settings.folds):
        mine = chunk.fold == fold
        left = (phi[mine] * known[mine, None]).T
        np.testing.assert_allclose(sums.reward_gram[fold], phi[mine].T @ phi[mine], atol=1e-12)
        np.testing.assert_allclose(sums.reward[fold], phi[mine].T @ chunk.rewards[mine], atol=1e-12)
        np.testing.assert_allclose(sums.gram[fold], left @ phi[mine], atol=1e-12)
        np.testing.assert_allclose(sums.cross[fold], left @ psi[mine], atol=1e-12)


@pytest.mark.parametrize("target", ["pi", "mu"])
@pytest.mark.parametrize("by_fold", [True, False])
@pytest.mark.parametrize("make", [own_slopes, two_kinds])
def test_users_move_a_number_through_the_fits_they_took_part_in(
    make: Callable[[Target], Design], problem: Problem, target: Target, by_fold: bool
) -> None:
    """The part of the steps, with long codes and with short ones; that of the rewards is 0 here."""
    design, chunk, rng = make(target), next(problem.chunks()), np.random.default_rng(1)
    p, nothing = design.p, np.zeros(design.p)
    adjoints = [
        Adjoint(reward=nothing, fitted=nothing, ahead=rng.normal(size=(p, p)), here=rng.normal(size=(p, p)))
        for _ in range(problem.settings.folds if by_fold else 1)
    ]
    phi, psi, known = written_out(problem, design)
    expected = np.zeros(len(phi))
    for left_out, part in enumerate(adjoints):
        moved = np.einsum("np,pq,nq->n", phi, part.ahead, psi) - np.einsum("np,pq,nq->n", phi, part.here, phi)
        expected += known * moved * ((chunk.fold != left_out) | (not by_fold))
    by_user = np.bincount(chunk.users, weights=expected)
    np.testing.assert_allclose(contributions(problem, design, adjoints), by_user, atol=1e-9)


@pytest.mark.parametrize("taken", [True, False])
def test_sums_by_fold_and_step(problem: Problem, taken: bool) -> None:
    design, chunk = own_slopes("pi"), next(problem.chunks())
    weights = np.random.default_rng(2).normal(size=len(chunk.logs))
    code = (
        design.codes[chunk.logs.actions] if taken else chunk.probs_of(slice(0, len(weights))) @ design.codes
    )
    rows = products(code, design.of(chunk.logs.contexts)) * weights[:, None]
    sums = sums_by_step(chunk, design, weights, problem, taken=taken)
    for fold in range(problem.settings.folds):
        for step in range(problem.horizon):
            mine = (chunk.fold == fold) & (chunk.steps == step)
            np.testing.assert_allclose(sums[fold, step], rows[mine].sum(axis=0), atol=1e-12)


def test_features_held_in_order_are_told_apart_by_their_rows(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models of the same features take other numbers of rows at a time, since their codes differ."""
    long, short, weights = own_slopes("pi"), two_kinds("pi"), np.ones(USERS * STEPS)
    alike = Design(features=long.features, codes=short.codes, target="pi")
    alone = sums_by_step(next(problem.chunks()), alike, weights, problem)
    monkeypatch.setattr("shpi.ope.models.linear._ENTRIES", 700)  # 70 and 140 rows
    chunk = next(problem.chunks())
    sums_by_step(chunk, long, weights, problem)
    np.testing.assert_allclose(sums_by_step(chunk, alike, weights, problem), alone, atol=1e-12)
