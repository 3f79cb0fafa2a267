"""From the observations of environments to those that the policy sees."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder
from plugrad.sampling.env_checker import raise_nonfinite
from plugrad.types import Array


class SeenObservations:
    """Checks observations, counts them in the statistics, and encodes them as the rows that a policy sees.

    Args:
        encoder: scales and casts flat observations.
        name: of the environment, for errors.
        space: of its observations before they are flattened, for errors.
    """

    def __init__(self, encoder: ObservationEncoder, *, name: str, space: Space[Any]) -> None:
        self._encoder = encoder
        self._name, self._space = name, space

    @property
    def normalizer(self) -> ObservationNormalizer | None:
        """Scales the observations; None: they stay as they are."""
        return self._encoder.normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer | None) -> None:
        self._encoder.normalizer = normalizer

    def check_and_count(self, raw: Array, envs: Array | None = None) -> None:
        """Refuse observations that are not finite, and add the others to the statistics.

        Args:
            raw: `[N, ...]`.
            envs: int `[N]`, the environments that gave them; None: all, in order.

        Raises:
            EnvContractError: names the environment, and the part of a Dict or Tuple.
        """
        if not self._encoder.gives_finite_rows(raw):
            raise_nonfinite(self._name, "observations", raw, space=self._space, envs=envs)
        if self.normalizer is not None:
            self.normalizer.update(raw)

    def rows(self, raw: Array) -> Array:
        """Rows [N, ...] of observations [N, ...]; a new array."""
        return self._encoder.rows(raw)

    def final_rows(self, infos: Mapping[str, Any]) -> tuple[list[int], Array]:
        """Count and encode the final observations of episodes that ended in a step that also reset them.

        Args:
            infos: of that step: `final_obs`, and `_final_obs`, bool [N], which says where there is one.

        Returns:
            The indices of the environments, and a row for each.
        """
        ended = np.flatnonzero(infos["_final_obs"])
        raw = np.stack(infos["final_obs"][ended].tolist())
        self.check_and_count(raw, ended)
        return ended.tolist(), self.rows(raw)
