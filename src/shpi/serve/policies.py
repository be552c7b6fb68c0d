"""Loads and compiles the policies of a service by name; a damaged new one leaves the others in place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shpi.errors import ConfigError, DataError, ShpiError
from shpi.files.atomic import write_text
from shpi.files.reading import parse_json
from shpi.files.schema import Record, check
from shpi.policies import Policy, load_policy
from shpi.serve.decide import Chooser, ContextEncoder, compile_batch, compile_policy
from shpi.serve.loop.control import BUILT_IN, Control, policy_path


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A first step: each decision mixes the policy with the champion it was proven against."""

    share: float
    over: str  # name of that champion

    def write(self, policy: Path) -> None:
        """Write the mixture to a file beside the policy."""
        write_text(mix_path(policy), json.dumps({"share": self.share, "over": self.over}) + "\n")

    @classmethod
    def read(cls, policy: Path) -> Mix | None:
        """Read the mixture of a policy; None if it serves alone."""
        path = mix_path(policy)
        try:
            content = parse_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(expected="a readable mixture", found=str(error), where=str(path)) from None
        check(content, _MIX, str(path))
        return cls(share=float(content["share"]), over=content["over"])


def _share(value: object) -> str | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
    return None if good else "a share in (0, 1]"


_MIX = Record({"share": _share, "over": str})


def mix_path(policy: Path) -> Path:
    """The path of the file that holds the mixture of a policy."""
    return policy.with_name(f"{policy.name}.mix.json")


class LoadedPolicy:
    """A loaded policy, ready to choose items and to explain its choices."""

    def __init__(self, name: str, policy: Policy, path: Path, floor: float, mix: Mix | None = None) -> None:
        items = getattr(policy, "items", None)
        if items is None or items.actions is None:
            raise ConfigError(
                expected="a policy that knows its items",
                found="one that does not",
                where=str(path),
                remedy="save it with actions=logs.action_space and schema=logs.schema",
            )
        self.name, self.policy, self.path, self.mix = name, policy, path, mix
        encoder = None if items.schema is None else ContextEncoder(items.schema)
        compiled, batch = compile_policy(policy), compile_batch(policy)
        self.chooser = Chooser(name, compiled, encoder, items.actions.ids, floor, batch)

    def explain(self, context: Mapping[str, Any], items: list[Any]) -> dict[str, Any]:
        """The scores f(x, a) and the bonus V(x), if the policy has them."""
        x = self.chooser.encode(context)[None]
        explanation: dict[str, Any] = {}
        scorer = getattr(getattr(self.policy, "saved_form", self.policy), "scorer", None)
        if scorer is not None:
            scores = dict(zip(map(str, self.chooser.ids), scorer.scores(x)[0].tolist(), strict=True))
            explanation["scores"] = {str(item): scores.get(str(item)) for item in items}
        value = value_path(self.path)
        if value.is_file():
            from shpi.values.files import load_value

            explanation["bonus"] = float(load_value(value)(x)[0])
        return explanation


def value_path(policy: Path) -> Path:
    """The path of the termination bonus of a policy."""
    return policy.with_name(f"{policy.name}.value.npz")


class Policies:
    """The loaded policies, by name."""

    def __init__(self, folder: Path, floor: float) -> None:
        self.folder, self.floor = folder, floor
        self._loaded: dict[str, LoadedPolicy] = {}
        self.alone: set[str] = set()  # names of the policies that are not mixed with another

    def get(self, name: str) -> LoadedPolicy | None:
        """A policy by name; None for the built-in ones, which have no file."""
        return self._loaded.get(name)

    def load(self, name: str) -> None:
        """Load a policy, unless it is loaded already."""
        if name in BUILT_IN or name in self._loaded:
            return
        path = policy_path(self.folder, name)
        mix = Mix.read(path)
        if mix is not None:
            self.load(mix.over)
        self._loaded[name] = LoadedPolicy(name, load_policy(path), path, self.floor, mix)
        if mix is None:
            self.alone.add(name)

    def follow(self, control: Control, shadow: str) -> dict[str, str]:
        """Load the policies that the control file names; return those that failed, with the reason."""
        broken = {}
        for name in (*control.policies(), *([shadow] if shadow else ())):
            try:
                self.load(name)
            except ShpiError as error:
                broken[name] = str(error)
        return broken
