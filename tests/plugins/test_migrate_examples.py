"""RLlib's own examples: what those that run after `plugrad migrate` import is known, and what others lack is named."""

import json
import re
from pathlib import Path

import needs
import pytest

needs.extra("libcst")

EXAMPLES = json.loads((Path(__file__).parents[1] / "data/rllib_examples.json").read_text())
"""`{example of RLlib: {"of", "outcome", "names", "notes"}}`; `tests/rllib_examples.py` makes it.

`imported` has the notes on the other examples that it imports. `of` is the wheel, or the repository and the commit,
that it was taken from; those of `algorithms/*/` are the tuned ones, without Atari, MuJoCo and DreamerV3, read without
their comments, so that the lines of their notes are fewer. The offline ones read recordings of plugrad's, since no
wheel has RLlib's.

The outcome "not run" is of those that migrate rewrites otherwise since the last run, or that it did not reach.
"""
RUN = sorted(name for name, found in EXAMPLES.items() if found["outcome"] == "runs")


def migrated_imports(example: str) -> tuple[list[str], dict[int, str]]:
    """The imports of RLlib that stay after migrate, and its notes by line: the n-th name is imported on line n."""
    from plugrad_rllib.migrate.rewrite import migrate  # it needs libcst

    names = [each.split(":") for each in EXAMPLES[example]["names"]]
    text, notes = migrate("".join(f"from {module} import {name}\n" for module, name in names))
    left = re.findall(r"^from ray\.rllib.* import (\w+)$", text, re.MULTILINE)
    return left, {note.line: note.text for note in notes}


@pytest.mark.parametrize("example", RUN)
def test_everything_that_an_example_that_runs_imports_of_rllib_is_known(example: str) -> None:
    assert migrated_imports(example)[0] == []


@pytest.mark.parametrize("example", sorted(set(EXAMPLES) - set(RUN)))
def test_each_name_that_keeps_an_example_from_running_is_noted_at_its_line(example: str) -> None:
    left, notes = migrated_imports(example)
    lines = {each.partition(":")[2]: n for n, each in enumerate(EXAMPLES[example]["names"], 1)}
    for name in left:
        assert name in notes[lines[name]]
    assert EXAMPLES[example]["outcome"], "without a reason"


WALLS = {
    "checkpoints/continue_training_from_checkpoint.py": "callbacks(None) was deleted: a config keeps its plugins",
    "checkpoints/onnx_torch_lstm.py": ".model: a policy acts",
    "fault_tolerance/crashing_and_stalling_env.py": ".worker_index: env_config is a dict",
    "gpus/float16_training_and_inference.py": ".half(): config.framework(",
    "gpus/mixed_precision_training_float16_inference.py": ".half(): config.framework(",
    "inference/policy_inference_after_training_with_attention.py": ".compute_single_action: ",
    "inference/policy_inference_after_training_with_lstm.py": ".compute_single_action: ",
    "learners/ppo_with_torch_lr_schedulers.py": "experimental(_torch_lr_scheduler_classes=...): give lr=",
    "learners/separate_vf_lr_and_optimizer.py": ".actor_encoder: built-in modules have no such part",
    "metrics/custom_metrics_in_algorithm_training_step.py": "class VPG: config.build_algo() makes the Algorithm itself",
    "multi_agent/self_play_footsies.py": "env_creator is of RLlib's examples: copy it",
    "offline_rl/cartpole_recording.py": "ray.data.read_parquet: recorded episodes are plugrad's own files",
    "offline_rl/pretrain_bc_single_agent_evaluate_as_multi_agent.py": "RandomPolicy is of RLlib's examples: copy it",
    "offline_rl/saving_experiences.py": "SampleBatchBuilder: of RLlib's old API stack",
    "quadx_waypoints.py": "register_env: give .environment(...) the function",
    "ray_serve/ray_serve_with_rllib.py": "a checkpoint is one folder",
    "ray_tune/custom_experiment.py": ".algo_class.default_resource_request: config.build_algo() makes the Algorithm",
}
"""What the note says that names why an example does not run, where that is no import."""
STOPPED = {name for name, found in EXAMPLES.items() if re.match("no end|not run", found["outcome"])}
"""Examples whose last run was stopped, or that were not run since migrate rewrites them otherwise."""


@pytest.mark.parametrize("example", sorted(set(EXAMPLES) - set(RUN) - (STOPPED - WALLS.keys())))
def test_why_an_example_does_not_run_is_named_by_migrate(example: str) -> None:
    found = EXAMPLES[example]
    others = [note for notes in found.get("imported", {}).values() for note in notes]
    said = [note.partition(": ")[2] for note in [*found["notes"], *others]]
    needed = re.findall(r"\w+", found["outcome"].partition("needs RLlib: ")[2])
    walls = [WALLS[example]] if example in WALLS else needed
    assert walls
    assert [text for text in said if text.startswith(tuple(walls))], found["outcome"]


def test_the_page_counts_the_examples_that_run() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/from-rllib.md").read_text().split())
    tuned = {name for name in EXAMPLES if re.match(r"algorithms/\w+/", name)}
    others = EXAMPLES.keys() - tuned
    assert f"small environments, {len(tuned & set(RUN))} of {len(tuned)} train" in page
    assert f"its other examples {len(others & set(RUN))} of {len(others)}:" in page
