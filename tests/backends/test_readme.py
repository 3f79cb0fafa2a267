"""The README: its code runs, and its table is that of the installed plugins. Its figures: tests/core/test_figures.py.

`python tests/backends/test_readme.py` writes the table anew.
"""

import re
from pathlib import Path
from typing import Any

import needs
import pytest

from plugrad import list_plugins
from plugrad.hooks.registry import load_backend

README = Path(__file__).parents[2] / "README.md"
MARKS = re.compile(r"(?<=test_readme.py` -->\n)(.*?)(?=\n<!-- end -->)", re.DOTALL)

ALGORITHMS = {
    "bc": "behaviour cloning, from `plugrad record` and from Minari",
    "marwil": "MARWIL: imitation that weighs advantages, from the same data",
    "dqn": "DQN: double, dueling, n-step, prioritised replay",
    "pqn": "PQN: Q-learning on what many environments sample, without replay or target network",
    "qrdqn": "QR-DQN: DQN with quantiles of the returns",
    "rnd": "RND: PPO with a bonus for what a predictor does not know yet",
    "sac": "SAC: a learned temperature, continuous and discrete actions",
    "td3": "TD3: continuous actions",
    "tqc": "TQC: SAC with quantiles, the largest of which are left out of the targets",
    "cql": "CQL: SAC from recorded episodes, with values kept low where the data has no actions",
    "iql": "IQL: values and a policy from recorded episodes, which value only their actions",
    "impala": "IMPALA: an actor-critic whose env runners and learners do not wait for each other",
    "appo": "APPO: IMPALA with PPO's clipped surrogate, a target network and a circular buffer",
    "ppo": "PPO: discrete and continuous actions, flat and image observations",
}
CAPABILITIES = {
    "batched_learners": "many seeds as one program",
    "bfloat16": "networks in bfloat16, weights and losses in float32",
    "changed_losses": "gradients of losses that an override of `compute_gradients` changed",
    "complete_update": "the whole update, or each step, as one compiled program",
    "exact_kinks": "gradients at kinks are fixed op by op",
    "float64": "float64 in ops and gradients",
    "fused_step": "a fused optimizer step",
    "native_optimizers": "optimizers of the framework's own",
    "onnx": "models of your own as ONNX",
    "second_derivatives": "derivatives along a vector and Hessians times a vector (`jvp`, `hvp`)",
    "user_modules": "models of your own: `torch.nn.Module`, Keras, `flax.nnx`",
    "xla": "XLA",
}


def table() -> str:
    """Algorithms and capabilities by backend, as Markdown."""
    ours = [record for record in list_plugins() if record.distribution == "plugrad"]
    backends = sorted((each.name for each in ours if each.kind == "backend" and each.requires), reverse=True)
    infos = [load_backend(name).implementation.backend_info() for name in backends]
    algorithms = [ALGORITHMS[each.name] for each in ours if each.kind == "algorithm"]
    rows = [[words, *["yes"] * len(backends)] for words in algorithms]
    for capability in sorted(frozenset().union(*(info.capabilities for info in infos))):
        answers = ["yes" if capability in info.capabilities else "" for info in infos]
        rows.append([CAPABILITIES[capability], *answers])
    lines = [["", *backends], ["---"] * (1 + len(backends)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


CODE = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
BLOCKS = [block for block in CODE if "load_policy" not in block]  # that one: tests/core/test_policy_pages.py


def test_the_readme_has_code() -> None:
    assert len(BLOCKS) == 2


def test_the_table_is_that_of_the_installed_plugins() -> None:
    for backend in ("torch", "tf2", "jax"):
        needs.backend(backend)
    found = MARKS.search(README.read_text())
    assert found is not None
    assert found[0] == table(), f"write it anew: python {Path(__file__).name}"


@pytest.mark.parametrize("block", BLOCKS, ids=["simulator", "plugin"])
def test_the_code_of_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block, str(README), "exec"), names)
    assert names["algorithm"].iteration == 1 if "algorithm" in names else names["same"].module


def test_the_learner_of_the_readme_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[0], str(README), "exec"), {})
    *updates, actions = capsys.readouterr().out.strip().splitlines()
    rewards = [float(line.split()[1]) for line in updates]
    assert rewards[0] < 0.7 < 0.9 < rewards[-1]
    assert actions == "[1]"


if __name__ == "__main__":
    README.write_text(MARKS.sub(lambda _: table(), README.read_text()))
