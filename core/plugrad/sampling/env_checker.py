"""Check that environments keep Gymnasium's contract.

An error names the environment, what it returned and what was expected.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Space

from plugrad.action_masks import as_mask, choice_sizes, expected
from plugrad.columns import Columns
from plugrad.errors import ConfigError, EnvContractError, PlugradError
from plugrad.observations.rows import cast_exactly, nonfinite, nonfinite_part
from plugrad.spaces.kinds import is_array
from plugrad.spaces.layout import leaves
from plugrad.types import Array

STEP = "(observation, reward, terminated, truncated, info)"
RESET = "(observation, info)"
FINITE = "finite numbers"
RAISED_BY = ("raised by step() of environment ", "raised by reset() of environment ")
"""How the notes on errors of an environment's own code begin."""
SHOWN_VALUES = 8
_CALLERS = (
    "functools",
    "gymnasium.core",
    "gymnasium.spaces",
    "gymnasium.utils",
    "gymnasium.vector.utils",
    "gymnasium.wrappers",
    "numpy",
    "plugrad.sampling.async_envs",
    "plugrad.sampling.atari",
    "plugrad.sampling.flat_observations",
    "plugrad.sampling.wrappers",
    "plugrad.sampling.mask_sources",
    "plugrad.sampling.replayable_env",
)
"""Modules that call an environment: an error that no other module took part in is Gymnasium's."""


@contextmanager
def replaying(env: object) -> Iterator[None]:
    """A block that replays a running episode: an error of the environment's code is not one of the saved file.

    Args:
        env: its name, for the error.

    Raises:
        EnvContractError: from the environment's error.
    """
    try:
        yield
    except PlugradError:
        raise
    except Exception as error:
        raise EnvContractError(
            f"{env} cannot replay the saved running episode from its seed and actions: it raised "
            f"{type(error).__name__}: {error}"
        ) from error


class WrongObservationError(EnvContractError):
    """An observation, or a part of one, is not of its space; `Contract` adds which environment gave it."""

    @classmethod
    def of(cls, path: str, value: Any, space: Space[Any], *, has_wrong_dtype: bool = False) -> Self:
        """The error of a value.

        Args:
            path: of the part, such as `['camera']`; empty for the whole observation.
            value: what the environment gave.
            space: of the part.
            has_wrong_dtype: whether only the dtype is wrong: that of the space does not hold the numbers.
        """
        found, expected = f"as observation{path} {describe(value)}", f"the observation space{path} is {space}"
        if has_wrong_dtype:
            expected += (
                f", whose dtype does not hold these numbers: return {space.dtype}, or declare another dtype"
            )
        return cls(f"the environment returned {found}; expected: {expected}", found=found, expected=expected)


class Contract:
    """The contract of one environment.

    Args:
        name: of the environment, as the config says it.
        index: its place among the environments of an env runner.
        space: of its observations as they are checked: a Box.
        action_space: of its actions.
        own_space: of its observations before they are flattened, for errors; None: `space`.
    """

    def __init__(
        self,
        name: str,
        index: int,
        space: Box,
        action_space: Space[Any],
        own_space: Space[Any] | None = None,
    ) -> None:
        self.name, self.index, self.space, self._action_space = name, index, space, action_space
        self._own_space = space if own_space is None else own_space
        self._has_masks: bool | None = None

    def checked_step(self, answer: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Check the whole answer of `step()`.

        Args:
            answer: what `step()` returned.

        Returns:
            The answer, the reward as a float and the flags as bools.

        Raises:
            EnvContractError: it is not `STEP`, or a part of it has another shape or type.
        """
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            old = ", as step() of older Gym did" if isinstance(answer, tuple) and len(answer) == 4 else ""
            self._raise("step()", f"{describe(answer)}{old}", f"return {STEP}")
        observation, reward, terminated, truncated, info = answer
        self._check_observation("step()", observation)
        self._check_info("step()", info)
        self._check_mask("step()", info)
        if np.ndim(reward) > 1 or np.size(reward) != 1 or np.asarray(reward).dtype.kind not in "biuf":
            self._raise("step()", f"the reward {describe(reward)}", "a reward is one number")
        flags = (self._flag("terminated", terminated), self._flag("truncated", truncated))
        return observation, np.asarray(reward).item(), *flags, info

    def checked_reset(self, answer: Any) -> tuple[Any, dict[str, Any]]:
        """Check the whole answer of `reset()`.

        Args:
            answer: what `reset()` returned.

        Returns:
            The answer.

        Raises:
            EnvContractError: it is not `RESET`, or a part of it has another shape or type.
        """
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            self._raise("reset()", describe(answer), f"return {RESET}")
        observation, info = answer
        self._check_info("reset()", info)
        self._check_mask("reset()", info)
        self._check_observation("reset()", observation)
        return observation, info

    def annotate_error(self, method: str, error: Exception) -> None:
        """Add to an error of the environment's own code a note that names the environment.

        Args:
            method: "step()" or "reset()".
            error: what it raised.

        Raises:
            EnvContractError: from `error`, if Gymnasium raised it: then the environment does not fit what calls it;
                or if a part of an observation is not of its space.
        """
        if isinstance(error, WrongObservationError):
            self._raise(method, error.facts["found"], error.facts["expected"])
        if not _is_raised_by_gymnasium(error):
            error.add_note(f"raised by {method} of {self}")
            return
        takes, form = ("the keywords seed and options", RESET) if method == "reset()" else ("an action", STEP)
        raise EnvContractError(
            f"{self}: Gymnasium refuses its {method}: {type(error).__name__}: {error}. It takes {takes} and returns "
            f"{form}, with observations of {self._own_space}",
            **self._facts,
        ) from error

    def __str__(self) -> str:
        return f"environment {self.index} of {self.name}"

    @property
    def _facts(self) -> dict[str, Any]:
        return {"env": self.name, "index": self.index}

    def _check_observation(self, method: str, observation: Any) -> None:
        try:
            found = np.asarray(observation)
        except ValueError:  # rows of different lengths
            found = np.asarray(None)
        if found.dtype.kind not in "biuf" or found.shape != self.space.shape:
            self._raise(
                method, f"as observation {describe(observation)}", f"the observation space is {self.space}"
            )
        is_lossy = self.space.dtype.kind != "f" and cast_exactly(found, self.space.dtype) is None
        if is_lossy or not np.can_cast(found.dtype, self.space.dtype, "same_kind"):
            error = WrongObservationError.of("", found, self.space, has_wrong_dtype=True)
            self._raise(method, error.facts["found"], error.facts["expected"])

    def _check_info(self, method: str, info: Any) -> None:
        if not isinstance(info, Mapping):
            form = STEP if method == "step()" else RESET
            self._raise(
                method, f"info {describe(info)}", f"return {form}; info is a dict, {{}} if it says nothing"
            )

    def _check_mask(self, method: str, info: Mapping[str, Any]) -> None:
        """Check the action mask. An environment without one in `reset()` has none later."""
        has_mask = Columns.ACTION_MASK in info
        self._has_masks = has_mask if self._has_masks is None else self._has_masks
        if has_mask and not self._has_masks:
            self._raise(
                method, "an action mask in its info", "one in the info of reset() too, with each observation"
            )
        if has_mask:
            sizes, mask = choice_sizes(self._action_space), info[Columns.ACTION_MASK]
            if as_mask(mask, sum(sizes)) is None:
                self._raise(method, f"the action mask {describe(mask)}", expected(sizes))

    def _flag(self, which: str, value: Any) -> bool:
        found = np.asarray(value)
        if found.size != 1 or found.dtype.kind not in "biuf" or found.item() not in (0, 1):
            self._raise("step()", f"{which}={describe(value)}", f"{which} is True or False")
        return bool(found.item())

    def _raise(self, method: str, found: str, expected: str) -> NoReturn:
        raise EnvContractError(
            f"{self}: {method} returned {found}; expected: {expected}",
            found=found,
            expected=expected,
            **self._facts,
        )


def check_spaces(name: str, env: gym.Env[Any, Any]) -> None:
    """Refuse spaces that are not arrays of numbers.

    Args:
        name: of the environment.
        env: its spaces may be Boxes, discrete ones, and Dicts or Tuples of these.

    Raises:
        ConfigError: names the part of the space that is no array.
    """
    for kind in ("observation_space", "action_space"):
        if not isinstance(getattr(env, kind, None), Space):
            raise ConfigError(
                f"environment {name}: its {kind} is {getattr(env, kind, None)!r}; expected: a gymnasium.Space, set in "
                "the class or in __init__",
                env=name,
            )
    for path, leaf in leaves(env.observation_space, "observation_space"):
        if not is_array(leaf):
            raise ConfigError(
                f"environment {name}: {path} is a {type(leaf).__name__} space, which is no array of numbers: {leaf}. "
                "Make numbers of it with a gymnasium.ObservationWrapper",
                env=name,
            )
    for path, leaf in leaves(env.action_space, "action_space"):
        if not is_array(leaf):
            raise ConfigError(
                f"environment {name}: {path} is a {type(leaf).__name__} space: {leaf}. A policy's actions are numbers: "
                "Discrete, MultiDiscrete, MultiBinary, Box, and Dict or Tuple of these. Change them with a "
                "gymnasium.ActionWrapper",
                env=name,
            )


def raise_nonfinite(
    name: str,
    what: str,
    values: Array,
    *,
    space: Space[Any] | None = None,
    envs: Array | None = None,
) -> NoReturn:
    """Raise the error of values that are not finite.

    Args:
        name: of the environment.
        what: the values are, in the plural, such as "rewards".
        values: `[N, ...]`.
        space: of one observation, to name its part; None: the values are no observations.
        envs: int `[N]`, the environments that gave the values; None: all, in order.

    Raises:
        EnvContractError: names the first environment that gave one.
    """
    where, words = nonfinite(values)
    row = int(np.flatnonzero(where.reshape(len(values), -1).any(axis=1))[0])
    bad = values[row][where[row]][:SHOWN_VALUES]
    path = "" if space is None else nonfinite_part(space, where[row])
    index = row if envs is None else int(envs[row])
    raise EnvContractError(
        f"environment {index} of {name}: its {what}{path} hold {words}: {bad.tolist()}; expected: {FINITE}",
        env=name,
        index=index,
        expected=FINITE,
    )


def _is_raised_by_gymnasium(error: Exception) -> bool:
    """Whether all frames of the traceback are of modules that call environments, none of the environment's own."""
    trace, callers = error.__traceback__, True
    while trace is not None:
        callers = callers and str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_CALLERS)
        trace = trace.tb_next
    return callers


def describe(value: Any) -> str:
    """A short description of a value for a message."""
    if isinstance(value, np.ndarray) and value.ndim:
        values = f": {value.tolist()}" if value.size <= SHOWN_VALUES else ""
        return f"an array of shape {value.shape} and dtype {value.dtype}{values}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Mapping):
        return f"a dict of {list(value)[:10]}"
    text = repr(value)
    return f"{text[:60]} ({type(value).__name__})"
