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

from shpi._moved import GONE as INSTEAD
from shpi._moved import LAST_VERSION, MOVED
from shpi.errors import ConfigError
from shpi.learners import ConstrainedSHPI, OfflineSHPI

NAMES: dict[str, list[str]] = json.loads(Path(__file__).with_name("names_0_1.json").read_text())
# Gone for good: parts of a verb or of an algorithm, which no document ever named.
GONE = {
    "shpi.cli.evaluate": {"headed"},
    "shpi.experiments.defaults": {
        "A_MU",
        "A_PI",
        "DIRECT",
        "MINORS",
        "SESSION",
        "SESSIONS",
        "SHOWN_BY_PAPER",
        "minors",
    },
    "shpi.learners.cloning": {"FEW_DIMENSIONS"},
    "shpi.learners.gain": {"clustered_error", "gain_parts", "held_out_gain"},
    "shpi.ope.checks.sensitivity": {"MOST_ROWS"},
    "shpi.ope.verdict.whole_horizon": {"proven_mixtures"},
    "shpi.ope.recipes": {"FEW_DIMENSIONS"},
    "shpi.oracles.ridge": {"FEW_DIMENSIONS"},
    "shpi.values.choose": {"SMALL_WIDTH"},
}
EXTRAS = {"gymnasium", "numba", "torch", "lightgbm", "vowpalwabbit"}


@pytest.mark.parametrize("module", sorted(set(NAMES) - set(INSTEAD)))
def test_every_public_name_is_where_it_was(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            old = import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            pytest.skip(f"needs {error.name}")
    assert {name for name in NAMES[module] if not hasattr(old, name)} == GONE.get(module, set())


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


@pytest.mark.parametrize("old", sorted(INSTEAD))
def test_what_is_gone_says_what_took_its_place(old):
    room, _, name = old.rpartition(".")
    with pytest.raises(ImportError, match=re.escape(f"{old} is gone since 0.2: ")):
        getattr(import_module(room), name) if name[0].isupper() else import_module(old)
    for place in re.findall(r"shpi(?:\.\w+)+", INSTEAD[old]):
        module, _, called = place.rpartition(".")
        assert hasattr(import_module(module), called), place


@pytest.mark.parametrize(
    ("learner", "argument", "remedy"),
    [
        (OfflineSHPI, "held_out", "leave it out: all users serve"),
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
