"""Modules of version 0.1 import under their old names, with every public name, and say where they are now."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

import pytest

from shpi._gone import ARGUMENTS, GONE
from shpi._gone import NAMES as MOVED_NAMES
from shpi._moved import LAST_VERSION, MOVED
from shpi.errors import ConfigError
from shpi.learners import ConstrainedSHPI, ImprovedPolicy, OfflineSHPI
from shpi.ope.estimators.baseline import reward_terms
from shpi.policies import UniformPolicy

NAMES: dict[str, list[str]] = json.loads(Path(__file__).with_name("names_0_1.json").read_text())
EXTRAS = {"gymnasium", "numba", "torch", "lightgbm", "vowpalwabbit"}


@pytest.mark.parametrize("module", sorted(set(NAMES) - set(GONE)))
def test_every_public_name_is_where_it_was_or_says_what_took_its_place(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            old = import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            pytest.skip(f"needs {error.name}")
        for name in NAMES[module]:
            if f"{old.__name__}.{name}" in GONE:
                with pytest.raises(ImportError, match=r"is gone since 0\.2: "):
                    getattr(old, name)
            else:
                getattr(old, name)


def test_an_old_name_is_the_same_module_and_warns():
    program = "import warnings; warnings.simplefilter('error', DeprecationWarning); import shpi.envs.hiv_ode"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        f"shpi.envs.hiv_ode is now shpi.envs.hiv.ode; the old name goes in version {LAST_VERSION}"
        in done.stderr
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert import_module("shpi.envs.hiv_ode") is import_module("shpi.envs.hiv.ode")


@pytest.mark.parametrize("old", sorted(MOVED))
def test_the_table_names_modules_that_exist(old):
    assert find_spec(MOVED[old]) is not None
    assert MOVED[old] not in MOVED, "a chain of moves: name the last place"


@pytest.mark.parametrize("old", sorted(GONE))
def test_what_is_gone_says_what_took_its_place(old):
    room, _, name = old.rpartition(".")
    with pytest.raises(ImportError, match=re.escape(f"{old} is gone since 0.2: ")):
        getattr(import_module(room), name)
    for place in re.findall(r"shpi(?:\.\w+)+", GONE[old]):
        module, _, called = place.rpartition(".")
        assert hasattr(import_module(module), called) or find_spec(place), place


@pytest.mark.parametrize("old", sorted(MOVED_NAMES))
def test_a_name_that_moved_is_the_same_thing_and_warns(old):
    (room, _, name), (home, _, called) = old.rpartition("."), MOVED_NAMES[old].rpartition(".")
    module = import_module(room)
    with pytest.warns(DeprecationWarning, match=re.escape(f"{old} is now {MOVED_NAMES[old]}")) as caught:
        moved = getattr(module, name)
    assert moved is getattr(import_module(home), called)
    assert caught[0].filename == __file__
    with pytest.raises(AttributeError, match="never_there"):
        _ = module.never_there


@pytest.mark.parametrize("place", sorted(ARGUMENTS))
def test_the_table_of_arguments_is_true(place):
    module, _, called = place.rpartition(".")
    now = signature(getattr(import_module(module), called)).parameters
    assert set(ARGUMENTS[place].values()) <= set(now)
    assert not set(ARGUMENTS[place]) & set(now)


def test_an_argument_is_taken_by_its_old_name():
    class Chunk:
        rewards = "rewards"

    class Problem:
        def known_weights(self, chunk, kind):
            return kind

    with pytest.warns(DeprecationWarning, match=r"part= of reward_terms is now chunk=") as caught:
        terms = reward_terms(Problem(), part=Chunk())
    assert terms.values == "rewards"
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match="missing 1 required"):
        reward_terms(Problem())


def test_a_field_that_is_gone_says_what_to_read():
    policy = ImprovedPolicy(UniformPolicy(2), (), 0)
    with pytest.raises(AttributeError, match=re.escape("gone since 0.2: policy.trials")):
        _ = policy.horizon
    with pytest.raises(AttributeError, match=r"no attribute 'never_there'$"):
        _ = policy.never_there


@pytest.mark.parametrize(
    ("learner", "argument", "remedy"),
    [
        (OfflineSHPI, "held_out", "leave it out: all users are used"),
        (ConstrainedSHPI, "held_out", "shpi.learners.Best"),
        (ConstrainedSHPI, "iterations", "settings={'iterations': ...}"),
        (ConstrainedSHPI, "tolerance", "settings={'tolerance': ...}"),
    ],
)
def test_an_argument_that_is_gone_says_what_to_write(learner, argument, remedy):
    with pytest.raises(ConfigError, match=re.escape(remedy)):
        learner(**{argument: 1})
    with pytest.raises(TypeError, match="unexpected keyword"):
        learner(never_there=1)
    assert argument not in signature(learner).parameters
