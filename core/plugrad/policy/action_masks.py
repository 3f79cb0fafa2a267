"""Action masks that come with observations."""

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Dict, Space

from plugrad.columns import Columns
from plugrad.spaces.kinds import named_parts

KEY = Columns.ACTION_MASK


def without_action_mask(space: Space[Any]) -> Space[Any]:
    """The Dict of observations without the key `action_mask`. If one key is left, it is that key's space."""
    rest = {key: each for key, each in named_parts(space).items() if key != KEY}
    return next(iter(rest.values())) if len(rest) == 1 else Dict(rest)


def split_action_mask(space: Space[Any], observation: Any) -> tuple[Any, Any]:
    """Take the key `action_mask` out of an observation, or out of a batch.

    Args:
        space: of observations without the key, as `without_action_mask` gives it.
        observation: with or without the key.

    Returns:
        `(observation, mask)`: the observation is of `space`; the mask is None without the key.
    """
    if not isinstance(observation, Mapping) or KEY not in observation:
        return observation, None
    if KEY in named_parts(space):
        return observation, None
    rest = {key: value for key, value in observation.items() if key != KEY}
    is_one = len(rest) == 1 and set(named_parts(space)) != set(rest)
    return (next(iter(rest.values())) if is_one else rest), observation[KEY]
