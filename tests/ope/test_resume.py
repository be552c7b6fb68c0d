"""An evaluation that is killed goes on at the pass and block where it was, with nothing of another one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.cli.main import main
from shpi.data.shards import ShardedLog, deal
from shpi.errors import ConfigError
from shpi.ope import WDR, Evaluation, Gate, evaluate
from shpi.ope._log.blocks import _sorted_run
from shpi.ope._log.visits import OnBlock
from shpi.passes import Resumable, Serial
from shpi.policies import save_policy
from tests.ope.test_same_bits import differences, rare_actions, small_blocks, tilted

__all__ = ["small_blocks"]


@dataclass(frozen=True)
class Counting:
    """Counts the blocks that it answers for, and is interrupted after some of them."""

    breaks_after: int | None = None
    blocks: list[int] = field(default_factory=list)

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number, task in enumerate(tasks):
            if isinstance(function, OnBlock):
                if len(self.blocks) == self.breaks_after:
                    raise KeyboardInterrupt
                self.blocks.append(task)
            yield number, function(task)


def answer(source: Any, policy: Any = None, executor: Any = None, **options: Any) -> Evaluation:
    asked: dict[str, Any] = {"gamma": 0.9, "details": False, "estimators": [WDR()]} | options
    return evaluate(policy or tilted(rare_actions()), source, executor=executor, **asked)


@pytest.mark.usefixtures("small_blocks")
def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    logs = rare_actions()
    shards, folder = deal(logs, tmp_path / "shards", 2), tmp_path / "kept"
    plain = answer(shards, gate=Gate())
    with pytest.raises(KeyboardInterrupt):
        answer(shards, executor=Resumable(executor=Counting(9), folder=folder), gate=Gate())
    rest = Counting()
    kept = Resumable(executor=rest, folder=folder)
    resumed = answer(ShardedLog.open(tmp_path / "shards"), executor=kept, gate=Gate())
    assert [*differences(plain, resumed)] == []
    assert len(rest.blocks) == len(list(folder.iterdir())) - 9
    assert len(rest.blocks) > 2
    kept.forget()
    assert not folder.exists()


@pytest.mark.usefixtures("small_blocks")
def test_nothing_of_another_policy_setting_or_log_is_used(tmp_path: Path) -> None:
    """What is asked first is the same for all settings; what is fitted is not."""
    logs = rare_actions()
    shards, folder = deal(logs, tmp_path / "shards", 2), tmp_path / "kept"
    tilt = tilted(logs)
    answer(shards, tilt, Resumable(executor=Serial(), folder=folder))
    other_log = deal(logs.select(np.arange(200)), tmp_path / "other", 2)
    others: list[tuple[Any, Any, dict[str, Any]]] = [
        (shards, type(tilt)(tilt.scorer, 2.0), {}),
        (shards, tilt, {"seed": 1}),
        (other_log, tilt, {}),
    ]
    for source, policy, options in others:
        counting = Counting()
        kept = Resumable(executor=counting, folder=folder)
        assert [
            *differences(answer(source, policy, **options), answer(source, policy, kept, **options))
        ] == []
        assert len(counting.blocks) > 4


KILLED = """
import os, signal, sys
from shpi.passes import resume
kept, write = [], resume.write_record
def killed(place, value):
    done = write(place, value)
    kept.append(place)
    if len(kept) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
resume.write_record = killed
from shpi.cli.main import main
main(sys.argv[1:])
"""


def test_a_killed_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, kept = rare_actions(), tmp_path / "kept"
    deal(logs, tmp_path / "shards", 2)
    save_policy(tilted(logs), tmp_path / "policy")
    call = ["evaluate", str(tmp_path / "policy"), str(tmp_path / "shards"), "--estimators", "snpdis,wdr"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *call, "--resume", str(kept)], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in kept.glob("pass-*")}
    assert len(done) == 5
    codes = [
        main([*call, "--json", str(tmp_path / f"{number}.json"), *more])
        for number, more in enumerate(([], ["--resume", str(kept)]))
    ]
    capsys.readouterr()
    assert codes[0] == codes[1]
    assert not kept.exists()
    plain, resumed = (json.loads((tmp_path / f"{number}.json").read_text()) for number in (0, 1))
    assert plain == resumed


def test_a_worker_that_cannot_see_the_folder_says_so(tmp_path: Path) -> None:
    logs, elsewhere = rare_actions(), tmp_path / "on another machine"
    for work in (lambda: _sorted_run(elsewhere, 2, logs), lambda: OnBlock(elsewhere / "asked-1", "")(0)):
        with pytest.raises(ConfigError, match=r"every machine sees.*set TMPDIR to a folder on a disk"):
            work()
