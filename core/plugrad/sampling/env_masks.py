"""The action masks of the environments of an env runner, step by step."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np

from plugrad.action_masks import as_bool, as_mask, choice_sizes, expected, forbids_all
from plugrad.columns import Columns
from plugrad.errors import EnvContractError
from plugrad.sampling.vector_envs import VectorEnvs
from plugrad.types import Array

KEY = Columns.ACTION_MASK

_log = logging.getLogger("plugrad")


class ActionMasks:
    """Reads the masks that environments give with each observation, in `info["action_mask"]`.

    Args:
        envs: N environments.

    Attributes:
        current: the masks of the present observations, bool [N, choices].

    Raises:
        ConfigError: the actions are not discrete.
    """

    def __init__(self, envs: VectorEnvs) -> None:
        self._name = envs.name
        self._sizes = choice_sizes(envs.action_space)
        self._resets_in_same_step = envs.resets_in_same_step
        self._steps = np.zeros(envs.num_envs, np.int64)
        self.current: Array = np.ones((envs.num_envs, sum(self._sizes)), np.bool_)

    def begin(self, infos: Mapping[str, Any]) -> None:
        """Take the masks of the first observations.

        Args:
            infos: of the reset of all environments.

        Raises:
            EnvContractError: a mask is missing, has another length or dtype, or forbids everything.
        """
        self._steps[:] = 0
        self.current = self._read(infos, np.ones(len(self._steps), np.bool_), self._steps)

    def begin_replayed(self, infos: Sequence[Mapping[str, Any]], num_steps: Sequence[int]) -> None:
        """Take the masks of environments whose running episodes were replayed.

        Args:
            infos: of the present observation of each environment.
            num_steps: of each running episode.

        Raises:
            EnvContractError: as `begin`.
        """
        self._steps[:] = num_steps
        masks = [info.get(KEY) for info in infos]
        given = np.array([mask is not None for mask in masks])
        self.current = self._read({KEY: masks, f"_{KEY}": given}, np.ones_like(given), self._steps)

    def step(self, infos: Mapping[str, Any], terminated: Array, truncated: Array) -> dict[str, Array]:
        """Take the masks of the observations that a step led to.

        Args:
            infos: of the step.
            terminated: bool [N].
            truncated: bool [N].

        Returns:
            The columns of the step, bool [N, choices]: ACTION_MASK, and NEXT_ACTION_MASK, which allows everything where
            an episode terminated.

        Raises:
            EnvContractError: as `begin`.
        """
        before, ended = self.current, terminated | truncated
        self._steps += 1
        steps = np.where(ended, 0, self._steps) if self._resets_in_same_step else self._steps
        following = self._read(infos, ~terminated | self._resets_in_same_step, steps)
        after = following
        if ended.any():
            if self._resets_in_same_step:
                final = self._read(infos.get("final_info", {}), truncated & ~terminated, self._steps)
                after = np.where(ended[:, None], final, following)
            after = after | terminated[:, None]
            self._steps[ended] = 0 if self._resets_in_same_step else -1  # the next step only resets
        self.current = following
        return {Columns.ACTION_MASK: before, Columns.NEXT_ACTION_MASK: after}

    def _read(self, infos: Mapping[str, Any], needed: Array, steps: Array) -> Array:
        """The masks of the rows that are needed; others allow everything."""
        given = np.asarray(infos.get(f"_{KEY}", KEY in infos)) & needed
        if (needed & ~given).any():
            what = f"no {KEY!r} in its info", "one, as with its first observation"
            self._raise(needed & ~given, steps, *what)
        masks = self._stacked(infos.get(KEY), given)
        if masks is None:
            masks = self._one_by_one(infos[KEY], given, steps)
        empty = forbids_all(masks, self._sizes)
        if empty.any():
            self._raise(empty, steps, "an action mask that forbids everything", "at least one allowed action")
        return masks

    def _stacked(self, found: Any, given: Array) -> Array | None:
        """The masks, if they are one array of the right shape and values."""
        if not isinstance(found, np.ndarray) or found.shape != self.current.shape:
            return None if given.any() else np.ones_like(self.current)
        return as_bool(np.where(given[:, None], found, True))

    def _one_by_one(self, found: Any, given: Array, steps: Array) -> Array:
        masks = np.ones_like(self.current)
        for env in np.flatnonzero(given).tolist():
            mask = as_mask(found[env], masks.shape[1])
            if mask is None:
                where = np.arange(len(given)) == env
                self._raise(where, steps, f"the action mask {str(found[env])[:80]}", expected(self._sizes))
            masks[env] = mask
        return masks

    def _raise(self, where: Array, steps: Array, found: str, expected: str) -> NoReturn:
        env = int(np.flatnonzero(where)[0])
        when = f"step {steps[env]} of its episode" if steps[env] > 0 else "its reset"
        raise EnvContractError(
            f"environment {env} of {self._name}: {when} gave {found}; expected: {expected}",
            env=self._name,
            index=env,
            step=int(steps[env]),
            found=found,
            expected=expected,
        )


@cache
def say_source(name: str, source: str) -> None:
    """Log once by which convention an environment gives masks.

    Args:
        name: of the environment.
        source: the convention.
    """
    _log.info("environment %s: actions are masked by %s", name, source)
