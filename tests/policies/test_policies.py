from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.errors import ActionError, ConfigError, DataError
from shpi.features import Identity, OneHot, RandomFourier, Standardise
from shpi.policies import (
    BehaviourRegularised,
    ConstantPolicy,
    EpsilonGreedy,
    FunctionScorer,
    Greedy,
    LinearScorer,
    Mixture,
    MlpScorer,
    PolicyDensity,
    PseudoCounts,
    Softmax,
    SupportLimited,
    TabularPolicy,
    UniformPolicy,
)
from shpi.policies.heads import softmax
from shpi.testing import check_policy

RNG = np.random.default_rng(0)
D, A = 3, 5
X = RNG.normal(size=(40, D)).astype(np.float32)
MASK = RNG.random((40, A)) < 0.6
MASK[np.arange(40), RNG.integers(0, A, 40)] = True
STATES = RNG.integers(0, 4, size=(40, 1)).astype(np.float64)
TABLE = RNG.dirichlet(np.ones(A), size=4)

LINEAR = LinearScorer(RNG.normal(size=(A, D + 1)), Identity().fit(X))
MLP = MlpScorer(
    [RNG.normal(size=s).astype(np.float32) for s in ((D, 16), (16, 8), (8, A))],
    [RNG.normal(size=s).astype(np.float32) for s in (16, 8, A)],
    Standardise().fit(X),
)
FOURIER = LinearScorer(RNG.normal(size=(A, 21)), RandomFourier(n_features=20).fit(X))
MU = Softmax(FOURIER, temperature=2.0)
COUNTS = PseudoCounts.fit(Identity().fit(X), X, RNG.integers(0, A, 40), A)

KINDS: dict[str, tuple[Any, np.ndarray]] = {
    "uniform": (UniformPolicy(A), X),
    "constant": (ConstantPolicy([0.1, 0.2, 0.3, 0.4, 0.0]), X),
    "tabular": (TabularPolicy(TABLE), STATES),
    "mixture": (Mixture([Greedy(LINEAR), UniformPolicy(A), MU], [0.5, 0.2, 0.3]), X),
    "greedy": (Greedy(LINEAR), X),
    "greedy-mlp": (Greedy(MLP), X),
    "epsilon-greedy": (EpsilonGreedy(MLP, 0.3), X),
    "softmax": (Softmax(LINEAR, temperature=0.5), X),
    "behaviour-regularised": (BehaviourRegularised(LINEAR, MU, beta=0.7), X),
    "behaviour-regularised-narrow": (BehaviourRegularised(LINEAR, Greedy(MLP), beta=0.7), X),
    "spibb-counts": (SupportLimited(LINEAR, MU, COUNTS, threshold=3.0), X),
    "spibb-density": (SupportLimited(LINEAR, MU, PolicyDensity(MU), threshold=0.2), X),
    "mbs-counts": (SupportLimited(LINEAR, MU, COUNTS, threshold=3.0, mode="mbs"), X),
    "mbs-density": (SupportLimited(LINEAR, MU, PolicyDensity(MU), threshold=0.3, mode="mbs"), X),
}


@pytest.mark.parametrize("name", KINDS)
def test_conformance(name: str) -> None:
    policy, contexts = KINDS[name]
    mask = MASK
    if name == "constant":
        mask = MASK.copy()
        mask[:, 0] = True  # its last action has probability 0 and cannot stand alone
    check_policy(policy, contexts, mask)


def test_function_scorer_conforms_but_cannot_be_saved() -> None:
    scorer = FunctionScorer(lambda x: x @ np.ones((D, A)) + np.arange(A), n_actions=A, width=D)
    check_policy(Softmax(scorer), X, MASK, saves=False)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_random_heads_keep_the_contract(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    scorer = LinearScorer(scale * rng.normal(size=(A, D + 1)), Identity().fit(X))
    mask = rng.random((40, A)) < 0.4
    mask[np.arange(40), rng.integers(0, A, 40)] = True
    for policy in (
        EpsilonGreedy(scorer, float(rng.random())),
        Softmax(scorer, temperature=float(rng.random() + 1e-6)),
        BehaviourRegularised(scorer, MU, beta=float(rng.random() + 1e-6)),
        SupportLimited(scorer, MU, PolicyDensity(MU), threshold=float(rng.random())),
        SupportLimited(scorer, MU, PolicyDensity(MU), threshold=float(rng.random()), mode="mbs"),
    ):
        probs = policy.action_probs(X, mask)
        np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert (probs >= 0).all()
        assert (probs[~mask] == 0).all()


# ---------------------------------------------------------------------- closed forms


def fixed(scores: Any) -> FunctionScorer:
    table = np.atleast_2d(np.asarray(scores, dtype=float))
    return FunctionScorer(lambda x: np.tile(table, (len(x), 1))[: len(x)], n_actions=table.shape[1])


ONE = np.zeros((1, 2))


def test_greedy_ties_go_to_the_lowest_allowed_action() -> None:
    policy = Greedy(fixed([1.0, 3.0, 3.0, 3.0]))
    assert policy.action_probs(ONE).tolist() == [[0, 1, 0, 0]]
    assert policy.action_probs(ONE, np.array([[True, False, True, True]])).tolist() == [[0, 0, 1, 0]]
    assert Greedy(fixed([0.0, 0.0])).action_probs(ONE).tolist() == [[1, 0]]


def test_epsilon_greedy_by_hand() -> None:
    policy = EpsilonGreedy(fixed([0.0, 5.0, 1.0]), 0.3)
    np.testing.assert_allclose(policy.action_probs(ONE), [[0.1, 0.8, 0.1]], rtol=1e-14)
    mask = np.array([[True, False, True]])
    np.testing.assert_allclose(policy.action_probs(ONE, mask), [[0.15, 0.0, 0.85]], rtol=1e-14)
    np.testing.assert_allclose(EpsilonGreedy(fixed([1, 2]), 1.0).action_probs(ONE), [[0.5, 0.5]])
    np.testing.assert_allclose(EpsilonGreedy(fixed([1, 2]), 0.0).action_probs(ONE), [[0.0, 1.0]])


def test_softmax_by_hand_and_at_extremes() -> None:
    np.testing.assert_allclose(
        Softmax(fixed(np.log([1.0, 2.0, 5.0]))).action_probs(ONE), [[0.125, 0.25, 0.625]], rtol=1e-14
    )
    np.testing.assert_allclose(
        Softmax(fixed([1e300, -1e300, 1e300]), temperature=1e-300).action_probs(ONE), [[0.5, 0, 0.5]]
    )
    np.testing.assert_allclose(
        Softmax(fixed([0, 5]), temperature=1e9).action_probs(ONE), [[0.5, 0.5]], atol=1e-8
    )
    with pytest.raises(ActionError, match=r"positive probability in every row, found none \(row 0\)"):
        softmax(np.full((1, 3), -np.inf))


def test_behaviour_regularised_solves_its_problem() -> None:
    f, mu, beta = np.array([0.3, -1.0, 2.0, 0.5]), np.array([0.4, 0.3, 0.1, 0.2]), 0.8
    pi = BehaviourRegularised(fixed(f), ConstantPolicy(mu), beta=beta).action_probs(ONE)[0]
    np.testing.assert_allclose(pi, mu * np.exp(f / beta) / (mu * np.exp(f / beta)).sum(), rtol=1e-13)

    def objective(p: np.ndarray) -> np.ndarray:
        return p @ f - beta * np.where(p > 0, p * np.log(np.maximum(p, 1e-300) / mu), 0).sum(axis=-1)

    others = np.random.default_rng(0).dirichlet(np.ones(4), size=5000)
    assert objective(pi) > objective(others).max()
    assert objective(pi) == pytest.approx(beta * np.log((mu * np.exp(f / beta)).sum()))


def test_behaviour_regularised_limits_and_support() -> None:
    mu = ConstantPolicy([0.5, 0.5, 0.0])
    f = fixed([1.0, 2.0, 1e12])  # the best score is where mu never goes
    np.testing.assert_allclose(BehaviourRegularised(f, mu, beta=1e-9).action_probs(ONE), [[0, 1, 0]])
    np.testing.assert_allclose(
        BehaviourRegularised(f, mu, beta=1e9).action_probs(ONE), [[0.5, 0.5, 0]], atol=1e-8
    )
    with pytest.raises(ActionError, match="never takes"):
        BehaviourRegularised(f, mu).action_probs(ONE, np.array([[False, False, True]]))


def test_spibb_by_hand() -> None:
    mu, f = ConstantPolicy([0.1, 0.2, 0.3, 0.4]), fixed([9.0, 1.0, 2.0, 8.0])
    counts = fixed([0, 5, 5, 0])  # actions 1 and 2 are known; 2 scores better
    policy = SupportLimited(f, mu, counts, threshold=5)
    np.testing.assert_allclose(policy.action_probs(ONE), [[0.1, 0.0, 0.5, 0.4]], rtol=1e-14)
    mask = np.array([[True, True, False, False]])  # mu becomes 1/3, 2/3; only action 1 is known
    np.testing.assert_allclose(policy.action_probs(ONE, mask), [[1 / 3, 2 / 3, 0, 0]], rtol=1e-14)
    unknown = SupportLimited(f, mu, counts, threshold=6)
    np.testing.assert_allclose(unknown.action_probs(ONE), [[0.1, 0.2, 0.3, 0.4]])
    known = SupportLimited(f, mu, counts, threshold=0)
    np.testing.assert_allclose(known.action_probs(ONE), [[1, 0, 0, 0]])


def test_mbs_by_hand() -> None:
    mu, f, counts = ConstantPolicy([0.1, 0.2, 0.3, 0.4]), fixed([9.0, 1.0, 2.0, 8.0]), fixed([0, 5, 5, 0])
    policy = SupportLimited(f, mu, counts, threshold=5, mode="mbs")
    np.testing.assert_allclose(policy.action_probs(ONE), [[0, 0, 1, 0]])
    mask = np.array([[True, False, False, True]])  # nothing known is allowed: do what mu does there
    np.testing.assert_allclose(policy.action_probs(ONE, mask), [[0.2, 0, 0, 0.8]], rtol=1e-14)


def test_pseudo_counts_are_counts_on_states() -> None:
    rng = np.random.default_rng(2)
    states, actions = rng.integers(0, 6, size=500), rng.integers(0, 4, size=500)
    actions[states == 3] = 0  # in state 3 only action 0 was ever taken
    truth = np.zeros((6, 4))
    np.add.at(truth, (states, actions), 1)
    x = states[:, None].astype(float)
    counts = PseudoCounts.fit(OneHot(n_states=6).fit(x), x, actions, 4, ridge=0.5)
    np.testing.assert_allclose(counts.scores(np.arange(6.0)[:, None]), truth, atol=1e-10)


def test_pseudo_counts_of_smooth_features_fall_away_from_the_data() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 2))
    phi = RandomFourier(n_features=100, bandwidth=1.0, intercept=False).fit(x)
    counts = PseudoCounts.fit(phi, x, np.zeros(2000, int), 2).scores(
        np.array([[0.0, 0.0], [3.0, 3.0], [30, 30]])
    )
    assert counts[0, 0] > 5 * counts[1:, 0].max()
    assert (counts[:, 1] < 1e-9).all()  # action 1 was never taken


def test_mixture_and_tabular_by_hand() -> None:
    mixture = Mixture([ConstantPolicy([1.0, 0.0]), ConstantPolicy([0.0, 1.0])], [0.25, 0.75])
    assert mixture.action_probs(ONE).tolist() == [[0.25, 0.75]]
    np.testing.assert_array_equal(TabularPolicy(TABLE).action_probs(STATES), TABLE[STATES[:, 0].astype(int)])
    with pytest.raises(DataError, match=r"state number in 0\.\.3"):
        TabularPolicy(TABLE).action_probs(np.array([[4.0]]))
    with pytest.raises(DataError, match="column 1"):
        TabularPolicy(TABLE, column=1).action_probs(STATES)


def test_mlp_forward_pass_by_hand() -> None:
    w, b = [np.array([[1.0, -1.0]]), np.array([[2.0], [3.0]])], [np.array([0.0, 0.5]), np.array([-1.0])]
    scorer = MlpScorer(w, b, Identity(intercept=False).fit(np.zeros((1, 1))))
    # x = 2: relu(2, -1.5) = (2, 0) -> 3;  x = -2: relu(-2, 2.5) = (0, 2.5) -> 6.5
    np.testing.assert_allclose(scorer.scores(np.array([[2.0], [-2.0]])), [[3.0], [6.5]])


def test_mlp_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    z = torch.tensor(MLP.features.transform(X))
    for i, (weights, bias) in enumerate(zip(MLP.weights, MLP.biases, strict=True)):
        z = z @ torch.tensor(weights).double() + torch.tensor(bias).double()
        z = torch.relu(z) if i < 2 else z
    np.testing.assert_allclose(MLP.scores(X), z.numpy(), rtol=1e-12)


def test_policies_are_immutable() -> None:
    policy = EpsilonGreedy(LINEAR, 0.1)
    with pytest.raises(AttributeError):
        policy.epsilon = 0.2  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        LINEAR.weights[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        MLP.weights[0][0, 0] = 1.0
    weights = np.ones((A, D + 1))
    scorer = LinearScorer(weights, Identity().fit(X))
    weights[:] = 5
    assert scorer.weights.max() == 1


def test_act_gives_a_prefix_of_the_same_stream() -> None:
    policy = UniformPolicy(A)
    actions, propensities = policy.act(X, seed=3)
    np.testing.assert_array_equal(policy.act(X[:7], seed=3)[0], actions[:7])
    assert (propensities == 1 / A).all()
    assert (policy.act(X, seed=4)[0] != actions).any()
    np.testing.assert_array_equal(policy.act(X, seed=np.random.SeedSequence(3))[0], actions)


# ---------------------------------------------------------------------- bad input

BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: UniformPolicy(0), ConfigError, "at least one action"),
    (lambda: ConstantPolicy([0.5, 0.6]), ConfigError, "sum to 1"),
    (lambda: ConstantPolicy([1.5, -0.5]), ConfigError, "non-negative"),
    (lambda: ConstantPolicy([]), ConfigError, "sum to 1"),
    (lambda: ConstantPolicy([np.nan, 1.0]), ConfigError, "finite"),
    (lambda: TabularPolicy([0.5, 0.5]), ConfigError, "2 axes"),
    (lambda: TabularPolicy(TABLE, column=-1), ConfigError, "column"),
    (lambda: Mixture([UniformPolicy(2), UniformPolicy(3)], [0.5, 0.5]), ConfigError, "same actions"),
    (lambda: Mixture([UniformPolicy(2)], [0.5, 0.5]), ConfigError, "one weight per policy"),
    (lambda: Mixture([], []), ConfigError, "sum to 1"),
    (lambda: EpsilonGreedy(LINEAR, 1.1), ConfigError, r"epsilon in \[0, 1\]"),
    (lambda: EpsilonGreedy(LINEAR, float("nan")), ConfigError, r"epsilon in \[0, 1\]"),
    (lambda: Softmax(LINEAR, temperature=0.0), ConfigError, "positive temperature"),
    (lambda: BehaviourRegularised(LINEAR, MU, beta=-1), ConfigError, "positive beta"),
    (lambda: BehaviourRegularised(LINEAR, UniformPolicy(2)), ConfigError, "scorer's 5 actions"),
    (lambda: SupportLimited(LINEAR, MU, COUNTS, float("inf")), ConfigError, "finite threshold"),
    (lambda: SupportLimited(LINEAR, MU, COUNTS, 1.0, "both"), ConfigError, "'spibb' or 'mbs'"),  # type: ignore[arg-type]
    (lambda: SupportLimited(LINEAR, MU, fixed([1, 2]), 1.0), ConfigError, "2 actions"),
    (lambda: LinearScorer(np.ones((A, D)), Identity().fit(X)), ConfigError, r"weights of shape \[A, 4\]"),
    (lambda: LinearScorer(np.full((A, D + 1), np.nan), Identity().fit(X)), ConfigError, "finite"),
    (lambda: MlpScorer([np.ones((2, A))], [np.ones(A)], Standardise().fit(X)), ConfigError, "fit together"),
    (lambda: MlpScorer([np.ones((D, A))], [np.ones(2)], Standardise().fit(X)), ConfigError, "fit together"),
    (lambda: MlpScorer([], [], Standardise().fit(X)), ConfigError, "fit together"),
    (lambda: PseudoCounts.fit(Identity().fit(X), X, np.zeros(40), A), ActionError, "integer actions"),
    (lambda: PseudoCounts.fit(Identity().fit(X), X, np.full(40, A), A), ActionError, r"actions in 0\.\.4"),
    (lambda: PseudoCounts.fit(Identity().fit(X), X, np.zeros(40, int), A, ridge=0), ConfigError, "ridge"),
    (lambda: Greedy(LINEAR).action_probs(X[:, :2]), DataError, r"shape \[n, 3\]"),
    (lambda: Greedy(LINEAR).action_probs(np.full((1, D), np.inf)), DataError, "finite contexts"),
    (lambda: Greedy(LINEAR).action_probs(X[0]), DataError, r"needs shape \[1, d\]"),
    (lambda: Greedy(fixed([1.0, np.nan])).action_probs(ONE), DataError, "finite scores, found nan"),
    (
        lambda: Greedy(FunctionScorer(lambda x: np.ones(3), n_actions=2)).action_probs(ONE),
        DataError,
        r"scores of shape \(1, 2\)",
    ),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input(case: int) -> None:
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()
