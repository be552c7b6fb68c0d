"""World models fitted to simulated logs, where the truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.envs import FittedWorld, Storefront, Synthetic, WorldModel, mean_return
from shpi.envs.rollout import rollout
from shpi.errors import ActionError, ConfigError, DataError, EpisodeError
from shpi.policies import ConstantPolicy, TabularPolicy, UniformPolicy

ARRAYS = ("contexts", "actions", "rewards", "propensities", "offsets", "session_offsets", "final_contexts")
POLICIES = ("uniform", "bandit", "session_rl", "shpi", "optimal")


@pytest.fixture(scope="module")
def shop_logs() -> tuple[LoggedData, LoggedData]:
    logs = Storefront().rollout(UniformPolicy(5), 4000, seed=0)
    train, held_out = logs.split_users(0.25, seed=0)
    return train, held_out


@pytest.fixture(scope="module")
def shop(shop_logs: tuple[LoggedData, LoggedData]) -> FittedWorld:
    return WorldModel(members=3).fit(shop_logs[0], seed=0)


@pytest.fixture(scope="module")
def drift() -> FittedWorld:
    """A world with real-valued rewards and contexts, in which nobody leaves and contexts hide nothing."""
    logs = Synthetic(horizon=25, tau=1, rho=1).rollout(UniformPolicy(10), 400, seed=0)
    return WorldModel(members=2, ridge=1.0, bins=48).fit(logs, seed=0)


def assert_same_log(log: LoggedData, expected: LoggedData) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(log, name), getattr(expected, name), err_msg=name)
    for name, values in expected.metrics.items():
        np.testing.assert_array_equal(log.metrics[name], values, err_msg=name)


# ---------------------------------------------------------------------- against the truth


def test_policies_are_worth_what_they_are_in_the_shop(shop: FittedWorld) -> None:
    truth, real = [], Storefront()
    values = []
    for name in POLICIES:
        table = getattr(real, name)()
        truth.append(real.exact_value(table))
        logs = shop.rollout(TabularPolicy(table), 3000, seed=1)
        assert logs.rewards is not None
        values.append(logs.rewards.sum() / 3000)
        sessions = logs.n_sessions / 3000
        assert sessions == pytest.approx(real.expected_sessions(table), rel=0.06)
    np.testing.assert_allclose(values, truth, rtol=0.1)  # policies that the log never followed
    assert values == sorted(values)


def test_simulated_log_looks_like_the_log(
    shop: FittedWorld, shop_logs: tuple[LoggedData, LoggedData]
) -> None:
    held_out, again = shop_logs[1], shop.rollout(UniformPolicy(5), 3000, seed=2)
    assert held_out.rewards is not None
    assert again.rewards is not None
    for action in range(5):
        here, there = held_out.actions == action, again.actions == action
        assert again.rewards[there].mean() == pytest.approx(held_out.rewards[here].mean(), abs=0.03)
    lengths = np.diff(again.session_offsets)[:-1]
    assert (lengths == 2).mean() > 0.97  # two recommendations per session
    states = {tuple(row) for row in Storefront().contexts.astype(np.float32)}
    inside = np.array([tuple(row) in states for row in again.contexts])
    assert inside.mean() > 0.99  # copied contexts stay contexts of the shop


def test_report_on_held_out_users(shop: FittedWorld, shop_logs: tuple[LoggedData, LoggedData]) -> None:
    report = shop.report(shop_logs[1])
    back = report.prediction("return within any time")
    assert back.skill > 0.75
    assert back.worst < 0.12  # six random splits gave 0.05 to 0.11
    assert back.observed == pytest.approx(back.predicted, abs=0.02)
    reward = report.prediction("reward")
    assert reward.without is not None
    assert reward.skill > reward.without + 0.05
    assert reward.worst < 0.06
    assert report.length_distance < 0.02
    assert report.action_distance < 0.01
    by_name = {row.name: row for row in report.simulated}
    for name in ("decisions per user, mean", "sessions per user, mean", "reward per decision"):
        assert by_name[name].simulated == pytest.approx(by_name[name].held_out, rel=0.06)
    assert sum(report.prediction("session end").group_rows) == len(shop_logs[1])


def test_report_is_text_and_json(shop: FittedWorld, shop_logs: tuple[LoggedData, LoggedData]) -> None:
    report = shop.report(shop_logs[1])
    text = str(report)
    for words in ("1,000 held-out users", "Calibration of 'return", "Session lengths", "Reward by action"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 100
    data = json.loads(json.dumps(report.to_json()))
    assert data["users"] == 1000
    assert data["worst_calibration"]["reward"] == report.prediction("reward").worst


def test_real_rewards_and_contexts(drift: FittedWorld) -> None:
    real = Synthetic(horizon=25, tau=1, rho=1)
    held_out = real.rollout(UniformPolicy(10), 200, seed=9)
    report = drift.report(held_out)
    assert report.prediction("reward").measure == "R2"
    assert report.prediction("reward").skill > 0.9
    assert report.lengths == ()  # no session ends in this log
    by_name = {row.name: row for row in report.simulated}
    assert by_name["decisions per user, mean"].simulated == 25
    # The same action again and again pushes contexts as in the original, while the log knows them.
    pushes = real.action_features
    for action in (int(np.argmax(pushes[:, 0])), int(np.argmin(pushes[:, 0]))):
        always, moves = ConstantPolicy(np.eye(10)[action]), []
        for world in (real, drift):
            logs = rollout(world, always, 200, seed=3, horizon=6)
            moves.append((logs.final_contexts - logs.contexts[logs.offsets[:-1]])[:, 0].mean())
        assert moves[1] == pytest.approx(moves[0], rel=0.05)


# ---------------------------------------------------------------------- chance


@pytest.mark.parametrize("parts", [(60,), (1, 59), (15, 26, 19)])
@pytest.mark.parametrize("member", [None, 1, "mix"])
def test_batches_do_not_matter(
    shop: FittedWorld, drift: FittedWorld, parts: tuple[int, ...], member: int | str | None
) -> None:
    for world in (shop, drift):
        chosen = world.with_member(member)  # type: ignore[arg-type]
        policy = UniformPolicy(world.n_actions)
        whole = chosen.rollout(policy, 60, seed=4)
        firsts = np.cumsum((0, *parts))[:-1]
        pieces = [chosen.rollout(policy, n, 4, first=int(f)) for n, f in zip(parts, firsts, strict=True)]
        joined = pieces[0] if len(pieces) == 1 else LoggedData.concat(pieces)
        assert_same_log(joined, whole)


def test_a_thousand_users_at_once_or_in_ten_calls(shop: FittedWorld, drift: FittedWorld) -> None:
    for world in (shop, drift):
        policy = UniformPolicy(world.n_actions)
        parts = [world.rollout(policy, 100, 6, first=first) for first in range(0, 1000, 100)]
        assert_same_log(LoggedData.concat(parts), world.rollout(policy, 1000, seed=6))


def test_seeds_and_fits_are_reproducible(shop_logs: tuple[LoggedData, LoggedData]) -> None:
    few = shop_logs[0].select(np.arange(300))
    one, again = (WorldModel(members=2).fit(few, seed=0) for _ in range(2))
    np.testing.assert_array_equal(again.models.reward.numbers, one.models.reward.numbers)
    policy = UniformPolicy(5)
    assert again.rollout(policy, 50, 1).fingerprint() == one.rollout(policy, 50, 1).fingerprint()
    assert one.rollout(policy, 50, 2).fingerprint() != one.rollout(policy, 50, 1).fingerprint()


def test_members_differ_and_more_users_make_them_agree(shop_logs: tuple[LoggedData, LoggedData]) -> None:
    logs = shop_logs[0]
    few = logs.select(np.arange(200))
    spreads = []
    for log in (few, logs):
        world = WorldModel(members=6, ridge=4.0, interactions=()).fit(log, seed=0)
        policy = UniformPolicy(5)
        rollouts = {world.with_member(member).rollout(policy, 40, 1).fingerprint() for member in (None, 0, 1)}
        assert len(rollouts) == 3
        spreads.append(world.uncertainty(logs.contexts[:500], logs.actions[:500]))
    assert spreads[0]["reward"].mean() > 2 * spreads[1]["reward"].mean() > 0
    assert spreads[0]["return"].mean() > 2 * spreads[1]["return"].mean() > 0


# ---------------------------------------------------------------------- the long-term score


def test_long_term_score(shop: FittedWorld) -> None:
    policy = UniformPolicy(5)
    logs = shop.rollout(policy, 1500, seed=5)
    score = logs.metrics["long_term"]
    assert score.min() >= -1
    assert score.max() <= 1
    last = logs.offsets[1:] - 1
    assert (score[last][logs.terminated] == -1).all()  # gone
    # At a session's end the score says how many come back.
    ends = logs.session_offsets[1:] - 1
    chance = (score[ends[~np.isin(ends, last)]] + 1) / 2
    came = 1 - len(last[logs.terminated]) / len(ends)
    assert 0.3 < came < 0.8
    assert chance.mean() > came  # those who came back were likelier to
    returns = mean_return(shop, policy, 1500, seed=5)
    assert returns.scores is not None
    np.testing.assert_array_equal(returns.scores, score[last])


def test_long_term_reward(shop: FittedWorld) -> None:
    policy = UniformPolicy(5)
    proxy, score = (shop.with_reward(kind).rollout(policy, 100, 6) for kind in ("proxy", "long_term"))
    assert proxy.rewards is not None
    np.testing.assert_array_equal(score.rewards, proxy.metrics["long_term"])
    np.testing.assert_array_equal(score.metrics["proxy"], proxy.rewards)


def test_discovery_brings_users_back(shop: FittedWorld) -> None:
    scores = {a: mean_return(shop, ConstantPolicy(np.eye(5)[a]), 800, 7).mean for a in (0, 3)}
    assert scores[3] > scores[0]  # the original: 0.9 against 0.25 per slot


def test_window_ends_the_stay() -> None:
    rng = np.random.default_rng(0)
    users, visits = 60, 12
    day = np.tile(np.arange(visits) * 2, users)  # everybody comes every other day
    logs = LoggedData.from_arrays(
        contexts=rng.random((users * visits, 1)),
        actions=rng.integers(0, 2, users * visits),
        rewards=rng.integers(0, 2, users * visits),
        offsets=np.arange(users + 1) * visits,
        session_offsets=np.arange(users * visits + 1),
        times=day,
    )
    model = WorldModel(members=0, return_bins=(1, 2, 3), observed="log", window=9, horizon=50)
    simulated = model.fit(logs, seed=0).rollout(UniformPolicy(2), 100, 0)
    assert simulated.terminated.all()
    np.testing.assert_array_equal(simulated.metrics["gap"], 2.0)
    lengths = np.diff(simulated.offsets)
    assert (lengths == 5).mean() > 0.95  # days 0, 2, 4, 6, 8


# ---------------------------------------------------------------------- special logs


def test_trajectories_of_one_decision_make_a_bandit() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 3, 600)
    r = (rng.random(600) < np.array([0.1, 0.5, 0.9])[a]).astype(float)
    logs = LoggedData.from_arrays(
        contexts=rng.random((600, 2)), actions=a, rewards=r, offsets=np.arange(601), metrics={"cost": 2 * r}
    )
    world = WorldModel(members=2, ridge=1.0).fit(logs, seed=0)
    assert world.horizon == 1
    again = world.rollout(UniformPolicy(3), 900, 0)
    assert len(again) == 900
    assert not again.terminated.any()
    assert again.rewards is not None
    for action in range(3):
        here = again.actions == action
        assert again.rewards[here].mean() == pytest.approx(r[a == action].mean(), abs=0.09)
    np.testing.assert_array_equal(again.metrics["cost"], 2 * again.rewards)  # copied with its reward
    assert "long_term" not in again.metrics
    np.testing.assert_array_equal(world.score(), again.rewards)
    assert world.report(logs).lengths == ()
    with pytest.raises(ConfigError, match="a log with returns"):
        world.with_reward("long_term")


def test_episodes_that_terminate() -> None:
    rng = np.random.default_rng(2)
    lengths = rng.geometric(0.25, 400)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    logs = LoggedData.from_arrays(
        contexts=rng.random((n, 1)),
        actions=rng.integers(0, 2, n),
        rewards=rng.normal(size=n),
        offsets=offsets,
        terminated=np.ones(400, bool),
    )
    again = WorldModel(members=0, horizon=60).fit(logs, seed=0).rollout(UniformPolicy(2), 1500, 0)
    assert again.terminated.mean() > 0.99
    assert np.diff(again.offsets).mean() == pytest.approx(4.0, rel=0.12)


def test_known_action_effects_from_a_randomised_log() -> None:
    """In the confounded log action 1 goes to the happy users; the randomised log knows better."""
    rng = np.random.default_rng(3)

    def log(confounded: bool, n: int) -> LoggedData:
        mood = rng.integers(0, 2, n)  # not in the context
        share = np.where(mood == 1, 0.9, 0.1) if confounded else np.full(n, 0.5)
        a = (rng.random(n) < share).astype(int)
        r = rng.random(n) < np.array([0.2, 0.6])[mood] - 0.1 * a
        return LoggedData.from_arrays(
            contexts=rng.random((n, 1)), actions=a, rewards=r.astype(float), offsets=np.arange(n + 1)
        )

    confounded, randomised = log(True, 6000), log(False, 6000)
    effects = []
    for action_log in (None, randomised):
        world = WorldModel(members=0, ridge=1.0, interactions=()).fit(confounded, 0, action_log=action_log)
        x = confounded.contexts
        means = [world.models.reward_mean(x, np.full(len(x), a)).mean() for a in (0, 1)]
        effects.append(means[1] - means[0])
    assert effects[0] > 0.1
    assert effects[1] == pytest.approx(-0.1, abs=0.04)
    assert world.models.reward_logged is not None


def test_feedback_link_scales_what_rewards_do() -> None:
    """Users come back after a reward; with link = 0 they come back as often on average, whatever they got."""
    rng = np.random.default_rng(4)
    users, offsets, rows = 1500, [0], []
    for _ in range(users):
        count = 0
        while True:
            a = int(rng.integers(2))
            r = float(rng.random() < (0.2, 0.8)[a])
            count += 1
            rows.append((a, r))
            if rng.random() > (0.3, 0.8)[int(r)]:
                break
        offsets.append(offsets[-1] + count)
    actions, rewards = (np.array(column) for column in zip(*rows, strict=True))
    logs = LoggedData.from_arrays(
        contexts=np.ones((len(rows), 1)),
        actions=actions.astype(int),
        rewards=rewards,
        offsets=offsets,
        session_offsets=np.arange(len(rows) + 1),
        terminated=np.ones(users, bool),
    )
    model = WorldModel(members=0, action_effects=("reward",), horizon=50)
    world = model.fit(logs, seed=0)
    sessions = {}
    for link in (1.0, 0.0):
        for a in (0, 1):
            again = world.with_link(link).rollout(ConstantPolicy(np.eye(2)[a]), 800, 0)
            sessions[link, a] = again.n_sessions / 800
    assert sessions[1.0, 1] - sessions[1.0, 0] == pytest.approx(1 / 0.3 - 1 / 0.6, rel=0.25)
    assert sessions[0.0, 0] == sessions[0.0, 1]  # the same chance, and nothing that an action could change


def test_an_assumed_effect_moves_the_log_odds_by_its_slope(shop: FittedWorld) -> None:
    with pytest.raises(ConfigError, match="assumed_on among"):
        shop.with_assumed(1.0)
    column = shop.context_names.index("slot")
    models, slope = shop.models, 0.7
    raised = models.assuming(column, slope)
    x = shop.starts[:1].repeat(5, axis=0)
    x[:, column] = np.arange(1, 6)
    after = shop.moves.after(x, np.zeros(5), np.zeros((5, 0)))
    actions = np.zeros(5, int)
    odds = [
        np.log(h / (1 - h))[:, 0]
        for h in (m.hazards(m.after_codes(after), actions) for m in (models, raised))
    ]
    mean = models.centres[column]
    np.testing.assert_allclose(odds[1] - odds[0], slope * (np.arange(1, 6) - mean), rtol=1e-6)
    few, many = (
        shop.with_assumed(s, "slot").rollout(UniformPolicy(5), 300, 1).n_sessions for s in (-2.0, 2.0)
    )
    assert few != many


# ---------------------------------------------------------------------- files


def arrays_of(path: Path) -> Path:
    return path / json.loads((path / "manifest.json").read_text())["arrays"]


def test_save_and_load(shop: FittedWorld, drift: FittedWorld, tmp_path: Path) -> None:
    for world in (shop.with_member("mix").with_link(0.5), drift):
        path = world.save(tmp_path / world.schema.dimensions[0])
        loaded = FittedWorld.load(path)
        policy = UniformPolicy(world.n_actions)
        assert_same_log(loaded.rollout(policy, 40, 3), world.rollout(policy, 40, 3))
        assert (loaded.member, loaded.link, loaded.schema) == (world.member, world.link, world.schema)
        assert sorted(file.name for file in path.iterdir()) == [arrays_of(path).name, "manifest.json"]


def test_save_replaces_only_when_asked(drift: FittedWorld, tmp_path: Path) -> None:
    drift.save(tmp_path / "w")
    with pytest.raises(ConfigError, match="a path that does not exist yet"):
        drift.save(tmp_path / "w")
    drift.save(tmp_path / "w", overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["w"]


def test_damaged_files(drift: FittedWorld, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a world folder with a manifest\.json"):
        FittedWorld.load(tmp_path)
    path = drift.save(tmp_path / "w")
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"version": 99}))
    with pytest.raises(DataError, match="version 1 or 2 of the world format"):
        FittedWorld.load(path)
    (path / "manifest.json").write_text(json.dumps(manifest | {"sha256": "0"}))
    with pytest.raises(DataError, match="agree with the checksum"):
        FittedWorld.load(path)
    (path / "manifest.json").write_text(json.dumps(manifest))
    arrays_of(path).write_bytes(b"nothing")
    with pytest.raises(DataError, match="readable arrays"):
        FittedWorld.load(path)
    (path / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="manifest in JSON"):
        FittedWorld.load(path)


# ---------------------------------------------------------------------- bad input


def plain_log(n: int = 100, **changes: object) -> LoggedData:
    rng = np.random.default_rng(0)
    arguments: dict[str, object] = {
        "contexts": rng.random((n, 2)),
        "actions": rng.integers(0, 2, n),
        "rewards": rng.random(n),
        "offsets": np.arange(0, n + 1, 2),
    }
    return LoggedData.from_arrays(**(arguments | changes))


def test_log_without_rewards() -> None:
    with pytest.raises(DataError, match=r"a log with rewards.*with_rewards"):
        WorldModel().fit(plain_log(rewards=None))


def test_log_with_one_action() -> None:
    with pytest.raises(DataError, match="at least two actions"):
        WorldModel().fit(plain_log(actions=np.zeros(100, int), n_actions=3))


def test_too_few_users() -> None:
    with pytest.raises(DataError, match=r"at least 20 users.*found 10"):
        WorldModel().fit(plain_log(20))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": -1}, "members"),
        ({"bins": 1}, "bins"),
        ({"ridge": 0.0}, "ridge"),
        ({"link": -1.0}, "link"),
        ({"assumed": float("nan")}, "assumed"),
        ({"horizon": 0}, "horizon"),
        ({"action_effects": ("click",)}, "action_effects among"),
    ],
)
def test_nonsense_parameters(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorldModel(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feedback": ("nothing",)}, "context columns among"),
        ({"interactions": ("nothing",)}, "context columns among"),
        ({"return_bins": ("1d",)}, "a plain number"),
        ({"return_bins": ()}, "return_bins that rise"),
        ({"observed": "log"}, "return_bins together with"),
        ({"observed": "day"}, "observed to be"),
    ],
)
def test_parameters_that_do_not_fit_the_log(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorldModel(**changes).fit(plain_log())  # type: ignore[arg-type]


def test_other_logs_must_have_the_same_layout(shop: FittedWorld) -> None:
    with pytest.raises(DataError, match="the held-out log to have the context columns"):
        shop.report(plain_log())
    with pytest.raises(DataError, match="the action log to have the context columns"):
        WorldModel().fit(plain_log(), action_log=plain_log(contexts=np.zeros((100, 3))))
    with pytest.raises(DataError, match="the action log to have rewards"):
        WorldModel().fit(plain_log(), action_log=plain_log(rewards=None))


def test_members_that_there_are_not(shop: FittedWorld) -> None:
    with pytest.raises(ConfigError, match=r"a member in 0\.\.2"):
        shop.with_member(3)
    alone = WorldModel(members=0).fit(plain_log(), seed=0)
    with pytest.raises(ConfigError, match="an ensemble to mix"):
        alone.with_member("mix")
    with pytest.raises(ConfigError, match="at least 2 members"):
        alone.uncertainty(np.zeros((1, 2)), np.zeros(1, int))


def test_use_out_of_order(shop_logs: tuple[LoggedData, LoggedData]) -> None:
    world = WorldModel(members=0, ridge=4.0, horizon=2).fit(shop_logs[0], seed=0)
    with pytest.raises(EpisodeError, match="a reset before"):
        world.step(np.zeros(3, int))
    with pytest.raises(ConfigError, match="n to be a whole number"):
        world.reset(0, 0)
    world.reset(3, 0)
    with pytest.raises(ActionError, match="one action per user"):
        world.step(np.zeros(2, int))
    with pytest.raises(ActionError, match=r"actions in 0\.\.4"):
        world.step(np.full(3, 5))
    with pytest.raises(ActionError, match="integer actions"):
        world.step(np.zeros(3))
    world.step(np.zeros(3, int))
    world.step(np.zeros(3, int))
    with pytest.raises(EpisodeError):
        world.step(np.zeros(3, int))


def test_rollout_takes_the_options_of_every_simulator(shop: FittedWorld) -> None:
    logs = rollout(shop, UniformPolicy(5), 30, 1, horizon=3, batch=7, keep_behaviour=True)
    assert np.diff(logs.offsets).max() <= 3
    assert logs.behaviour is not None
    assert logs.behaviour.shape == (len(logs), 5)
