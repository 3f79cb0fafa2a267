"""`TruncateOnFault`: the wrapper for a simulator that fails now and then."""

import logging
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.config import Config
from plugrad.errors import EnvContractError
from plugrad.importing.names import importable_name
from plugrad.sampling.env_checker import FINITE, RAISED_BY

_log = logging.getLogger("plugrad")

FAULTS = "faults"
"""In the info of an episode's last step: 1.0 if a fault ended it, else 0.0."""


class TruncateOnFault(gym.Wrapper[Any, Any, Any, Any]):
    """Truncates the episode of a faulty step: one that raises, or gives an observation or reward that is not finite.

        config.env_runners(env_wrappers=[TruncateOnFault])

    The truncated step has the observation before it and no reward. The share of the last episodes that a fault ended is
    reported as `env_runners/info/faults`. The first fault of a process is logged. A process that dies is none: see
    `Algorithm.begin_new_episodes`.

    Args:
        env: the environment, whose `reset` must work after a fault; one that raises is tried again with another seed.
        max_in_a_row: how many episodes in a row may end with a fault; then the error is raised.
    """

    def __init__(self, env: gym.Env[Any, Any], max_in_a_row: int = 20) -> None:
        super().__init__(env)
        self._max_in_a_row, self._in_a_row = max_in_a_row, 0
        self._last: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. See `gymnasium.Env.reset`."""
        attempt = 0
        while True:
            own = None if seed is None else (seed + attempt * 0x9E3779B1) % 2**31
            try:
                observation, info = self.env.reset(seed=own, options=options)
            except Exception as error:
                self._count(error, "reset()")
                attempt += 1
                continue
            self._last = deepcopy(observation)
            return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step. See `gymnasium.Env.step`."""
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            if not (_is_finite(observation) and _is_finite(reward)):
                raise FloatingPointError("the observation or the reward is not finite")
        except Exception as error:
            self._count(error, "step()")
            return self._last, 0.0, False, True, {FAULTS: 1.0}
        if terminated or truncated:
            self._in_a_row = 0
            info = {**info, FAULTS: 0.0}
        self._last = deepcopy(observation)
        return observation, reward, terminated, truncated, info

    def _count(self, error: Exception, where: str) -> None:
        self._in_a_row += 1
        if self._in_a_row > self._max_in_a_row:
            error.add_note(
                f"TruncateOnFault: {self._max_in_a_row} episodes in a row ended with a fault before this one"
            )
            raise error
        _say_once(str(self.env), where, type(error).__name__, str(error))


def with_faults_counted(config: Config) -> Config:
    """The settings with the faults among `info_metrics`, if `TruncateOnFault` is among the wrappers.

    Args:
        config: the settings.

    Returns:
        The settings; `config` itself if there is nothing to count.
    """
    if FAULTS in config.info_metrics or not _is_wrapped(config):
        return config
    return config.changed(info_metrics={**config.info_metrics, FAULTS: "sum"})


def can_be_truncated(error: BaseException, config: Config) -> bool:
    """Whether an error is a fault whose episode `TruncateOnFault` would end, and the wrapper is not there yet.

    Args:
        error: what sampling raised.
        config: the settings of the environments, which have one agent if the error is a fault.

    Returns:
        False also where an environment can have no wrapper.
    """
    if _is_wrapped(config) or not config.has_single_envs:
        return False
    if isinstance(error, EnvContractError):
        return error.facts.get("expected") == FINITE
    return any(note.startswith(RAISED_BY) for note in getattr(error, "__notes__", ()))


def wrappers_with_truncation(config: Config) -> list[Any]:
    """The wrappers of a config, and `TruncateOnFault` around them, for a command.

    Args:
        config: the settings of the environments.

    Returns:
        A value of the setting.
    """
    return [*config.env_wrappers, importable_name(TruncateOnFault)]


def _is_wrapped(config: Config) -> bool:
    known = (TruncateOnFault, importable_name(TruncateOnFault))
    names = [each[0] if isinstance(each, list | tuple) else each for each in config.env_wrappers]
    return any(name in known for name in names)


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_is_finite, value))
    found = np.asarray(value)
    return found.dtype.kind != "f" or bool(np.isfinite(found).all())


_SAID: set[str] = set()


def _say_once(env: str, where: str, kind: str, text: str) -> None:
    """Log the first fault of an environment in this process."""
    if env not in _SAID:
        _SAID.add(env)
        _log.warning(
            "%s of %s failed (%s: %s): the episode is truncated. Further faults are counted in info/%s, not logged",
            where,
            env,
            kind,
            text,
            FAULTS,
        )
