"""What any learner returns can be saved, and loads in a new process that did nothing but ``import shpi``."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np

import shpi
from shpi.data._log.release import ReleasedRows
from shpi.features.kinds import HOMES
from shpi.features.parts import class_of
from shpi.learners import ContextualBandit, registry
from shpi.learners.online._steady import Steady
from shpi.oracles import Ridge
from shpi.policies import BehaviourRegularised, Mixture, Softmax, UniformPolicy, training_users
from shpi.policies.files import save_policy
from shpi.protocols import Policy
from shpi.testing.tastes import Tastes
from shpi.values import LSTD, Constant, FittedTD, Pessimistic, ValueModel, WithPast, load_value, save_value

HEAVY = {"torch", "lightgbm", "vowpalwabbit", "matplotlib", "gymnasium"}
SOURCES = Path(shpi.__file__).parent

# The smallest run that still returns what a full run returns.
SMALL: dict[str, dict[str, object]] = {
    "shpi-released": {"view": ReleasedRows(length=3, step=2), "value": "zero", "k": 2, "iterations": 2},
    "shpi-repaired": {"iterations": 2, "value": FittedTD(steps=20)},
    "best": {"learners": {"bandit": ContextualBandit(oracle=Ridge.exact())}},
    "bandit-dr": {"oracle": Ridge.exact()},
    "shpi-paper": {"iterations": 1, "value": "lstd"},
    "bcq": {"steps": 20},
    "cql": {"steps": 20},
    "cb-mf": {"steps": 20},
    "nn-ips": {"steps": 20},
    "deep-sarsa": {"episodes": 20},
    "online-bandit": {"users": 20, "rounds": 2},
    "online-shpi": {"episodes": 20},
}

LOADER = """
import json, sys
import shpi
folders = json.loads(sys.stdin.read())
policies = [shpi.load_policy(folder) for folder in folders]
heavy = sorted(HEAVY & {name.split(".")[0] for name in sys.modules})
import numpy as np
contexts = np.load(sys.argv[1])
probs = np.stack([policy.action_probs(contexts) for policy in policies])
np.save(sys.argv[2], probs)
print(json.dumps(heavy))
""".replace("HEAVY", repr(HEAVY))


def in_new_process(code: str, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@cache
def learned() -> Mapping[str, Policy]:
    """What every learner that can be made here returns from a tiny log; learned once."""
    world, policies = Tastes(), {}
    logs = world.log(40, seed=0)
    for name in registry.names():
        if registry.missing(name) is None:
            learner = registry.make(name, **SMALL.get(name, {}))
            policies[name] = learner.fit(logs if registry.entry(name).kind == "offline" else world)  # type: ignore[arg-type]
    return MappingProxyType(policies)


def test_what_every_learner_returns_loads_in_a_new_process(tmp_path: Path) -> None:
    world = Tastes()
    policies = dict(learned())
    offline = set(policies) & set(registry.names("offline"))
    assert [name for name in offline if not training_users(policies[name])] == []
    policies["regularised"] = BehaviourRegularised(
        policies["bandit"].scorer,  # type: ignore[attr-defined]
        policies["clone"],
        0.5,
    )
    policies["softmax"] = Softmax(policies["bandit-dr"].scorer, 0.5)  # type: ignore[attr-defined]
    policies["first step"] = Mixture((policies["shpi"], UniformPolicy(world.n_actions)), (0.3, 0.7))
    contexts, _ = world.fresh(50, seed=3)
    np.save(tmp_path / "contexts.npy", contexts)
    folders = [str(save_policy(policy, tmp_path / name)) for name, policy in policies.items()]
    answer = in_new_process(
        LOADER, str(tmp_path / "contexts.npy"), str(tmp_path / "probs.npy"), text=json.dumps(folders)
    )
    assert json.loads(answer) == []  # loading needs none of the heavy packages, whatever wrote the policy
    for name, probs in zip(policies, np.load(tmp_path / "probs.npy"), strict=True):
        expected = policies[name].action_probs(contexts)
        np.testing.assert_allclose(probs, expected, rtol=0, atol=1e-12, err_msg=name)


def test_values_load_in_a_new_process(tmp_path: Path) -> None:
    logs, contexts = Tastes().log(40, seed=0), np.zeros((1, 2), np.float32)
    models: list[ValueModel] = [LSTD(), Constant(2.0), Pessimistic(base=LSTD()), WithPast(), Steady()]
    values = [model.fit(logs, gamma=0.9, seed=0) for model in models]
    places = [str(save_value(value, tmp_path / f"{i}.npz")) for i, value in enumerate(values)]
    code = (
        "import sys, shpi, shpi.values\n"
        "for place in sys.argv[1:]: print(type(shpi.values.load_value(place)).__name__)\n"
    )
    assert in_new_process(code, *places).split() == [type(value).__name__ for value in values]
    np.testing.assert_array_equal(load_value(places[0])(contexts), values[0](contexts))


def test_the_table_of_kinds_is_what_the_sources_say() -> None:
    """Each class marked with ``saveable`` has an entry with its module, and there is no other entry."""
    modules = {}
    for place in SOURCES.rglob("*.py"):
        module = ".".join(["shpi", *place.relative_to(SOURCES).with_suffix("").parts])
        for node in ast.walk(ast.parse(place.read_text(encoding="utf-8"))):
            for mark in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "saveable":
                    modules[ast.literal_eval(mark.args[0])] = module
    assert modules == HOMES


def test_every_kind_is_found_in_the_module_of_the_table() -> None:
    for kind, module in HOMES.items():
        cls = class_of(kind)
        assert cls.__module__ == module
        assert getattr(import_module(module), cls.__name__) is cls


def test_every_kind_is_found_first_in_a_new_process() -> None:
    """One process per module would be slow: each is asked for after all that is imported is forgotten.

    The other kinds of a module are in it once it is there.
    """
    code = (
        "import json, sys, shpi\n"
        "from shpi.features.kinds import HOMES\n"
        "from shpi.features import parts\n"
        "import numpy, polars, scipy.optimize, scipy.special\n"
        "for kind in {module: kind for kind, module in HOMES.items()}.values():\n"
        "    for name in [name for name in sys.modules if name.startswith('shpi.')]: del sys.modules[name]\n"
        "    from shpi.features import parts\n"
        "    assert kind not in parts._CLASSES or kind.startswith('features/'), kind\n"
        "    parts.class_of(kind)\n"
        f"print(json.dumps(sorted({HEAVY - {'gymnasium'}!r} & set(sys.modules))))\n"
    )
    assert json.loads(in_new_process(code)) == []


def test_importing_shpi_imports_nothing_else() -> None:
    code = "import sys, shpi; print(sorted(name for name in sys.modules if name.startswith('shpi.')))"
    assert in_new_process(code) == "['shpi._gone', 'shpi._moved']"  # the tables of old names
