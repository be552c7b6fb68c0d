"""Check the text of a LightGBM model before LightGBM reads it: its parser trusts every index in the file.

The text is parsed into trees, every index is checked, and a new text is written from the result. So only
well-formed trees over the scorer's columns reach the C++ code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from shpi.errors import DataError
from shpi.files.schema import REMEDY

MOST_LEAVES = 2**17  # leaves per tree that LightGBM allows
_WHOLE = ("split_feature", "decision_type", "left_child", "right_child")
_REAL = ("split_gain", "threshold", "internal_value", "internal_weight", "internal_count")
_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_HEAD = ("version", "num_class", "num_tree_per_iteration", "label_index", "objective")
_INFO = set("0123456789.:-+einfa[]no")  # characters of feature_infos such as [-1.5:2e3], -1:0:1:2, none
_HEAD_VALUES = {
    "version": ("v3", "v4"),
    "num_class": ("1",),
    "num_tree_per_iteration": ("1",),
    "label_index": ("0",),
    "objective": ("regression",),
}


def checked_model(text: str, width: int) -> str:
    """The same model in a text that is safe to load.

    Args:
        text: output of ``Booster.model_to_string``.
        width: number of columns of the model.
    """
    body, end, _ = text.partition("end of trees")
    if not end:
        raise _broken("the line 'end of trees'", "none")
    head, *trees = body.split("\nTree=")
    facts = _pairs(head)
    for key, allowed in _HEAD_VALUES.items():
        if facts.get(key) not in allowed:
            raise _broken(f"{key}={' or '.join(allowed)}", repr(facts.get(key)))
    if facts.get("max_feature_idx") != str(width - 1):
        raise _broken(f"max_feature_idx={width - 1}", repr(facts.get("max_feature_idx")))
    infos = facts.get("feature_infos", "").split(" ")
    if len(infos) != width or any(not info or not set(info) <= _INFO for info in infos):
        raise _broken(f"{width} feature_infos", f"{len(infos)}")
    lines = ["tree", *(f"{key}={facts[key]}" for key in _HEAD), f"max_feature_idx={width - 1}"]
    lines += [f"feature_names={' '.join(f'Column_{j}' for j in range(width))}"]
    lines += [f"feature_infos={' '.join(infos)}", ""]
    for number, tree in enumerate(trees):
        lines += [f"Tree={number}", *_checked_tree(_pairs(tree), width), ""]
    return "\n".join([*lines, "", "end of trees", ""])


def _checked_tree(facts: Mapping[str, str], width: int) -> list[str]:
    leaves, categories = _whole(facts, "num_leaves", 1)[0], _whole(facts, "num_cat", 1)[0]
    if not 1 <= leaves <= MOST_LEAVES or not 0 <= categories <= MOST_LEAVES:
        raise _broken("a tree of a sensible size", f"{leaves} leaves, {categories} categorical splits")
    lines = [f"num_leaves={leaves}", f"num_cat={categories}"]
    if leaves > 1:
        nodes = leaves - 1
        split, decision, left, right = (_whole(facts, key, nodes) for key in _WHOLE)
        threshold = _real(facts, "threshold", nodes)
        _check_shape(left, right, leaves)
        if not all(0 <= column < width for column in split):
            raise _broken(f"splits on columns 0..{width - 1}", str(split)[:80])
        if not all(0 <= kind < 16 for kind in decision):
            raise _broken("decision types 0..15", str(decision)[:80])
        for kind, value in zip(decision, threshold, strict=True):
            if kind & 1 and not (value == int(value) and 0 <= value < categories):
                raise _broken(f"categorical splits 0..{categories - 1}", str(value))
        lines += [f"{key}={' '.join(map(str, _whole(facts, key, nodes)))}" for key in _WHOLE]
        lines += [f"{key}={_joined(_real(facts, key, nodes))}" for key in _REAL]
        lines += _checked_categories(facts, categories)
    kept = _LEAF if leaves > 1 else _LEAF[:1]  # a tree of one leaf has only a value
    lines += [f"{key}={_joined(_real(facts, key, leaves))}" for key in kept]
    rate = _real(facts, "shrinkage", 1)[0]
    return [*lines, "is_linear=0", f"shrinkage={rate!r}"]


def _checked_categories(facts: Mapping[str, str], categories: int) -> list[str]:
    if not categories:
        return []
    bounds = _whole(facts, "cat_boundaries", categories + 1)
    rising = bounds[0] == 0 and all(a < b for a, b in zip(bounds, bounds[1:], strict=False))
    if not rising or bounds[-1] > 2**24:
        raise _broken("rising cat_boundaries from 0", str(bounds)[:80])
    words = _whole(facts, "cat_threshold", bounds[-1])
    if not all(0 <= word < 2**32 for word in words):
        raise _broken("words of 32 bits in cat_threshold", str(words)[:80])
    return [
        f"cat_boundaries={' '.join(map(str, bounds))}",
        f"cat_threshold={' '.join(map(str, words))}",
    ]


def _check_shape(left: list[int], right: list[int], leaves: int) -> None:
    """Check that every leaf, and every node except the root, has one parent and a path from the root."""
    children = [*left, *right]
    wanted = [*range(1, leaves - 1), *(~leaf for leaf in range(leaves))]
    if sorted(children) != sorted(wanted):
        raise _broken("children that make a tree", str(children)[:80])
    reached, waiting = 0, [0]
    while waiting:
        node = waiting.pop()
        reached += 1
        waiting += [child for child in (left[node], right[node]) if child >= 0]
    if reached != leaves - 1:
        raise _broken("nodes that can all be reached from the root", f"{reached} of {leaves - 1}")


def _pairs(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _whole(facts: Mapping[str, str], key: str, count: int) -> list[int]:
    words = facts.get(key, "").split()
    try:
        values = [int(word) for word in words]
    except ValueError:
        raise _broken(f"whole numbers in {key}", facts[key][:80]) from None
    if len(values) != count or any(abs(value) >= 2**40 for value in values):
        raise _broken(f"{count} values of {key}", str(len(values)))
    return values


def _real(facts: Mapping[str, str], key: str, count: int) -> list[float]:
    words = facts.get(key, "").split()
    try:
        values = [float(word) for word in words]
    except ValueError:
        raise _broken(f"numbers in {key}", facts[key][:80]) from None
    if len(values) != count or not all(map(math.isfinite, values)):
        raise _broken(f"{count} finite values of {key}", str(len(values)))
    return values


def _joined(values: list[float]) -> str:
    return " ".join(repr(value) if value != int(value) else str(int(value)) for value in values)


def _broken(expected: str, found: str) -> DataError:
    return DataError(expected=expected, found=found, where="the trees of a saved policy", remedy=REMEDY)
