"""The code of the pages under docs/ runs, and raises what they say that it raises; tests/group runs that with Ray."""

from pathlib import Path

import needs
import pytest
from pages import DOCS, assert_page_runs

PAGES = [
    "checkpoints.md",
    "debugging.md",
    "determinism.md",
    "environments.md",
    "errors.md",
    "explanations.md",
    "from-cleanrl.md",
    "from-stable-baselines3.md",
    "images.md",
    "listeners.md",
    "logging.md",
    "many-seeds.md",
    "masks.md",
    "models.md",
    "module-contracts.md",
    "multi-agent.md",
    "networks.md",
    "normalization.md",
    "off-policy.md",
    "offline.md",
    "performance.md",
    "quick-start.md",
    "recurrence.md",
    "replay.md",
    "sampling.md",
    "tune.md",
    "update.md",
    "use-a-policy.md",
    "your-simulator.md",
    *(f"algorithms/{path.name}" for path in sorted((DOCS / "algorithms").glob("*.md"))),
]


NEEDS = {
    "checkpoints.md": "tensorflow",
    "determinism.md": "jax",
    "images.md": "ale_py",
    "logging.md": "tensorboardX",
    "many-seeds.md": "jax",
    "multi-agent.md": "mpe2",
    "off-policy.md": "tensorflow",
    "tune.md": "optuna",
    "use-a-policy.md": "onnxruntime",
}
"""What the code of a page needs beside torch."""


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS:
        needs.extra(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    assert_page_runs(name)
