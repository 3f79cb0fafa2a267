"""Generalised advantage estimation: the connector piece that PPO needs, in numpy.

Knows batches and episodes as arrays, and a learner only as something that computes values.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from plugrad.columns import Columns
from plugrad.episodes import Episode, SingleAgentEpisode, episodes_by_module
from plugrad.errors import BatchError
from plugrad.types import Array, ModuleID

ModuleColumns = dict[ModuleID, dict[str, Array]]


class ValueLearner(Protocol):
    """What the piece asks of a learner."""

    def compute_values_of_episodes(
        self, episodes: Sequence[SingleAgentEpisode], *, module_id: ModuleID
    ) -> Array:
        """Value estimates `[B + E]` of all observations of E episodes of B steps, by the module's present weights."""
        ...


class GeneralAdvantageEstimation:
    """Adds `Columns.ADVANTAGES` and `Columns.VALUE_TARGETS` to the batch of every module that has episodes.

    Values are computed in one call per module, of the observations of its episodes and of the last one
    of each, which is bootstrapped unless the episode terminated. Value targets are advantage + value;
    advantages are then brought to mean 0 and standard deviation 1 over the module's whole batch.

    A batch without episodes (one that the caller made) is returned as it is.

    Args:
        gamma: discount per step.
        lambda_: 0 trusts the values (one-step errors), 1 the rewards (Monte Carlo).
    """

    def __init__(self, gamma: float, lambda_: float) -> None:
        self.gamma = gamma
        self.lambda_ = lambda_

    def __call__(
        self,
        *,
        learner: ValueLearner,
        batch: ModuleColumns,
        episodes: Sequence[Episode],
    ) -> ModuleColumns:
        """Return `batch` with the two columns, float32 `[B]`.

        Raises:
            BatchError: the rows of a module are not those of its episodes, in their order.
        """
        by_module = episodes_by_module(episodes)
        return {
            module_id: self._with_advantages(learner, module_id, columns, by_module[module_id])
            if module_id in by_module
            else columns
            for module_id, columns in batch.items()
        }

    def _with_advantages(
        self,
        learner: ValueLearner,
        module_id: ModuleID,
        columns: dict[str, Array],
        episodes: list[SingleAgentEpisode],
    ) -> dict[str, Array]:
        lengths = np.array([len(episode) for episode in episodes])
        rewards = columns[Columns.REWARDS]
        if len(rewards) != lengths.sum():
            raise BatchError(
                f"module {module_id!r}: {len(rewards)} rows, but its {len(episodes)} episodes have "
                f"{lengths.sum()} steps; a piece that adds or drops rows belongs behind the advantages",
                module_id=module_id,
                column=Columns.REWARDS,
                expected=int(lengths.sum()),
                found=len(rewards),
            )
        values = learner.compute_values_of_episodes(episodes, module_id=module_id)
        terminated = np.array([episode.terminated for episode in episodes])
        advantages, targets = generalized_advantages(
            rewards, values, lengths, terminated, gamma=self.gamma, lambda_=self.lambda_
        )
        return {**columns, Columns.ADVANTAGES: standardize(advantages), Columns.VALUE_TARGETS: targets}


def generalized_advantages(
    rewards: Array, values: Array, lengths: Array, terminated: Array, *, gamma: float, lambda_: float
) -> tuple[Array, Array]:
    """Advantages and value targets of episodes that lie one behind the other.

    Source: Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation",
    2016, arXiv:1506.02438, equation 16, as a recurrence: `A_t = delta_t + gamma lambda A_(t+1)` with
    `delta_t = r_t + gamma V_(t+1) - V_t`, and `A = 0` behind the last step.

    Args:
        rewards: `[B]`, `B = sum(lengths)`.
        values: `[B + E]`: of every observation, the last one of each episode included.
        lengths: `[E]`, the steps of each episode; 0 is allowed.
        terminated: `[E]`, bool: the last observation of these has no value (0), whatever `values` says.
        gamma: discount per step.
        lambda_: weight of the further steps.

    Returns:
        `(advantages, value_targets)`, float32 `[B]`; targets are advantages + values.
    """
    values = np.array(values, dtype=np.float64).reshape(-1)
    lasts = np.cumsum(lengths + 1) - 1
    values[lasts[terminated]] = 0.0
    current, following = np.delete(values, lasts), np.delete(values, lasts - lengths)
    deltas = rewards + gamma * following - current
    advantages = _discounted_from_the_end(deltas, lengths, gamma * lambda_)
    return advantages.astype(np.float32), (advantages + current).astype(np.float32)


def _discounted_from_the_end(terms: Array, lengths: Array, discount: float) -> Array:
    """`y_t = terms_t + discount y_(t+1)` within each episode, all episodes at once.

    The longest episodes come first, so that the ones still active `k` steps before their end are a
    prefix: no padding.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = (np.cumsum(lengths) - 1)[order]
    longest = int(lengths.max(initial=0))
    num_active = np.searchsorted(-lengths[order], -np.arange(longest), side="left")
    sums, carry = np.empty(len(terms)), np.zeros(len(lengths))
    for k, active in enumerate(num_active):
        rows = ends[:active] - k
        carry = terms[rows] + discount * carry[:active]
        sums[rows] = carry
    return sums


def standardize(advantages: Array) -> Array:
    """`(a - mean) / max(1e-4, standard deviation of the population)`, float32; the floor is RLlib's."""
    wide = advantages.astype(np.float64)
    standardized: Array = ((wide - wide.mean()) / max(1e-4, wide.std())).astype(np.float32)
    return standardized
