"""Single environments that step one after the other, for an env runner."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from plugrad.columns import Columns
from plugrad.sampling.atari import LIFE_LOST
from plugrad.sampling.info_metrics import INFO_METRICS, numbers_of_info
from plugrad.types import Array

MASK = Columns.ACTION_MASK
READ_INFOS = MASK, LIFE_LOST
"""What an env runner reads of the infos of environments, beside those of an episode's end."""


class LeanSyncVectorEnv(SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv` without what no env runner reads: other infos than `READ_INFOS`, and copies.

    MuJoCo's environments give ten infos a step: to stack them takes longer than acting.

    Args:
        env_fns: each makes an environment, which gives flags as bools.
        info_metrics: names of numbers that are also read, as `INFO_METRICS`.
    """

    def __init__(self, env_fns: Any, info_metrics: Sequence[str] = ()) -> None:
        super().__init__(env_fns, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        self._info_metrics = tuple(info_metrics)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all; the next step overwrites the observations.

        Args:
            actions: `[N, ...]`, in the structure of the action space.

        Returns:
            As `SyncVectorEnv.step`.
        """
        infos: dict[str, Any] = {}
        rewards = np.empty(self.num_envs)
        terminations, truncations = np.empty((2, self.num_envs), np.bool_)
        if self._info_metrics:
            infos[INFO_METRICS] = numbers = np.empty((self.num_envs, len(self._info_metrics)))
        for n, (env, action) in enumerate(zip(self.envs, iterate(self.action_space, actions), strict=True)):
            row, rewards[n], terminations[n], truncations[n], info = answer = env.step(action)
            if self._info_metrics:
                numbers[n] = numbers_of_info(
                    self._info_metrics, info, getattr(env, "place", f"environment {n}")
                )
            if answer[2] or answer[3]:
                final = np.array(
                    row
                )  # a copy: the environment may write its next observation into the same array
                infos = super()._add_info(infos, {"final_obs": final, "final_info": info}, n)
                row, info = env.reset()
            if MASK in info or LIFE_LOST in info:
                infos = self._add_info(infos, info, n)
            self._write(n, row)
        return self._observations, rewards, terminations, truncations, infos

    def _write(self, n: int, row: Any) -> None:
        """Write an environment's observation, as `np.stack` would; for few environments that takes longer."""
        if np.shape(row) != self._observations.shape[1:]:
            raise ValueError(
                f"an observation of shape {np.shape(row)} in an array {self._observations.shape}"
            )
        np.copyto(self._observations[n, ...], row, casting="same_kind")

    def _add_info(
        self, vector_infos: dict[str, Any], env_info: Mapping[str, Any], env_num: int
    ) -> dict[str, Any]:
        read = {name: value for name, value in env_info.items() if name in READ_INFOS}
        return super()._add_info(vector_infos, read, env_num)
