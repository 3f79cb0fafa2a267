"""Off-policy training: sample a little, remember it, take many gradient steps on what is remembered in one update."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.episodes import episodes_by_module
from plugrad.rng_streams import stream
from plugrad.training import ModuleResults, Training
from plugrad.types import Array, ModuleID
from plugrad_dqn.loss import td_errors
from plugrad_dqn.n_step import NStepTransitions
from plugrad_dqn.replay import PrioritizedReplayBuffer, ReplayBuffer, Rows


class ReplayTraining(Training):
    """Every module has a replay buffer of its own, made when its first rows come.

    Priorities are of the TD errors after the update: one more forward pass over the rows that were drawn. They could
    leave the update's program instead, but a program gives means over minibatches and nothing per row, on every
    backend; and those errors would be of weights that the later minibatches have changed.

    Args:
        algorithm: see `Training`.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self._buffers: dict[ModuleID, ReplayBuffer] = {}
        self._transitions: dict[ModuleID, NStepTransitions] = {}

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        before = self.num_env_steps
        for module_id, chunks in episodes_by_module(self.algorithm.sample()).items():
            self._ensure_buffer(module_id)
            self._buffers[module_id].add(self._transitions[module_id](chunks))
        if self.num_env_steps < self.config.num_steps_sampled_before_learning_starts:
            return {}
        return self._learn(self._num_rows(self.num_env_steps - before))

    def _learn(self, num_rows: int) -> ModuleResults:
        drawn = {
            module_id: buffer.sample(num_rows) for module_id, buffer in self._buffers.items() if len(buffer)
        }
        batch = {module_id: rows for module_id, (rows, _) in drawn.items()}
        # The rows are in random order already; `num_epochs` would be more steps on the same ones.
        results: ModuleResults = self.algorithm.update(batch, shuffle_batch_per_epoch=False)
        self._prioritize(batch, {module_id: places for module_id, (_, places) in drawn.items()})
        return results

    def _num_rows(self, num_new_steps: int) -> int:
        """Rows of one update: whole minibatches."""
        config = self.config
        wanted: float = config.train_batch_size
        if config.training_intensity is not None:
            wanted = config.training_intensity * num_new_steps
        size = config.minibatch_size or 1
        return int(max(1, round(wanted / size)) * size)

    def _ensure_buffer(self, module_id: ModuleID) -> None:
        if module_id in self._buffers:
            return
        config = self.config.get_config_for_module(module_id)
        self._transitions[module_id] = NStepTransitions(config.n_step, config.gamma)
        self._buffers[module_id] = _make_buffer(config, module_id)

    def _prioritize(self, batch: Mapping[ModuleID, Rows], places: Mapping[ModuleID, Array]) -> None:
        buffers = {
            module_id: buffer
            for module_id, buffer in self._buffers.items()
            if isinstance(buffer, PrioritizedReplayBuffer) and module_id in batch
        }
        if not buffers:
            return
        asked = {module_id: batch[module_id] for module_id in buffers}
        errors = self.algorithm.learner_group.foreach_learner(_td_errors, asked)[0]
        for module_id, buffer in buffers.items():
            buffer.update_priorities(places[module_id], abs(errors[module_id]))

    def get_state(self) -> dict[str, Any]:
        """The buffers, with their rows unless `replay_buffer_config` says `save = false`, and the steps that wait."""
        return {
            module_id: {
                "replay": buffer.get_state(
                    rows=self.config.get_config_for_module(module_id).replay_buffer_config["save"]
                ),
                "waiting": self._transitions[module_id].get_state(),
            }
            for module_id, buffer in self._buffers.items()
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`."""
        self._buffers, self._transitions = {}, {}
        for module_id, each in state.items():
            self._ensure_buffer(module_id)
            self._buffers[module_id].set_state(each["replay"])
            self._transitions[module_id].set_state(each["waiting"])


def _make_buffer(config: Any, module_id: ModuleID) -> ReplayBuffer:
    settings = config.replay_buffer_config
    rng = stream(config.seed, "replay", module_id)
    if settings["type"] == "uniform":
        return ReplayBuffer(settings["capacity"], rng)
    return PrioritizedReplayBuffer(settings["capacity"], rng, alpha=settings["alpha"], beta=settings["beta"])


def _td_errors(learner: LearnerProtocol, batch: Mapping[ModuleID, Rows]) -> dict[ModuleID, Array]:
    """The TD errors [B] of each module's rows by its present weights."""
    errors = {}
    for module_id, rows in batch.items():
        tensors = learner._convert_batch_type(rows)
        fwd_out = learner.module[module_id].forward_train(tensors)
        found = td_errors(learner, module_id, learner.config_view(module_id), tensors, fwd_out)
        errors[module_id] = learner._convert_to_numpy(found)
    return errors
