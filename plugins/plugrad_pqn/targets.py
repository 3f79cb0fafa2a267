"""The connector piece of PQN: Q(lambda) targets of episodes."""

from collections.abc import Mapping, Sequence

import numpy as np

from plugrad import Columns, LearnerProtocol, losses
from plugrad.episodes import SingleAgentEpisode
from plugrad.returns import lambda_returns
from plugrad.types import Array, ModuleID, Tensor
from plugrad_pqn.config import PQNConfig


class QLambdaTargets:
    """Adds VALUE_TARGETS, computed once per update with the weights before it.

    `G_t = r_t + gamma ((1 - lambda) max_a Q(s_(t+1), a) + lambda G_(t+1))`, without the last term at a terminal step.
    The last observation of an episode that goes on, or was truncated, is bootstrapped. The maximum is over the actions
    that `new_action_mask` allows. As in the paper, a random action does not cut the trace.

    Source: Gallici et al. 2024, arXiv:2407.04811, section 4.1: Peng's Q(lambda) (Peng and Williams 1994).

    Args:
        config: of the module: gamma, lambda_.
    """

    def __init__(self, config: PQNConfig) -> None:
        self.config = config

    def __call__(
        self,
        *,
        learner: LearnerProtocol,
        batch: Mapping[ModuleID, dict[str, Array]],
        episodes: Sequence[SingleAgentEpisode],
    ) -> dict[ModuleID, dict[str, Array]]:
        """Return `batch` with the targets, float32 [B]; a batch without episodes as it is."""
        own = [each for each in episodes if len(each)]
        if not own:
            return dict(batch)
        return {
            module_id: {**columns, Columns.VALUE_TARGETS: self._targets(learner, module_id, columns, own)}
            for module_id, columns in batch.items()
        }

    def connect_steps(
        self, *, learner: LearnerProtocol, batch: Mapping[ModuleID, dict[str, Tensor]]
    ) -> dict[ModuleID, dict[str, Tensor]]:
        """Return steps of environments of tensors with the targets, float32 [T, N].

        Args:
            learner: computes values with the present weights.
            batch: `{module_id: {column: [T, N, ...]}}`.

        Returns:
            The same form.
        """
        ops, found = learner.ops, {}
        for module_id, columns in batch.items():
            rows = ops.reshape(columns[Columns.NEXT_OBS], (-1, *ops.shape(columns[Columns.NEXT_OBS])[2:]))
            acted = learner.compute_actions(
                rows, module_id=module_id, explore=False, values=False, as_tensors=True
            )
            best = ops.max(acted[Columns.ACTION_DIST_INPUTS], axis=-1)
            best = ops.reshape(best, ops.shape(columns[Columns.REWARDS]))
            terminated = columns[Columns.TERMINATEDS]
            later = ops.where(terminated, ops.zeros_like(best), best)
            ends = ops.logical_or(terminated, columns[Columns.TRUNCATEDS])
            # Those of GAE, in which the value of a step is that of the step before for what follows it.
            _, targets = losses.generalized_advantage_estimation(
                ops,
                columns[Columns.REWARDS],
                ops.concat([later[:1], later[:-1]]),
                later,
                ops.concat([ends[:-1], ops.ones_like(ends[-1:])]),
                self.config.gamma,
                self.config.lambda_,
            )
            found[module_id] = {**columns, Columns.VALUE_TARGETS: targets}
        return found

    def _targets(
        self,
        learner: LearnerProtocol,
        module_id: ModuleID,
        columns: Mapping[str, Array],
        episodes: Sequence[SingleAgentEpisode],
    ) -> Array:
        acted = learner.compute_actions(
            np.concatenate([each.observations[1:] for each in episodes]),
            module_id=module_id,
            explore=False,
            action_mask=columns.get(Columns.NEXT_ACTION_MASK),
            values=False,
        )
        terminateds = columns[Columns.TERMINATEDS]
        lasts = np.cumsum([len(each) for each in episodes]) - 1
        truncateds = np.zeros(len(terminateds), bool)
        truncateds[lasts] = ~terminateds[lasts]
        return lambda_returns(
            columns[Columns.REWARDS],
            acted[Columns.ACTION_DIST_INPUTS].max(-1),
            self.config.gamma,
            self.config.lambda_,
            terminateds=terminateds,
            truncateds=truncateds,
        )
