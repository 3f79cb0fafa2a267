"""The connector piece of PPO: advantages and value targets of episodes."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from plugrad import LearnerProtocol, losses
from plugrad.columns import Columns
from plugrad.episodes import Episode, SingleAgentEpisode, episodes_by_module
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.returns import generalized_advantage_estimation
from plugrad.types import Array, ModuleID, Tensor

ModuleColumns = dict[ModuleID, dict[str, Array]]


class ValueLearner(Protocol):
    """The method of a learner that advantages need."""

    def compute_values_of_episodes(
        self, episodes: Sequence[SingleAgentEpisode], *, module_id: ModuleID
    ) -> Array:
        """Compute the values of all observations of episodes with a module's present weights.

        Args:
            episodes: E episodes with B steps in all.
            module_id: the module.

        Returns:
            Values [B + E]: those of each episode's observations, the last one included.
        """
        ...


class GeneralAdvantageEstimation:
    """Adds `Columns.ADVANTAGES` and `Columns.VALUE_TARGETS` to the batch of every module that has episodes.

    `Columns.VF_PREDS` is there too: the values before the update, for a loss that clips how far they move.

    One call per module computes the values of all observations of its episodes. The last one of each is
    bootstrapped unless the episode terminated. Value targets are advantage + value.

    Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.

    A batch without episodes (one that the caller made) is returned as it is.

    Args:
        gamma: discount per step.
        lambda_: 0 trusts the values (one-step errors), 1 the rewards (Monte Carlo).
        is_standardized: bring advantages to mean 0 and standard deviation 1 over the module's whole batch.
    """

    def __init__(self, gamma: float, lambda_: float, *, is_standardized: bool = True) -> None:
        self.gamma = gamma
        self.lambda_ = lambda_
        self.is_standardized = is_standardized

    def __call__(
        self,
        *,
        learner: ValueLearner,
        batch: ModuleColumns,
        episodes: Sequence[Episode],
    ) -> ModuleColumns:
        """Return `batch` with the three columns, float32 `[B]`.

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

    def connect_steps(
        self, *, learner: LearnerProtocol, batch: Mapping[ModuleID, Mapping[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """Return steps of environments of tensors with the three columns, float32 `[T, N]`.

        Args:
            learner: computes values with the present weights.
            batch: `{module_id: {column: [T, N, ...]}}`.

        Returns:
            The same form.
        """
        ops = learner.ops
        found = {}
        for module_id, columns in batch.items():
            shape = ops.shape(columns[Columns.REWARDS])
            values, next_values = (
                ops.reshape(_values(learner, module_id, columns[each]), shape)
                for each in (Columns.OBS, Columns.NEXT_OBS)
            )
            terminated = columns[Columns.TERMINATEDS]
            ends = ops.logical_or(terminated, columns[Columns.TRUNCATEDS])
            last = ops.ones_like(ends[-1:])  # the values of what follows it are there
            advantages, targets = losses.generalized_advantage_estimation(
                ops,
                columns[Columns.REWARDS],
                values,
                ops.where(terminated, ops.zeros_like(values), next_values),
                ops.concat([ends[:-1], last]),
                self.gamma,
                self.lambda_,
            )
            if self.is_standardized:
                advantages = _standardized(ops, advantages, columns.get(Columns.LOSS_MASK))
            found[module_id] = {
                **columns,
                Columns.VF_PREDS: values,
                Columns.ADVANTAGES: advantages,
                Columns.VALUE_TARGETS: targets,
            }
        return found

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
        if self.is_standardized:
            advantages = standardize(advantages, columns.get(Columns.LOSS_MASK))
        before = np.delete(values, np.cumsum(lengths + 1) - 1)
        return {
            **columns,
            Columns.VF_PREDS: before,
            Columns.ADVANTAGES: advantages,
            Columns.VALUE_TARGETS: targets,
        }


def _values(learner: LearnerProtocol, module_id: ModuleID, observations: Tensor) -> Tensor:
    """V `[T * N]` of observations `[T, N, ...]`."""
    shape = learner.ops.shape(observations)
    rows = learner.ops.reshape(observations, (-1, *shape[2:]))
    return learner.compute_values(rows, module_id=module_id, as_tensors=True)


def _standardized(ops: Ops, advantages: Tensor, mask: Tensor | None) -> Tensor:
    """`standardize` over ops, of `[T, N]`."""
    counts = ops.ones_like(advantages) if mask is None else ops.cast(mask, "float32")
    number = ops.maximum(ops.sum(counts), 1.0)
    centred = advantages - ops.sum(advantages * counts) / number
    std = ops.sqrt(ops.sum(ops.square(centred) * counts) / number)
    return centred / ops.maximum(std, 1e-4)


def generalized_advantages(
    rewards: Array, values: Array, lengths: Array, terminated: Array, *, gamma: float, lambda_: float
) -> tuple[Array, Array]:
    """`plugrad.returns.generalized_advantage_estimation` of E concatenated episodes.

    Args:
        rewards: `[B]`, `B = sum(lengths)`.
        values: `[B + E]`: of every observation, the last one of each episode included.
        lengths: `[E]`, the steps of each episode; 0 is allowed.
        terminated: `[E]`, bool: where True, the last observation has value 0, whatever `values` says.
        gamma: discount per step.
        lambda_: of GAE, from 0 to 1.

    Returns:
        `(advantages, value_targets)`, float32 `[B]`; targets are advantages + values.
    """
    values = np.asarray(values).reshape(-1)
    lasts = np.cumsum(lengths + 1) - 1
    has_steps = lengths > 0
    ends = np.zeros((2, len(rewards)), bool)
    ends[:, (np.cumsum(lengths) - 1)[has_steps]] = terminated[has_steps], ~terminated[has_steps]
    return generalized_advantage_estimation(
        rewards,
        np.delete(values, lasts),
        np.delete(values, lasts - lengths),
        gamma,
        lambda_,
        terminateds=ends[0],
        truncateds=ends[1],
    )


def standardize(advantages: Array, loss_mask: Array | None = None) -> Array:
    """`(a - mean) / max(1e-4, population standard deviation)`; the floor is RLlib's.

    Args:
        advantages: `[B]`.
        loss_mask: `[B]`; mean and deviation are those of the rows where it is above 0. None: of all.

    Returns:
        float32 `[B]`.
    """
    wide = advantages.astype(np.float64)
    counts = wide if loss_mask is None or not (loss_mask > 0).any() else wide[loss_mask > 0]
    standardized: Array = ((wide - counts.mean()) / max(1e-4, counts.std())).astype(np.float32)
    return standardized
