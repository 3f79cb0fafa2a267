"""The connector piece of RND, which stands behind PPO's advantages: they get those of a bonus for what is not known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad import Columns, LearnerProtocol, numpy_ops
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.types import Array, ModuleID
from plugrad_ppo import generalized_advantages, standardize
from plugrad_rnd.config import RNDConfig
from plugrad_rnd.moments import Moments
from plugrad_rnd.network import NEXT_SEEN, SEEN

NEXT_OBS, RETURNS = "rnd_next_obs", "rnd_returns"
"""What an action led to as it is [B, numbers], and the bonus's discounted returns until then [B, 1]; moments take them
in."""
BONUS_TARGETS = "rnd_value_targets"
"""What `V_I` is trained to be [B]."""
MOST = 5.0
"""Scaled observations are clipped to this (section 2.4)."""


class Bonus:
    """Adds the bonus's advantages to ADVANTAGES, and the columns that the loss reads.

    The bonus is the predictor's error, divided by the running deviation of the bonus's returns (section 2.4). These sum
    up from the first row of each episode, or part of one, in the batch. Advantages become `A_E + rnd_coeff * A_I`
    (section 2.3). An episode that ends does not end the bonuses: else a policy would learn to avoid ends.

    Args:
        config: of the module.
    """

    def __init__(self, config: RNDConfig) -> None:
        self.config = config

    def __call__(
        self,
        *,
        learner: LearnerProtocol,
        batch: Mapping[ModuleID, dict[str, Array]],
        episodes: Sequence[SingleAgentEpisode],
    ) -> dict[ModuleID, dict[str, Array]]:
        """Return `batch` with the bonus in it; a batch without episodes as it is.

        Raises:
            BatchError: observations are no numbers as the module has them.
        """
        return {
            module_id: self._with_bonus(learner, module_id, columns, episodes) if episodes else columns
            for module_id, columns in batch.items()
        }

    def _with_bonus(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        columns: dict[str, Array],
        episodes: Sequence[SingleAgentEpisode],
    ) -> dict[str, Array]:
        network: Any = learner.module[module_id].network
        lengths = np.array([len(each) for each in episodes])
        seen = np.concatenate(
            [np.asarray(each.observations).reshape(len(each) + 1, -1) for each in episodes]
        ).astype(np.float32)
        weights = learner.get_weights()[module_id]
        expected = [len(columns[Columns.REWARDS]) + len(episodes), len(weights["rnd_target.0.weight"])]
        if list(seen.shape) != expected:
            raise BatchError(
                f"module {module_id!r}: the observations of {len(episodes)} episodes have shape {list(seen.shape)}; "
                f"expected {expected}: a row of numbers for each step and one more",
                module_id=module_id,
                column=Columns.OBS,
                expected=expected,
                found=list(seen.shape),
            )
        lasts = np.cumsum(lengths + 1) - 1
        led_to = np.delete(seen, lasts - lengths, axis=0)
        mean, deviation = Moments.of(learner, module_id, "obs", expected[1]).scale(led_to)
        scaled = np.clip((seen - mean) / deviation, -MOST, MOST).astype(np.float32)
        next_scaled = np.delete(scaled, lasts - lengths, axis=0)
        bonus = network.error(numpy_ops, weights, next_scaled)
        returns = _returns_until(bonus, lengths, self.config.rnd_gamma)[:, None]
        _, spread = Moments.of(learner, module_id, "returns", 1).scale(returns)
        advantages, targets = generalized_advantages(
            bonus / spread,
            network.bonus_values(numpy_ops, weights, scaled),
            lengths,
            np.zeros(len(episodes), bool),
            gamma=self.config.rnd_gamma,
            lambda_=self.config.lambda_,
        )
        both = columns[Columns.ADVANTAGES] + self.config.rnd_coeff * advantages
        if self.config.normalize_advantages == "batch":
            both = standardize(both, columns.get(Columns.LOSS_MASK))
        return {
            **columns,
            Columns.ADVANTAGES: both,
            SEEN: np.delete(scaled, lasts, axis=0),
            NEXT_SEEN: next_scaled,
            NEXT_OBS: led_to,
            RETURNS: returns,
            BONUS_TARGETS: targets,
        }


def _returns_until(bonus: Array, lengths: Array, gamma: float) -> Array:
    """`R_t = gamma R_(t-1) + i_t` within each episode, float32 [B]."""
    found = np.array(bonus, np.float64)
    for part in np.split(found, np.cumsum(lengths)[:-1]):  # views
        for t in range(1, len(part)):
            part[t] += gamma * part[t - 1]
    return found.astype(np.float32)
