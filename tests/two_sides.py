"""Spaces and partners that differ from them in one way, and environments of both."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

STEPS = 4
NUMBERS, CHOICE = Box(-1.0, 1.0, (2,), np.float32), Discrete(2)
IMAGE = Box(0, 255, (2, 2, 1), np.uint8)
JOINTS = Box(-1.0, 1.0, (3,), np.float32)
Pair = tuple[Space[Any], Space[Any]]


def keyed(**parts: Space[Any]) -> Dict:
    """A Dict in the order of the arguments: `Dict({...})` of some versions of Gymnasium sorts its keys."""
    return Dict([*parts.items()])


SPACES: dict[str, Pair] = {
    "numbers": (NUMBERS, CHOICE),
    "dict": (keyed(speed=NUMBERS, noise=NUMBERS), CHOICE),
    "camera": (keyed(joints=JOINTS, camera=IMAGE), CHOICE),
    "nested": (keyed(z=keyed(b=NUMBERS, a=JOINTS), y=NUMBERS), CHOICE),
    "tuple": (Tuple([NUMBERS, Discrete(3)]), CHOICE),
    "image": (Box(0, 255, (4, 4, 1), np.uint8), CHOICE),
    "choice": (Discrete(3), CHOICE),
    "choices": (MultiDiscrete([2, 3]), CHOICE),
    "flags": (MultiBinary(3), CHOICE),
    "dict of actions": (NUMBERS, keyed(grip=Discrete(3), arm=Box(-1.0, 1.0, (2,), np.float32))),
    "tuple of actions": (NUMBERS, Tuple([Discrete(2), Discrete(3)])),
    "torques": (NUMBERS, Box(-1.0, 1.0, (2,), np.float32)),
}
"""`{name: (observation space, action space)}`."""


def changed(space: Space[Any], how: str) -> Space[Any] | None:
    """A space that differs in one way, in its first part that can; None if none can."""
    if isinstance(space, Dict):
        items = [*space.spaces.items()]
        if how == "permuted":
            return Dict([(key, changed(each, how) or each) for key, each in reversed(items)])
        if how == "renamed":
            return Dict([("other", items[0][1]), *items[1:]])
        return _one(items, how, Dict)
    if isinstance(space, Tuple):
        return _one([*enumerate(space.spaces)], how, lambda parts: Tuple([each for _, each in parts]))
    return CHANGES[how](space) if how in CHANGES else None


def _one(items: list[Any], how: str, make: Callable[[Any], Any]) -> Any:
    for n, (key, each) in enumerate(items):
        if (other := changed(each, how)) is not None:
            return make([*items[:n], (key, other), *items[n + 1 :]])
    return None


def _resized(space: Space[Any]) -> Space[Any]:
    if isinstance(space, Discrete):
        return Discrete(int(space.n) + 1)
    if isinstance(space, MultiDiscrete):
        return MultiDiscrete(space.nvec + 1)
    if isinstance(space, MultiBinary):
        return MultiBinary(int(space.n) + 1)
    shape = (*space.shape[:-1], space.shape[-1] + 1)
    return Box(space.low.flat[0], space.high.flat[0], shape, space.dtype.type)


def _retyped(space: Space[Any]) -> Space[Any] | None:
    if isinstance(space, Box) and space.dtype == np.float32:
        return Box(0, 255, space.shape, np.uint8)
    return Box(0.0, 1.0, space.shape, np.float32) if isinstance(space, Box) else None


def _rebounded(space: Space[Any]) -> Space[Any] | None:
    if isinstance(space, Box):
        is_image = space.dtype == np.uint8
        return Box(space.low * 2, space.high // 2 if is_image else space.high * 2, dtype=space.dtype.type)
    return Discrete(int(space.n), start=2) if isinstance(space, Discrete) else None


CHANGES = {"resized": _resized, "retyped": _retyped, "rebounded": _rebounded}
PARTNERS = ("permuted", "renamed", *CHANGES)


def partners(name: str) -> Iterator[tuple[str, str, Pair]]:
    """`(way, which space, the partner)` of all ways in which the observations or the actions can differ."""
    observations, actions = SPACES[name]
    for how in PARTNERS:
        if (other := changed(observations, how)) is not None:
            yield how, "observation_space", (other, actions)
        if (other := changed(actions, how)) is not None:
            yield how, "action_space", (observations, other)


class Mirror(gym.Env[Any, Any]):
    """Observations are drawn key by key in the order of the names; the return tells which number each part acted.

    Attributes:
        observation_space, action_space: of the subclass.
    """

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        assert self.action_space.contains(action), action
        return self._observation(), _told(action), self._steps == STEPS, False, {}

    def _observation(self) -> Any:
        return drawn(self.observation_space, self.np_random)


def drawn(space: Space[Any], rng: np.random.Generator) -> Any:
    """An observation that depends neither on the order of keys nor on bounds."""
    if isinstance(space, Dict):
        return {key: drawn(space.spaces[key], rng) for key in sorted(space.spaces)}
    if isinstance(space, Tuple):
        return tuple(drawn(each, rng) for each in space.spaces)
    if isinstance(space, Box):
        numbers = rng.uniform(0.0, 1.0, space.shape)
        return (100 * numbers if space.dtype == np.uint8 else numbers).astype(space.dtype)
    space.seed(int(rng.integers(2**31)))
    return space.sample()


def _told(action: Any) -> float:
    """One number of an action, to which each part by its name contributes."""
    if isinstance(action, dict):
        return sum((n + 1) * _told(action[key]) for n, key in enumerate(sorted(action)))
    if isinstance(action, tuple):
        return sum((n + 1) * _told(each) for n, each in enumerate(action))
    values = np.ravel(action).astype(np.float64)
    return float(values @ np.arange(1, values.size + 1))


def environment(spaces: Pair) -> type[Mirror]:
    """An environment of these spaces, with a name that a checkpoint can have."""
    name = f"Mirror{len(_made)}"
    parts = {"observation_space": spaces[0], "action_space": spaces[1], "__module__": __name__}
    _made[name] = globals()[name] = type(name, (Mirror,), parts)
    return _made[name]


_made: dict[str, type[Mirror]] = {}


Current: type[Mirror] = environment(SPACES["numbers"])
"""What `two_sides:Current` names: a simulator whose code changes between two commands."""
