"""Steps that are large enough for two threads: whatever thread computes a part, equal runs have equal bits.

`tox -e torch` and `tox -e py312-jax` run with two threads, and say so in PLUGRAD_TEST_THREADS; the other environments
have one.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import digest, weights

from plugrad import Learner
from plugrad_ppo import PPOConfig, PPOLearner

pytestmark = pytest.mark.smoke

ROWS, OBSERVATIONS, UNITS = 1024, 64, 64
THREADS = int(os.environ.get("PLUGRAD_TEST_THREADS", 0))
"""As the environment says; 0 where it says nothing."""


# Eager JAX takes a minute for what a program does in seconds.
@pytest.fixture(params=[("torch", "none"), ("torch", "auto"), ("jax", "auto")], ids="-".join)
def threaded(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A backend whose steps share their work among threads, and a mode.

    Where the environment says nothing torch gets two threads here; where it does, it must have brought them about.
    """
    framework = needs.backend(request.param[0])
    if request.param[0] == "jax" or THREADS:
        yield request.param
        return
    before = framework.get_num_threads()
    framework.set_num_threads(2)
    yield request.param
    framework.set_num_threads(before)


def config_of(
    backend: str, mode: str, learner_class: type[Learner] = PPOLearner, **training: Any
) -> PPOConfig:
    config = PPOConfig().framework(backend, compile=mode, device="cpu").debugging(seed=1)
    config = config.environment(
        observation_space=gym.spaces.Box(-1, 1, (OBSERVATIONS,), np.float32),
        action_space=gym.spaces.Discrete(2),
    )
    config = config.rl_module(model_config={"fcnet_hiddens": [UNITS, UNITS]}).training(
        **{"minibatch_size": None, "num_epochs": 1, "shuffle_batch_per_epoch": False, **training}
    )
    return config.learners(learner_class=learner_class)


def batch(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(ROWS, 2)).astype(np.float32)
    actions = rng.integers(2, size=ROWS)
    logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return {
        "obs": rng.uniform(-1, 1, (ROWS, OBSERVATIONS)).astype(np.float32),
        "actions": actions,
        "action_dist_inputs": logits,
        "action_logp": logp[np.arange(ROWS), actions],
        "advantages": rng.normal(size=ROWS).astype(np.float32),
        "value_targets": rng.normal(size=ROWS).astype(np.float32),
    }


def test_there_are_as_many_threads_as_the_environment_says(threaded: tuple[str, str]) -> None:
    """Counted while a loss is computed, or in the process once XLA has computed."""
    found: list[int] = []

    class Counts(PPOLearner):
        def compute_loss_for_module(self, **given: Any) -> Any:
            if threaded[0] == "torch":
                found.append(needs.backend("torch").get_num_threads())
            return super().compute_loss_for_module(**given)

    config_of(*threaded, Counts).build_learner().update(batch(0))
    if threaded[0] == "jax":
        names = [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")]
        found.append(names.count("tf_XLAEigen"))
    assert found
    assert set(found) == {THREADS or found[0]}
    # XLA's threads had another name before, and where nothing says how many there are it may have one.
    assert found[0] > 1 or (threaded[0] == "jax" and not THREADS)


def test_equal_runs_on_threads_have_equal_bits_and_one_that_is_resumed_goes_on(
    threaded: tuple[str, str],
) -> None:
    straight, stopped, resumed = (config_of(*threaded).build_learner() for _ in range(3))
    for n in range(4):
        straight.update(batch(n))
    for n in range(2):
        stopped.update(batch(n))
    resumed.set_state(stopped.get_state())
    for n in range(2, 4):
        resumed.update(batch(n))
    assert digest(resumed.get_state()) == digest(straight.get_state())


def test_a_step_on_threads_is_that_of_sixteen_parts_which_need_none(threaded: tuple[str, str]) -> None:
    settings = {"optimizer": {"type": "sgd"}, "lr": 0.01}
    whole = config_of(*threaded, **settings).build_learner()
    parts = config_of(*threaded, **settings, minibatch_size=ROWS // 16, accumulate=16).build_learner()
    before = weights(whole)
    for n in range(2):
        whole.update(batch(n))
        parts.update(batch(n))
    assert np.abs(weights(whole) - before).max() > 1e-4
    np.testing.assert_allclose(weights(parts), weights(whole), rtol=0, atol=1e-6)
