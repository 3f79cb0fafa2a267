"""Two kinds of spaces of a user's own, registered by one row each, and an environment that has them."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from plugrad.spaces import register

LENGTH = 4


class Orientation(Space[Any]):
    """Angles in degrees, of which 359 and 1 are near each other.

    Args:
        step: values are multiples of it.
    """

    def __init__(self, step: int) -> None:
        super().__init__((), np.float64)
        self.step = step

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return np.float64(self.step * self.np_random.integers(360 // self.step))

    def contains(self, x: Any) -> bool:
        return np.shape(x) == () and 0 <= float(x) < 360 and float(x) % self.step == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Orientation) and other.step == self.step

    def __repr__(self) -> str:
        return f"Orientation({self.step})"


class Word(Space[Any]):
    """One of some words: values are texts, which are no arrays.

    Args:
        words: all of them.
    """

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return self.words[self.np_random.integers(len(self.words))]

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and x in self.words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Word) and other.words == self.words

    def __repr__(self) -> str:
        return f"Word{self.words}"


def arrow(space: Orientation, degrees: Any) -> Any:
    return np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))


def degrees(space: Orientation, arrow: Any) -> Any:
    return np.float64(np.rint(np.rad2deg(np.arctan2(arrow[1], arrow[0])) / space.step) * space.step % 360)


register(
    Orientation,
    as_space=lambda space: Box(-1.0, 1.0, (2,), np.float32),
    to_array=arrow,
    from_array=degrees,
    arguments=lambda space: {"step": space.step},
    make=lambda data: Orientation(int(data["step"])),
)
register(
    Word,
    as_space=lambda space: Discrete(len(space.words)),
    to_array=lambda space, word: space.words.index(word),
    from_array=lambda space, place: space.words[int(place)],
    arguments=lambda space: {"words": list(space.words)},
    make=lambda data: Word(*data["words"]),
)

ORIENTATION, WORD = Orientation(15), Word("go", "stay", "wait")
SPACES: dict[str, Space[Any]] = {
    "numbers": ORIENTATION,
    "texts": WORD,
    "dict": Dict([("heading", ORIENTATION), ("word", WORD), ("speed", Box(-1.0, 1.0, (1,), np.float32))]),
}


class Compass(gym.Env[Any, Any]):
    """The return says what was done.

    Args:
        observed: a key of `SPACES`.
        acted: likewise.
        by_hand: whether values are the arrays that stand for them, in spaces of arrays, by this environment's own code.
    """

    def __init__(self, observed: str = "dict", acted: str = "dict", *, by_hand: bool = False) -> None:
        self.seen, self.done = deepcopy(SPACES[observed]), SPACES[acted]
        self.by_hand = by_hand
        self.observation_space, self.action_space = self.seen, self.done
        if by_hand:
            self.observation_space, self.action_space = arrays(self.seen), arrays(self.done)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seen.seed(int(self.np_random.integers(2**31)))
        self.steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self._observation(), told(self.done, action, self.by_hand), self.steps == LENGTH, False, {}

    def _observation(self) -> Any:
        value = self.seen.sample()
        return in_arrays(self.seen, value) if self.by_hand else value


def arrays(space: Any) -> Any:
    """The space without kinds of our own."""
    if isinstance(space, Dict):
        return Dict([(key, arrays(each)) for key, each in space.spaces.items()])
    if isinstance(space, Orientation):
        return Box(-1.0, 1.0, (2,), np.float32)
    return Discrete(len(space.words)) if isinstance(space, Word) else space


def in_arrays(space: Any, value: Any) -> Any:
    """The arrays that stand for a value."""
    if isinstance(space, Dict):
        return {key: in_arrays(each, value[key]) for key, each in space.spaces.items()}
    if isinstance(space, Orientation):
        return np.array(arrow(space, value), np.float32)
    return space.words.index(value) if isinstance(space, Word) else value


def told(space: Any, action: Any, by_hand: bool) -> float:
    """One number of an action."""
    if isinstance(space, Dict):
        return sum(
            (n + 1) * told(each, action[key], by_hand) for n, (key, each) in enumerate(space.spaces.items())
        )
    if isinstance(space, Orientation):
        return float(degrees(space, action) if by_hand else action) / 360
    if isinstance(space, Word):
        return float(action if by_hand else space.words.index(action))
    return float(np.sum(action))
