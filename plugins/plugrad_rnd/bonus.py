"""The connector piece of RND, which stands before the advantages: rewards get a bonus for what is not known yet."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad import Columns, LearnerProtocol, numpy_ops
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.types import Array, ModuleID
from plugrad_rnd.config import RNDConfig
from plugrad_rnd.moments import Moments
from plugrad_rnd.network import NEXT_SEEN

NEXT_OBS, RETURNS = "rnd_next_obs", "rnd_returns"
"""What an action led to as it is [B, numbers], and the bonus's discounted returns until then [B, 1]; moments take them
in."""
MOST = 5.0
"""Scaled observations are clipped to this (section 2.4)."""


class Bonus:
    """Adds the bonus to REWARDS, and the columns that the loss reads.

    The bonus is the predictor's error, divided by the running deviation of the bonus's returns (section 2.4). These sum
    up from the first row of each episode, or part of one, in the batch. Rewards become `e + rnd_coeff * i` (section 2).

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
        led_to = [np.asarray(each.observations)[1:] for each in episodes]
        seen = np.concatenate([each.reshape(len(each), -1) for each in led_to if len(each)]).astype(
            np.float32
        )
        weights = learner.get_weights()[module_id]
        expected = len(weights["rnd_target.0.weight"])
        if seen.shape != (len(columns[Columns.REWARDS]), expected):
            raise BatchError(
                f"module {module_id!r}: what {len(columns[Columns.REWARDS])} actions led to has shape "
                f"{list(seen.shape)}; expected one row of {expected} numbers for each",
                module_id=module_id,
                column=Columns.OBS,
                expected=[len(columns[Columns.REWARDS]), expected],
                found=list(seen.shape),
            )
        mean, deviation = Moments.of(learner, module_id, "obs", expected).scale(seen)
        scaled = np.clip((seen - mean) / deviation, -MOST, MOST).astype(np.float32)
        bonus = network.error(numpy_ops, weights, scaled)
        returns = _returns_until(bonus, [len(each) for each in episodes], self.config.rnd_gamma)[:, None]
        _, spread = Moments.of(learner, module_id, "returns", 1).scale(returns)
        rewards = columns[Columns.REWARDS] + self.config.rnd_coeff * bonus / spread
        return {
            **columns,
            Columns.REWARDS: rewards.astype(np.float32),
            NEXT_SEEN: scaled,
            NEXT_OBS: seen,
            RETURNS: returns,
        }


def _returns_until(bonus: Array, lengths: Sequence[int], gamma: float) -> Array:
    """`R_t = gamma R_(t-1) + i_t` within each episode, float32 [B]."""
    found = np.array(bonus, np.float64)
    for part in np.split(found, np.cumsum(lengths)[:-1]):  # views
        for t in range(1, len(part)):
            part[t] += gamma * part[t - 1]
    return found.astype(np.float32)
