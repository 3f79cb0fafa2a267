"""What the programs of this folder share: the backend, small learners, and the one line that says what was found."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from plugrad import DEFAULT_MODULE_ID
from plugrad_ppo import PPOConfig

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "torch"
P = DEFAULT_MODULE_ID
OBSERVATIONS = gym.spaces.Box(-5.0, 5.0, (3,), np.float32)
CHOICES = gym.spaces.Discrete(3)


def wrong(found: Any) -> NoReturn:
    """End with exit status 1 and this line."""
    print(" ".join(str(found).split())[:400])
    sys.exit(1)


def check(right: Any, found: Any) -> None:
    """End the program unless `right`."""
    if not right:
        wrong(found)


@contextmanager
def refused(error: type[Exception], *words: str) -> Iterator[None]:
    """A block that must raise this error, whose message has these words."""
    try:
        yield
    except error as raised:
        lacking = [word for word in words if word not in str(raised)]
        check(not lacking, f"{type(raised).__name__} without {lacking}: {raised}")
    else:
        wrong(f"no {error.__name__} was raised")


def small(
    config_class: type[Any] = PPOConfig,
    observations: Any = OBSERVATIONS,
    actions: Any = CHOICES,
    *,
    compile: str = "none",
    seed: int = 0,
    model: dict[str, Any] | None = None,
    **training: Any,
) -> Any:
    """A config of a small network over these spaces; whole batches, one epoch."""
    whole = {"minibatch_size": None} | ({"num_epochs": 1} if config_class is PPOConfig else {})
    config = config_class().framework(BACKEND, compile=compile).debugging(seed=seed)
    config = config.environment(observation_space=observations, action_space=actions)
    return config.rl_module(model_config=model or {"fcnet_hiddens": [8]}).training(**whole | training)


def in_environment(env: Any, config_class: type[Any] = PPOConfig, *, seed: int = 0, **training: Any) -> Any:
    """A config of a small network that acts in this environment."""
    config = config_class().framework(BACKEND, compile="none").debugging(seed=seed).environment(env)
    return config.rl_module(model_config={"fcnet_hiddens": [8]}).training(**training)


def ppo_rows(learner: Any, number: int = 32, *, module_id: str = P, seed: int = 0) -> dict[str, Any]:
    """Rows of PPO whose actions are those of the learner."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(number, 3)).astype(np.float32)
    numbers = {name: rng.normal(size=number).astype(np.float32) for name in ("advantages", "value_targets")}
    return {**learner.compute_actions(obs, module_id=module_id), "obs": obs, **numbers}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two mappings have the same names and the same numbers."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _unexpected(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    sys.__excepthook__(kind, error, trace)
    print(" ".join(f"unexpected {kind.__name__}: {error}".split())[:400])


sys.excepthook = _unexpected
