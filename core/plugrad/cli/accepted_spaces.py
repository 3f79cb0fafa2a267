"""The spaces that an algorithm takes, found by building a small learner for each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.errors import ConfigError
from plugrad.hooks.registry import PLUGINS_VARIABLE
from plugrad.types import DEFAULT_MODULE_ID

BACKEND = "numpy"
"""The reference backend, which needs no framework."""

ACTIONS: dict[str, Space[Any]] = {
    "Discrete": Discrete(2),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "MultiBinary": MultiBinary(2),
    "Box": Box(-1.0, 1.0, (2,)),
    "n-d Box": Box(-1.0, 1.0, (1, 2)),
    "Box without bounds": Box(-np.inf, np.inf, (2,)),
    "Tuple": Tuple([Discrete(2), Box(-1.0, 1.0, (2,))]),
    "Dict": Dict({"a": Discrete(2), "b": MultiBinary(2)}),
}
OBSERVATIONS: dict[str, Space[Any]] = {
    "vectors": Box(-np.inf, np.inf, (3,), np.float32),
    "images": Box(0, 255, (20, 20, 3), np.uint8),
    "dicts": Dict({"image": Box(0, 255, (20, 20, 3), np.uint8), "vector": Box(-1.0, 1.0, (3,), np.float32)}),
}
"""As modules read observations; those of a Discrete, MultiDiscrete or MultiBinary environment are vectors."""

SMALL = {"fcnet_hiddens": [1]}
"""A `model_config` of networks that are made in no time."""


@dataclass(frozen=True)
class AcceptedSpaces:
    """Names of the kinds of spaces that an algorithm takes, by its default network.

    Attributes:
        observations: names of `OBSERVATIONS`.
        actions: names of `ACTIONS`.
    """

    observations: tuple[str, ...]
    actions: tuple[str, ...]


def accepted_spaces(config_class: type[AlgorithmConfig]) -> AcceptedSpaces:
    """Build a learner of each kind of space. An algorithm refuses a space by raising a `ConfigError`.

    Args:
        config_class: the algorithm's config.

    Returns:
        The kinds for which a learner was built.

    Raises:
        ConfigError: an algorithm that takes no actions at all: what it says to the first.
    """
    vector = OBSERVATIONS["vectors"]
    refusals = {name: _refusal(config_class, vector, space) for name, space in ACTIONS.items()}
    actions = tuple(name for name, refusal in refusals.items() if refusal is None)
    if not actions:
        raise next(refusal for refusal in refusals.values() if refusal is not None)
    one = ACTIONS[actions[0]]
    taken = [name for name, space in OBSERVATIONS.items() if _refusal(config_class, space, one) is None]
    return AcceptedSpaces(tuple(taken), actions)


def _refusal(
    config_class: type[AlgorithmConfig], observations: Space[Any], actions: Space[Any]
) -> ConfigError | None:
    refusal: ConfigError | None = None
    for model_config in (SMALL, {}):  # an algorithm's own network may have other settings
        config = config_class().framework(BACKEND).rl_module(model_config=model_config)
        try:
            with _no_listeners():
                config.build_learner(spaces={DEFAULT_MODULE_ID: (observations, actions)})
        except ConfigError as error:
            refusal = error
        else:
            return None
    return refusal


@contextmanager
def _no_listeners() -> Iterator[None]:
    """Build learners that nobody trains without the listeners that the user wants to hear of trained ones."""
    asked = os.environ.pop(PLUGINS_VARIABLE, None)
    try:
        yield
    finally:
        if asked is not None:
            os.environ[PLUGINS_VARIABLE] = asked
