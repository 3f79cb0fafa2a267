"""Check what an environment's own vectorised version answers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from plugrad.errors import EnvContractError
from plugrad.observations.rows import cast_exactly
from plugrad.sampling.env_checker import describe
from plugrad.types import Array


class CheckedVectorEnv(VectorWrapper):
    """An environment's own vectorised version: its answers are checked, and are arrays of numbers and of bools.

    Args:
        env: the vectorised environment.
        name: for errors.

    Raises:
        EnvContractError: by `reset` and `step`, if an array has another shape or holds no numbers, or episodes do not
            end as the environment's `autoreset_mode` says.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._shapes = {"observations": (env.num_envs, *(env.single_observation_space.shape or ()))}
        self._shapes |= dict.fromkeys(("rewards", "terminated", "truncated"), (env.num_envs,))
        mode = AutoresetMode(env.metadata["autoreset_mode"])
        self._resets_in_same_step = mode == AutoresetMode.SAME_STEP
        self._check_ends = self._check_final if self._resets_in_same_step else self._check_reset
        self._resets_next = np.zeros(env.num_envs, np.bool_)
        self._dtype = env.single_observation_space.dtype

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """Reset all."""
        observations, infos = self.env.reset(**settings)
        self._resets_next[:] = False
        return self._observations(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        observations = self._observations(observations)
        rewards = self._numbers("rewards", rewards)
        terminated, truncated = self._flags("terminated", terminated), self._flags("truncated", truncated)
        ended = terminated | truncated
        self._check_ends(ended, infos)
        return observations, rewards, terminated, truncated, self._with_own_ends(ended, infos)

    def _numbers(self, column: str, values: Any) -> Array:
        found = np.asarray(values)
        if found.shape != self._shapes[column] or found.dtype.kind not in "biuf":
            raise EnvContractError(
                f"the vectorised {self._name} returned {column} {describe(values)}; expected: numbers of shape "
                f"{self._shapes[column]}",
                env=self._name,
                expected=self._shapes[column],
                found=found.shape,
            )
        return found

    def _observations(self, values: Any) -> Array:
        numbers = self._numbers("observations", values)
        found = cast_exactly(numbers, self._dtype)
        if found is None:
            raise EnvContractError(
                f"the vectorised {self._name} returned observations {describe(numbers)}; expected: numbers that the "
                f"dtype of its observation space, {self._dtype}, can hold: return {self._dtype}, or declare another "
                "dtype",
                env=self._name,
                expected=self._dtype,
                found=numbers.dtype,
            )
        return found

    def _flags(self, column: str, values: Any) -> Array:
        found = self._numbers(column, values)
        if found.dtype != np.bool_ and not np.isin(found, (0, 1)).all():
            raise EnvContractError(
                f"the vectorised {self._name} returned {column} {describe(values)}; expected: True and False",
                env=self._name,
                found=found,
            )
        return found.astype(np.bool_, copy=False)

    def _with_own_ends(self, ended: Array, infos: Mapping[str, Any]) -> dict[str, Any]:
        """The infos with final observations only where an episode ended; array programs have them in every step."""
        if "final_obs" not in infos:
            return dict(infos)
        others = {name: value for name, value in infos.items() if name not in ("final_obs", "_final_obs")}
        if not self._resets_in_same_step or not np.count_nonzero(ended):
            return others
        rows = np.flatnonzero(ended)
        final = np.empty(len(ended), object)
        for row in rows:
            given = np.asarray(infos["final_obs"][row])
            found = cast_exactly(given, self._dtype) if given.dtype.kind in "biuf" else None
            if found is None or found.shape != self._shapes["observations"][1:]:
                self._raise(
                    np.arange(len(ended)) == row,
                    f"gave infos['final_obs'] {describe(infos['final_obs'][row])}",
                    f"an observation of shape {self._shapes['observations'][1:]} and dtype {self._dtype}",
                )
            final[row] = found
        return {**others, "final_obs": final, "_final_obs": ended}

    def _check_final(self, ended: Array, infos: Mapping[str, Any]) -> None:
        """Where an episode ended there is its last observation, since `observations` begin the next one."""
        if not np.count_nonzero(ended):
            return
        given = infos.get("_final_obs")
        without = ended if given is None or "final_obs" not in infos else ended & ~np.asarray(given, np.bool_)
        if np.count_nonzero(without):
            self._raise(
                without,
                "ended an episode without infos['final_obs']",
                "with autoreset_mode=SAME_STEP, the last observation of each episode that ended, and "
                "infos['_final_obs'], bool [N], which says where there is one",
            )

    def _check_reset(self, ended: Array, infos: Mapping[str, Any]) -> None:
        """The step after an end only resets."""
        again = ended & self._resets_next
        if np.count_nonzero(again):
            self._raise(
                again,
                "ended an episode in the step after an end",
                "with autoreset_mode=NEXT_STEP, that step only resets. If episodes end and begin in one step, "
                "metadata must say AutoresetMode.SAME_STEP",
            )
        self._resets_next = ended

    def _raise(self, where: Array, found: str, expected: str) -> None:
        index = int(np.flatnonzero(where)[0])
        raise EnvContractError(
            f"environment {index} of the vectorised {self._name} {found}; expected: {expected}",
            env=self._name,
            index=index,
            found=found,
            expected=expected,
        )
