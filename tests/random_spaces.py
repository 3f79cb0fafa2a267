"""An environment of random spaces: random observations, masks by each convention, and actions that are checked."""

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from plugrad.types import Array

EPISODE = 4
"""Steps of each episode."""
MASK_SOURCES = ("observation", "info", "method")
"""RLlib's key of the observation, PettingZoo's of `info`, sb3-contrib's `env.action_masks()`."""


class Cell(NamedTuple):
    """One combination; the names of its spaces seed their sizes."""

    observation: str
    action: str
    variant: str

    def rng(self, purpose: str) -> np.random.Generator:
        """A stream of the cell's own."""
        return np.random.default_rng(crc32("-".join([self.observation, self.action, purpose]).encode()))

    @property
    def observation_space(self) -> Space[Any]:
        """Of random sizes, without a mask."""
        return OBSERVATIONS[self.observation](self.rng("observation"))

    @property
    def action_space(self) -> Space[Any]:
        """Of random sizes; a Dict that is masked has no Box."""
        name = "Dict of discrete" if (self.action, self.variant) == ("Dict", "mask") else self.action
        return ACTIONS[name](self.rng("action"))

    @property
    def mask_source(self) -> str | None:
        """One of `MASK_SOURCES`; None for a variant without masks."""
        return str(self.rng("mask").choice(MASK_SOURCES)) if self.variant == "mask" else None


def _sizes(rng: np.random.Generator, *, low: int = 2, high: int = 5, axes: int) -> list[int]:
    return [int(size) for size in rng.integers(low, high, size=axes)]


def _vector(rng: np.random.Generator) -> Box:
    return Box(-1.0, 2.0, tuple(_sizes(rng, axes=1)), rng.choice([np.float32, np.float64]))


def _image(rng: np.random.Generator, *, channels_first: bool) -> Box:
    size, channels = _sizes(rng, low=20, high=23, axes=2), int(rng.integers(1, 5))
    shape = (channels, *size) if channels_first else (*size, channels)
    return Box(0, 255, shape, np.uint8)


def _discrete(rng: np.random.Generator) -> Discrete:
    return Discrete(*_sizes(rng, axes=1), start=int(rng.integers(-2, 3)))


def _multi_discrete(rng: np.random.Generator) -> MultiDiscrete:
    nvec = rng.integers(2, 4, size=_sizes(rng, high=4, axes=int(rng.integers(1, 3))))
    return MultiDiscrete(nvec, start=rng.integers(-2, 3, size=nvec.shape))


def _box(rng: np.random.Generator, axes: int) -> Box:
    shape = _sizes(rng, high=4, axes=axes)
    low = rng.uniform(-1.0, 0.0, size=shape).astype(np.float32)
    return Box(low, low + rng.uniform(0.5, 2.0, size=shape).astype(np.float32))


Maker = Callable[[np.random.Generator], Space[Any]]
OBSERVATIONS: dict[str, Maker] = {
    "Box": _vector,
    "Box of one number": lambda rng: Box(-1.0, 2.0, (), rng.choice([np.float32, np.float64])),
    "image HWC": lambda rng: _image(rng, channels_first=False),
    "image CHW": lambda rng: _image(rng, channels_first=True),
    "Dict": lambda rng: Dict(
        {"vector": _vector(rng), "image": _image(rng, channels_first=bool(rng.integers(2)))}
    ),
    "Tuple": lambda rng: Tuple((_vector(rng), _discrete(rng), MultiBinary(2), _multi_discrete(rng))),
    "Discrete": _discrete,
}
ACTIONS: dict[str, Maker] = {
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": lambda rng: MultiBinary(_sizes(rng, high=4, axes=int(rng.integers(1, 3)))),
    "Box": lambda rng: _box(rng, axes=1),
    "n-d Box": lambda rng: _box(rng, axes=int(rng.integers(2, 4))),
    "Dict": lambda rng: Dict({"turn": _discrete(rng), "force": _box(rng, axes=1)}),
    "Dict of discrete": lambda rng: Dict({"turn": _discrete(rng), "buttons": MultiBinary(2)}),
}


def has_image(space: Space[Any]) -> bool:
    """Whether a network for these observations has convolutions."""
    parts = space.spaces.values() if isinstance(space, Dict) else [space]
    return any(each.dtype == np.uint8 and len(each.shape or ()) == 3 for each in parts)


def choices(space: Space[Any]) -> list[int]:
    """The number of choices of each discrete part of an action, in the order of a mask."""
    match space:
        case Discrete():
            return [int(space.n)]
        case MultiDiscrete():
            return [int(n) for n in space.nvec.ravel()]
        case MultiBinary():
            return [2] * int(np.prod(space.shape))
        case Dict():
            return [n for part in space.spaces.values() for n in choices(part)]
    return []


def chosen(space: Space[Any], action: Any) -> list[int]:
    """Which choice each discrete part made, from 0."""
    if isinstance(space, Dict):
        return [n for key, part in space.spaces.items() for n in chosen(part, action[key])]
    start = space.start if isinstance(space, Discrete | MultiDiscrete) else 0
    return [int(n) for n in np.ravel(action - start)]


class Step(NamedTuple):
    """What an environment gave, and was then told to do."""

    observation: Any
    mask: Array | None
    action: Any


class RandomSpaces(gym.Env[Any, Any]):
    """The environment of a cell; an action that is not of its space, or that the mask forbids, is an error.

    Args:
        observation: of the cell.
        action: of the cell.
        variant: of the cell.
    """

    log: list[Step] = []  # noqa: RUF012 (of all environments in the order of their steps, emptied by the tests)

    def __init__(self, observation: str, action: str, variant: str) -> None:
        cell = Cell(observation, action, variant)
        self.action_space, self._inner = cell.action_space, cell.observation_space
        self._source, self._choices = cell.mask_source, choices(cell.action_space) or [2]
        self.observation_space = self._inner
        if self._source == "observation":
            mask = {"action_mask": Box(0, 1, (sum(self._choices),), np.int8)}
            parts = self._inner.spaces if isinstance(self._inner, Dict) else {"observations": self._inner}
            self.observation_space = Dict({**parts, **mask})
        if self._source == "method":
            self.action_masks = lambda: self._mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode that is determined by the seed."""
        super().reset(seed=seed)
        self._inner.seed(int(self.np_random.integers(2**31)))
        self._steps = 0
        return self._look()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Check and log an action."""
        assert self.action_space.contains(action), f"{action!r} is not of {self.action_space}"
        if self._mask is not None:
            parts = np.split(self._mask, np.cumsum(self._choices)[:-1])
            taken = chosen(self.action_space, action)
            assert all(part[n] for part, n in zip(parts, taken, strict=True)), (
                f"{action} against {self._mask}"
            )
        RandomSpaces.log.append(Step(self._seen, self._mask, action))
        self._steps += 1
        observation, info = self._look()
        return observation, float(self.np_random.normal()), self._steps == EPISODE, False, info

    def _look(self) -> tuple[Any, dict[str, Any]]:
        self._mask = self._draw_mask() if self._source else None
        self._seen = self._inner.sample()
        if self._source == "observation":
            parts = self._seen if isinstance(self._inner, Dict) else {"observations": self._seen}
            self._seen = {**parts, "action_mask": self._mask}
        return self._seen, {"action_mask": self._mask} if self._source == "info" else {}

    def _draw_mask(self) -> Array:
        """At least one choice of each part is allowed."""
        parts = [self.np_random.integers(0, 2, n, np.int8) for n in self._choices]
        for part in parts:
            part[self.np_random.integers(len(part))] = 1
        return np.concatenate(parts)
