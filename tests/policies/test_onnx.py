from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.serve.policies import policies

from shpi.cli import main
from shpi.errors import ConfigError
from shpi.features import Chain, OneHot, Powers, Standardise, Union
from shpi.policies import FunctionScorer, Greedy, LinearScorer, Softmax
from shpi.policies.onnx.export import run_onnx

pytest.importorskip("onnxruntime")
ALL = {name: one for name, one in policies().items() if name != "epsilon ties"}
FOURIER = ("softmax", "some seen", "regularised", "tilted apart", "tilted some")


@pytest.mark.parametrize("name", ALL)
def test_onnxruntime_decides_as_we_do(name: str, tmp_path: Path) -> None:
    policy, rng = ALL[name], np.random.default_rng(2)
    policy.to_onnx(tmp_path / "p.onnx")  # type: ignore[attr-defined]
    x, mask = rng.normal(3, 2, size=(300, 5)), rng.random((300, 7)) < 0.5
    mask[np.arange(300), rng.integers(0, 7, 300)] = True
    found = run_onnx((tmp_path / "p.onnx").read_bytes(), x, mask)
    assert found.dtype == np.float64
    tolerance = 1e-6 if name in FOURIER else 1e-12
    assert np.abs(found - policy.action_probs(x, mask)).max() <= tolerance


def test_other_feature_maps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 4, 200), rng.normal(size=200)]).astype(float)
    parts = Union((OneHot(n_states=4), Chain((Standardise(), Powers(degree=3, limit=1.5)))))
    phi = parts.fit(x)
    policy = Softmax(LinearScorer(rng.normal(size=(3, phi.width)), phi))
    from shpi.policies.onnx import to_onnx

    to_onnx(policy, tmp_path / "p.onnx", check=False)  # random contexts are no states
    found = run_onnx((tmp_path / "p.onnx").read_bytes(), x, np.ones((200, 3), dtype=bool))
    assert np.abs(found - policy.action_probs(x)).max() <= 1e-12


def test_what_has_no_onnx_form_says_so(tmp_path: Path) -> None:
    policy = Greedy(FunctionScorer(lambda x: np.zeros((len(x), 2)), 2, 1))
    with pytest.raises(ConfigError, match="FunctionScorer"):
        policy.to_onnx(tmp_path / "p.onnx")
    assert not (tmp_path / "p.onnx").exists()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ALL["tilted"].save(tmp_path / "p")  # type: ignore[attr-defined]
    assert main(["export", str(tmp_path / "p"), "--onnx", str(tmp_path / "p.onnx")]) == 0
    assert "agrees" in capsys.readouterr().out
    assert (tmp_path / "p.onnx").stat().st_size > 500
    assert main(["export", str(tmp_path / "p")]) == 2
