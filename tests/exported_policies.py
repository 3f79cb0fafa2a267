"""Policies that are exported as ONNX models, and what compares a runtime with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.policy import Policy
from plugrad_ppo import PPOConfig

runtime = needs.extra("onnxruntime")

VECTOR = Box(-2.0, 2.0, (3,), np.float32)


class Spaces(gym.Env[Any, Any]):
    """An environment of two spaces, in which nothing matters."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def policy(
    observations: gym.Space[Any] = VECTOR,
    actions: gym.Space[Any] = Discrete(4),  # noqa: B008 (is not changed)
    config: AlgorithmConfig | None = None,
    backend: str = "numpy",
    **model_config: Any,
) -> Policy:
    """An untrained policy, whose heads are as large as trained ones are."""
    spaces = {"observation_space": observations, "action_space": actions}
    config = (
        (config or PPOConfig()).environment(Spaces, env_config=spaces).framework(backend).debugging(seed=0)
    )
    if config.rl_module_spec is None:
        config = config.rl_module(model_config={"fcnet_hiddens": [8, 8], **model_config})
    algorithm = config.build_algo()
    if algorithm.config.normalize_observations:
        algorithm.env_runner.sample(50)
    weights = algorithm.learner_group.get_weights()
    for module in weights.values():
        for name in module:
            if name.endswith("out.weight"):
                module[name] = module[name] * 100.0
    algorithm.learner_group.set_weights(weights)
    algorithm.stop()
    return algorithm.get_policy()


def exported(policy: Policy, tmp_path: Path, *, action_mask: bool = False) -> Any:
    """A session of a runtime that has the policy."""
    return runtime.InferenceSession(policy.export_onnx(tmp_path / "policy.onnx", action_mask=action_mask))


def sample(space: gym.Space[Any], number: int) -> Any:
    """A batch of observations in the structure of a space."""
    if isinstance(space, Dict):
        return {key: sample(each, number) for key, each in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(sample(each, number) for each in space.spaces)
    space.seed(0)
    return np.stack([np.asarray(space.sample()) for _ in range(number)])


def fed(session: Any, observations: Any, **more: Any) -> dict[str, Any]:
    """The inputs of a session, which has the leaves of observations in their order."""
    inputs = (each.name for each in session.get_inputs() if each.name not in more)
    return {**dict(zip(inputs, leaves(observations), strict=True)), **more}


def leaves(found: Any) -> list[Any]:
    parts = found.values() if isinstance(found, Mapping) else found
    return (
        [leaf for part in parts for leaf in leaves(part)]
        if isinstance(found, Mapping | tuple)
        else [np.asarray(found)]
    )


def assert_same(found: list[Any], actions: Any) -> None:
    expected = leaves(actions)
    for mine, right in zip(found, expected, strict=True):
        assert mine.dtype == right.dtype
        assert mine.shape == right.shape
        assert len(np.unique(right, axis=0)) > 1
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-5)
