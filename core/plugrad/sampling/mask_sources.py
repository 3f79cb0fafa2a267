"""The three conventions for action masks of environments; `with_mask_in_info` makes all of them the last one.

- `observation["action_mask"]`, as in RLlib. The key is removed from the observation. If one other key is left, the
  observation is that key's value.
- `env.action_masks()`, as in sb3-contrib.
- `info["action_mask"]`, as in PettingZoo.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space

from plugrad.action_masks import choice_sizes
from plugrad.columns import Columns
from plugrad.policy.observations import split_action_mask, without_action_mask
from plugrad.spaces.kinds import named_parts

KEY = Columns.ACTION_MASK
METHOD = "action_masks"
SOURCE = "mask_source"


def with_mask_in_info(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """An environment that gives its masks as `info["action_mask"]`.

    Args:
        env: by any of the conventions, or without masks.

    Returns:
        `env` itself if it has no other convention.

    Raises:
        ConfigError: its actions are not discrete.
    """
    space = env.observation_space
    if KEY in named_parts(space):
        return _MaskOfObservation(env, space)
    return _MaskOfMethod(env) if env.has_wrapper_attr(METHOD) else env


def mask_source(envs: Sequence[gym.Env[Any, Any]]) -> str:
    """The convention of environments that `with_mask_in_info` made, for the log."""
    sources = [env.get_wrapper_attr(SOURCE) for env in envs if env.has_wrapper_attr(SOURCE)]
    return str(sources[0]) if sources else f"info[{KEY!r}]"


class _MaskInInfo(gym.Wrapper[Any, Any, Any, Any]):
    mask_source: str
    """The convention of the environment, for the log."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        choice_sizes(env.action_space)

    def reset(self, **settings: Any) -> Any:
        return self._moved(self.env.reset(**settings), 2)

    def step(self, action: Any) -> Any:
        return self._moved(self.env.step(action), 5)

    def _moved(self, answer: Any, length: int) -> Any:
        """The answer with the mask in its info; one that breaks Gymnasium's contract as it is, to be refused."""
        if type(answer) is not tuple or len(answer) != length or type(answer[-1]) is not dict:
            return answer
        observation, mask = self._split(answer)
        info = answer[-1] if mask is None else {**answer[-1], KEY: np.asarray(mask)}
        return (observation, *answer[1:-1], info)

    def _split(self, answer: tuple[Any, ...]) -> tuple[Any, Any]:
        """The observation, and the mask that belongs to it."""
        raise NotImplementedError


class _MaskOfObservation(_MaskInInfo):
    mask_source = f"observation[{KEY!r}]"

    def __init__(self, env: gym.Env[Any, Any], space: Space[Any]) -> None:
        super().__init__(env)
        self.observation_space: Space[Any] = without_action_mask(space)

    def _split(self, answer: tuple[Any, ...]) -> tuple[Any, Any]:
        return split_action_mask(self.observation_space, answer[0])


class _MaskOfMethod(_MaskInInfo):
    mask_source = f"env.{METHOD}()"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._masks = env.get_wrapper_attr(METHOD)

    def _split(self, answer: tuple[Any, ...]) -> tuple[Any, Any]:
        # Where an episode has terminated no action follows, and the method may not work.
        has_terminated = len(answer) == 5 and answer[2]
        return answer[0], None if has_terminated else self._masks()
