"""What is wrong with an algorithm, `algorithm_suite` says: that of docs/write-an-algorithm.md with a fault fails it."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from learning import ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID
from plugrad.testing import algorithm_suite
from plugrad_ppo import PPOLearner

SOUND = (Path(__file__).parents[1] / "author/plugrad-reinforce/plugrad_reinforce.py").read_text()
CONFTEST = """
import os, pytest
from plugrad.testing.tiny_task import TASKS
pytest_plugins = ["plugrad.testing.fixtures"]
@pytest.fixture(scope="session")
def backend():
    return os.environ["BACKEND"]
@pytest.fixture(scope="session", params=os.environ["ALGORITHMS"].split())
def algorithm(request):
    return request.param
"""
ONE_TASK = """
@pytest.fixture
def tiny_task():
    return TASKS["discrete"]
"""


def changed(old: str, new: str) -> str:
    """The source of the sound one with a fault."""
    assert SOUND.count(old) == 1, f"{old!r} is not in the algorithm any more"
    return SOUND.replace(old, new)


LOSS = 'return parts["policy_loss"]'
CONFIG_CLASS = "\n\n@hookimpl\ndef get_config_class"
DOUBLING = """
    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "vf_loss_coeff", 2 * self.vf_loss_coeff)
"""
FAULTS: dict[str, tuple[str, str]] = {
    "not_finite": (
        changed("ops.square(advantages)", "ops.sqrt(-ops.square(advantages))"),
        "the loss of module 'default_policy' is nan on '{backend}': it must be finite",
    ),
    "no_actions": (
        changed("policy.logp(batch[Columns.ACTIONS])", "policy.entropy()"),
        "column 'actions' of module 'default_policy' is never read",
    ),
    "no_returns": (
        changed("batch[Columns.RETURNS_TO_GO] - fwd", "1.0 - fwd"),
        "column 'returns_to_go' of module 'default_policy' is never read",
    ),
    "idle_returns": (
        changed("batch[Columns.RETURNS_TO_GO] - fwd", "0.0 * batch[Columns.RETURNS_TO_GO] - fwd"),
        "column 'returns_to_go' of module 'default_policy' is read and changes nothing",
    ),
    "no_gradient": (
        changed(LOSS, "return ops.stop_gradient(parts['policy_loss'])  # "),
        "no gradient reaches a parameter from the loss of 'default_policy': this update would train nothing",
    ),
    "differs": (
        changed(LOSS, 'return (1.0 if learner.config.backend == "numpy" else 1.1) * parts["policy_loss"]'),
        r"the loss of module 'default_policy' is \S+ on '{backend}' and \S+ on the reference",
    ),
    "wrong_sign": (
        changed('"policy_loss": -mean', '"policy_loss": mean'),
        "it has not learned to act: of 8, mean returns after every fifth iteration were",
    ),
    "no_round_trip": (
        changed(CONFIG_CLASS, DOUBLING + CONFIG_CLASS),
        "settings do not come back from a dict as they were: vf_loss_coeff went as 1.0, came as 2.0",
    ),
}
"""What is wrong with it, and the sentence that must say so."""


FROZEN = changed(LOSS, 'return (1.0 + learner.counters.get("weights_seq_no", 0)) * parts["policy_loss"]')
"""A Python number that changes between updates."""
CENTRED = changed(
    "batch[Columns.RETURNS_TO_GO] - fwd_out[Columns.VF_PREDS]",
    "batch[Columns.RETURNS_TO_GO] - (fwd_out[Columns.VF_PREDS] - ops.mean(fwd_out[Columns.VF_PREDS]))",
)
"""The gradient of the values' last bias is 0 but for rounding, of which Adam makes whole steps."""
SOURCES = {"sound": SOUND, "centred": CENTRED, "frozen": FROZEN}
SOURCES |= {name: source for name, (source, _) in FAULTS.items()}


@pytest.fixture(scope="module")
def said(backend: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the suite prints of the sound one and of all the others, of a step, or of where a fault shows itself."""
    chosen = "settings or gradients or depends or (updates and none and (frozen or centred)) or (learns and wrong_sign)"
    return run_suite(tmp_path_factory.mktemp("faults"), backend, SOURCES, CONFTEST + ONE_TASK, chosen)


def run_suite(
    site: Path, backend: str, sources: Mapping[str, str], conftest: str, chosen: str, *, code: int = 1
) -> str:
    """What pytest prints of algorithms that fail some of the chosen tests, or with `code=0` none."""
    info = site / "plugrad_faults-1.0.dist-info"
    for folder in (info, site / "tests"):
        folder.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugrad-faults\nVersion: 1.0\n")
    points = [f"{name} = of_{name}" for name in sources]
    (info / "entry_points.txt").write_text("\n".join(["[plugrad.algorithms]", *points]))
    for name, source in sources.items():
        (site / f"of_{name}.py").write_text(source)
    (site / "tests/conftest.py").write_text(conftest)
    (site / "tests/test_faults.py").write_text("from plugrad.testing.algorithm_suite import *\n")
    options = ("-rfEs", "-p", "no:cacheprovider", "--tb=no", "--rootdir=.", "-k", chosen)
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    more = {"PYTHONPATH": path, "COLUMNS": "1000", "BACKEND": backend, "ALGORITHMS": " ".join(sources)}
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        command, cwd=site / "tests", env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def is_named(said: str, name: str, words: str) -> bool:
    return bool(re.search(rf"^FAILED \S+\[{name}(-\w+)?\] - .*{words}", said, flags=re.MULTILINE))


@pytest.mark.parametrize("name", FAULTS)
def test_the_suite_fails_and_says_why(said: str, backend: str, name: str) -> None:
    assert is_named(said, name, FAULTS[name][1].replace("{backend}", backend)), said


def test_a_number_that_a_program_freezes_is_found_where_losses_are_traced(said: str, backend: str) -> None:
    """Always on tf2; mode "none" of the others is eager, and right."""
    words = r"update 2, .*; before, they were equal: does a Python number change, which a traced loss sees only once\?"
    assert is_named(said, "frozen", words) == (backend == "tf2"), said


def test_the_sound_one_passes(said: str) -> None:
    assert "[sound" not in said
    assert "ERROR" not in said


def test_a_gradient_that_is_zero_but_for_rounding_is_no_fault_of_the_author(said: str) -> None:
    assert "[centred" not in said, said


# Tasks: what an algorithm does not take is not proven, and one that takes nothing does not pass.

ONLY = """

@hookimpl
def build_network(config, module_spec):
    from plugrad.errors import ConfigError
    from plugrad.networks import ActorCritic

    if type(module_spec.action_space).__name__ not in {spaces}:
        raise ConfigError(f"no network for {{module_spec.action_space}}")
    return ActorCritic(module_spec)
"""


def test_a_task_of_other_actions_is_left_out_by_name_and_one_that_takes_none_is_an_error(
    tmp_path: Path,
) -> None:
    sources = {"boxes": SOUND + ONLY.format(spaces=["Box"]), "nothing": SOUND + ONLY.format(spaces=[])}
    said = run_suite(tmp_path, "numpy", sources, CONFTEST, "settings")
    assert re.search(r"1 passed, 1 skipped, \d+ deselected, 2 errors", said), said
    assert re.search(r"'boxes' takes no discrete actions: no network for Discrete\(2\) \(1 test\)", said), (
        said
    )
    words = "'nothing' takes no task of plugrad.testing.tiny_task, so nothing is proven. discrete: no network for Disc"
    assert words in said, said


# What it costs.

LARGE = """
@pytest.fixture
def algorithm_config(algorithm_config):
    return algorithm_config.rl_module(model_config={"fcnet_hiddens": [30]})
"""


@pytest.mark.parametrize(("more", "number", "is_many"), [("", 47, False), (LARGE, 333, True)])
def test_it_says_how_many_weights_there_are_and_of_many_which_fixture_makes_fewer(
    tmp_path: Path, more: str, number: int, is_many: bool
) -> None:
    said = run_suite(tmp_path, "numpy", {"sound": SOUND}, CONFTEST + ONE_TASK + more, "gradients", code=0)
    assert said.count(f"{number} weights: the reference computes {2 * number} losses for each gradient") == 1
    assert ("a few units in the fixture `algorithm_config` of your conftest.py" in said) == is_many


def test_the_reference_is_computed_once_for_all_backends_and_modes() -> None:
    batch, numbers = {DEFAULT_MODULE_ID: ppo_batch(16)}, []
    for mode in ("none", "auto"):  # of the numpy backend, which is compared with itself
        config = ppo_config("numpy", minibatch_size=8).learners(learner_class=Counting)
        losses_before = Counting.losses
        algorithm_suite.test_updates_are_those_of_the_reference("numpy", config, batch, mode)
        numbers.append(Counting.losses - losses_before)
    assert numbers[0] == 2 * numbers[1] > 0


class Counting(PPOLearner):
    """Counts the losses that it computes."""

    losses = 0

    def compute_loss_for_module(self, *, module_id: str, **given: Any) -> Any:
        Counting.losses += 1
        return super().compute_loss_for_module(module_id=module_id, **given)
