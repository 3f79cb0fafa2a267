"""`OffPolicyTraining`: sample into a replay buffer, then take all gradient steps of an iteration in one update."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from plugrad.batch import Rows as BatchRows
from plugrad.columns import Columns
from plugrad.episodes import MultiAgentEpisode, episodes_by_module, own_episode
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.model_config import max_seq_len
from plugrad.module_spec import names_modules, spaces_of, specs_of
from plugrad.replay import NStepTransitions, PrioritizedReplayBuffer, ReplayBuffer
from plugrad.replay.hindsight import GoalRewards, GoalSpace, HindsightTransitions
from plugrad.replay.observation_rows import StoredPart, stored_parts
from plugrad.replay.sequences import (
    SequenceForm,
    SequenceTransitions,
    sequence_priorities,
    steps_per_minibatch,
)
from plugrad.replay.settings import make_buffer
from plugrad.replay.size import BufferSize, buffer_size, warn_of_size
from plugrad.replay.storage import Rows, RowStorage
from plugrad.rl_module import with_structured_obs
from plugrad.rng_streams import stream
from plugrad.sampling.environments import is_multi_agent, make_env
from plugrad.sampling.learner_rewards import clip_rewards, reward_clip
from plugrad.sampling.tensor_env_runner import TensorEnvRunner
from plugrad.sampling.wrappers import EnvWrappers
from plugrad.training.offline import load_in_spaces_of, rename_to_only_module
from plugrad.training.replay_columns import check_columns, check_sequences, example_row, with_masks_of
from plugrad.training.tensor_replay import TensorRows, TensorTransitions, check_replays_tensors
from plugrad.training.training import ModuleResults, Training
from plugrad.types import Array, ModuleID, Tensor

_log = logging.getLogger("plugrad")


class OffPolicyTraining(Training):
    """Training from replay buffers, one per module, made when its first rows arrive.

    Rows have the columns of `plugrad.replay.transitions`; those of a module with a recurrent state are sequences, see
    `plugrad.replay.sequences`. Settings are those of `plugrad.OffPolicyConfig`.

    Rewards are stored without normalisation and normalised when they are drawn, as in stable-baselines3.

    Priorities come from the TD errors after the update, computed by one more forward pass over the drawn rows. The
    update's program cannot return them: on every backend it returns means over minibatches and no values per row.
    Besides, its errors would come from weights that later minibatches have changed.

    Args:
        algorithm: see `Training`; its config is an `OffPolicyConfig`.

    Attributes:
        td_errors: computes the TD errors [B] of rows, for prioritized replay: a function with the arguments of the hook
            `compute_loss_for_module`, set by a subclass. None: the algorithm does not support prioritized replay.
        trains_sequences: whether the loss is one of sequences [B, T, ...], too, if a module has a recurrent state.

    Raises:
        ConfigError: prioritized replay is set, but the algorithm has no `td_errors`.
    """

    can_sample_async: ClassVar[bool] = True
    can_sample_tensors: ClassVar[bool] = True
    td_errors: ClassVar[Callable[..., Tensor] | None] = None
    trains_sequences: ClassVar[bool] = False

    @classmethod
    def check_config(cls, config: Any) -> None:
        """See `Training`.

        Raises:
            ConfigError: also if environments give tensors and a setting of replay is for arrays.
        """
        super().check_config(config)
        if config.gives_tensors:
            check_replays_tensors(config)

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self._buffers: dict[ModuleID, ReplayBuffer] = {}
        self._transitions: dict[ModuleID, Any] = {}  # what makes rows of each module's steps
        self._forms: dict[ModuleID, SequenceForm | None] = {}
        self._was_emptied = False
        self._needs_demonstrations = bool(self.config.demonstrations)
        self._filled_since = 0
        self._rows_owed = 0.0
        self._check_priorities()
        if self.config.hindsight is not None:
            self._check_goals()
        self._say_how_many()
        tensors = self.algorithm.env_runner.tensors if self.config.gives_tensors else None
        warn_of_size(self._buffer_sizes(), None if tensors is None else tensors.free_memory())

    def _check_priorities(self) -> None:
        for module_id in (None, *self.config.algorithm_config_overrides_per_module):
            config = self.config if module_id is None else self.config.get_config_for_module(module_id)
            if config.replay_buffer_config["type"] == "prioritized" and type(self).td_errors is None:
                raise ConfigError(
                    f"replay_buffer_config: type='prioritized', and {type(self).__name__} names no td_errors to "
                    "prioritize by; use type='uniform'",
                    field="replay_buffer_config",
                )

    def _check_goals(self) -> None:
        """Refuse, before anything is sampled, what has no goals."""
        if is_multi_agent(self.config):
            raise ConfigError(
                "hindsight is for environments of one agent; set hindsight=None", field="hindsight"
            )
        for module_id in specs_of(self.config):
            GoalSpace.of(spaces_of(self.config, module_id)[0])
        self._goal_rewards()

    def _say_how_many(self) -> None:
        """Log where an update is on more rows than `train_batch_size` says."""
        config = self.config
        if config.training_intensity is None and config.train_batch_size % (config.minibatch_size or 1):
            _log.warning(
                "train_batch_size=%d, and an update is on %d rows: whole minibatches of minibatch_size=%d",
                config.train_batch_size,
                self._num_rows(0),
                config.minibatch_size,
            )

    def _buffer_sizes(self) -> dict[ModuleID, BufferSize]:
        """What the full buffers of the modules that are trained will take."""
        sizes = {}
        for module_id in specs_of(self.config):
            form = self._form(module_id)
            with suppress(ConfigError):  # a space of the user's own, of which the first rows tell
                if self._is_trained(module_id) and None not in spaces_of(self.config, module_id):
                    row = example_row(self.config, module_id, form)
                    parts = self._stored_parts(module_id)
                    kind = TensorRows if self.config.gives_tensors else RowStorage
                    sizes[module_id] = buffer_size(self._buffer_settings(module_id), row, parts, kind)
        return sizes

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        before = self.num_env_steps
        self._drop_removed_modules()
        if self._needs_demonstrations:
            self._add_demonstrations()
        if self._was_emptied:
            self._was_emptied, self._filled_since = False, before
        episodes = self._sample()
        if self.config.gives_tensors:
            self._add_tensors()
        running = [
            str(each.id_) for each in episodes if isinstance(each, MultiAgentEpisode) and not each.is_done
        ]
        for module_id, chunks in episodes_by_module(episodes).items():
            if not self._is_trained(module_id):
                continue
            self._ensure_buffer(module_id)
            if self.config.normalize_rewards:  # stored as they are, so that rows of any age are scaled alike
                clip = reward_clip(self.config)
                chunks = [
                    replace(each, rewards=clip_rewards(own_episode(each).rewards, clip)) for each in chunks
                ]
            buffer, rows = self._buffers[module_id], self._transitions[module_id](chunks, running=running)
            buffer.add(with_masks_of(buffer.row_shapes(), rows, module_id))
        if self.num_env_steps - self._filled_since < self.config.num_steps_sampled_before_learning_starts:
            return {}
        return self._learn(self.num_env_steps - before)

    def _add_tensors(self) -> None:
        """Add what an env runner of tensors has sampled: its samples have steps in place of episodes."""
        runner: TensorEnvRunner = self.algorithm.env_runner
        module_id = runner.module_id
        for sample in runner.take_samples():
            if self._is_trained(module_id):
                self._ensure_buffer(module_id)
                with runner.tensors.computing():
                    self._buffers[module_id].add(*self._transitions[module_id](sample))

    def _add_demonstrations(self) -> None:
        """Begin the buffers with recorded episodes; their observations count in the statistics of normalisation."""
        known, clip = specs_of(self.config), reward_clip(self.config)
        data = load_in_spaces_of(self.config, "demonstrations")
        recorded = episodes_by_module(rename_to_only_module(known, data.episodes))
        for module_id, episodes in recorded.items():  # all are checked before any is added
            wrong, number = "", sum(map(len, episodes))
            if module_id not in known:
                wrong = f"there is no such module, only {', '.join(known)}"
            else:
                capacity = self.config.get_config_for_module(module_id).replay_buffer_config["capacity"]
                if number > capacity:
                    wrong = f"the replay buffer has a capacity of {capacity} rows"
            if wrong:
                raise ConfigError(
                    f"demonstrations={self.config.demonstrations!r}: {number} steps of module {module_id!r}, and "
                    f"{wrong}",
                    field="demonstrations",
                )
        for module_id in filter(self._is_trained, recorded):
            self._ensure_buffer(module_id)
            normalizer = self.algorithm.env_runner.normalizers.get(module_id)
            episodes = [
                replace(each, rewards=clip_rewards(each.rewards, clip)) for each in recorded[module_id]
            ]
            if normalizer is not None:
                for each in episodes if not self._was_emptied else ():  # a checkpoint's statistics have them
                    normalizer.update(each.observations)
                episodes = [
                    replace(each, observations=normalizer.normalize(each.observations)) for each in episodes
                ]
            buffer, rows = self._buffers[module_id], self._transitions[module_id](episodes)
            buffer.add(with_masks_of(buffer.row_shapes(), rows, module_id))
        self._needs_demonstrations = False

    def _drop_removed_modules(self) -> None:
        for module_id in self._buffers.keys() - specs_of(self.config) if names_modules(self.config) else ():
            del self._buffers[module_id], self._transitions[module_id]
            self._forms.pop(module_id, None)

    def _is_trained(self, module_id: ModuleID) -> bool:
        trained = self.config.policies_to_train
        return trained is None or module_id in trained

    def _sample(self) -> list[Any]:
        """The next episodes; with `sample_async` those of the last request, after the next one was sent."""
        if not self.config.sample_async:
            episodes: list[Any] = self.algorithm.sample(random_actions=self._acts_at_random)
            return episodes
        if not self.algorithm.num_samples_in_flight:  # else the last step, or the resumed run, requested one
            self._request()
        samples = self.algorithm.collect_all_samples()
        self._request()  # before the update, so that the acting weights depend only on the seed
        return [episode for sample in samples for episode in sample.episodes]

    def _request(self) -> None:
        self.algorithm.request_samples(random_actions=self._acts_at_random, max_in_flight=1)

    @property
    def _acts_at_random(self) -> bool:
        return bool(self.num_env_steps < self.config.random_steps)

    def _learn(self, num_new_steps: int) -> ModuleResults:
        buffers = {
            module_id: buffer
            for module_id, buffer in self._buffers.items()
            if len(buffer) and self._is_trained(module_id)
        }
        num_rows = self._num_rows(num_new_steps) if buffers else 0
        if not num_rows:
            return {}
        size = self.config.minibatch_size or num_rows
        drawn = {}
        for module_id, buffer in buffers.items():
            form = self._form(module_id)
            rows = size if form is None else max(1, round(size / form.steps))
            drawn[module_id] = buffer.sample(rows * (num_rows // size))
            found = drawn[module_id][0]
            if form is not None and Columns.WEIGHTS in found:  # of sequences, whose steps all have it
                weights = found[Columns.WEIGHTS][:, None]
                found[Columns.WEIGHTS] = np.broadcast_to(weights, found[Columns.LOSS_MASK].shape).copy()
        batch = {module_id: rows for module_id, (rows, _) in drawn.items()}
        if self.config.normalize_rewards:  # by the current statistics, and an n-step reward as one sum
            scaled = self.algorithm.env_runner.reward_normalizer.normalize
            batch = {
                each: {**rows, Columns.REWARDS: scaled(rows[Columns.REWARDS])} for each, rows in batch.items()
            }
        # The rows are already in random order; `num_epochs` would mean more steps on the same rows.
        settings: dict[str, Any] = {"shuffle_batch_per_epoch": False}
        if any(map(self._form, batch)):
            settings |= {
                "minibatch_size": steps_per_minibatch(batch, num_rows // size),
                "num_total_minibatches": num_rows // size,
            }
        results: ModuleResults = self.algorithm.update(batch, **settings)
        self._prioritize(batch, {module_id: places for module_id, (_, places) in drawn.items()})
        return results

    def _num_rows(self, num_new_steps: int) -> int:
        """Rows of one update: whole minibatches.

        `train_batch_size` is rounded up. What `training_intensity` asks for beside whole minibatches is owed.
        """
        config = self.config
        size = config.minibatch_size or 1
        if config.training_intensity is None:
            return -(-int(config.train_batch_size) // size) * size
        self._rows_owed += config.training_intensity * num_new_steps
        number = int(self._rows_owed // size) * size
        self._rows_owed -= number
        return number

    def _ensure_buffer(self, module_id: ModuleID) -> None:
        if module_id in self._buffers:
            return
        config = self.config.get_config_for_module(module_id)
        rng = stream(config.seed, "replay", module_id)
        if config.gives_tensors:
            tensors, capacity = self.algorithm.env_runner.tensors, config.replay_buffer_config["capacity"]
            self._transitions[module_id] = TensorTransitions(config.n_step, config.gamma, tensors)
            storage = TensorRows(capacity, example_row(self.config, module_id), tensors)
            self._buffers[module_id] = ReplayBuffer(capacity, rng, storage=storage)
            return
        key = int(stream(config.seed, "n_step", module_id).integers(2**63))
        form = self._form(module_id)
        if form is not None:
            self._transitions[module_id] = SequenceTransitions(form, config.gamma)
        elif config.hindsight is None:
            self._transitions[module_id] = NStepTransitions(config.n_step, config.gamma, key)
        else:
            self._transitions[module_id] = HindsightTransitions(
                config.hindsight,
                config.hindsight_goals,
                spaces_of(self.config, module_id)[0],
                self._goal_rewards,
                config.gamma,
                key,
            )
        parts = self._stored_parts(module_id)
        self._buffers[module_id] = make_buffer(self._buffer_settings(module_id), rng, parts)

    def _form(self, module_id: ModuleID) -> SequenceForm | None:
        """The form of the sequences of a module; None for one without a state, which learns from rows."""
        if not self.trains_sequences:
            return None
        if module_id not in self._forms:
            burn_in = self.config.get_config_for_module(module_id).burn_in_len
            group = self.algorithm.learner_group
            form = group.foreach_learner(_sequence_form, module_id, burn_in)[0]
            if form is not None:
                check_sequences(self.config, module_id)
            self._forms[module_id] = form
        return self._forms[module_id]

    def _buffer_settings(self, module_id: ModuleID) -> dict[str, Any]:
        """`replay_buffer_config`, with a capacity of so many sequences as have the rows that it names."""
        config, form = self.config.get_config_for_module(module_id), self._form(module_id)
        settings: dict[str, Any] = dict(config.replay_buffer_config)
        if form is not None:
            settings["capacity"] = max(1, settings["capacity"] // form.steps)
        return settings

    def _goal_rewards(self) -> GoalRewards:
        """Of an environment that is made for them, with the same settings as those that are sampled."""
        config = self.config
        return GoalRewards(make_env(config.env, config.env_config, wrappers=EnvWrappers.of(config)))

    def _stored_parts(self, module_id: ModuleID) -> tuple[StoredPart, ...]:
        """How the observations of a module are stored; empty for sequences and for a space of the user's own."""
        space = spaces_of(self.config, module_id)[0]
        if self._form(module_id) is not None:
            return ()
        with suppress(ConfigError):
            return () if space is None else stored_parts(space, EnvWrappers.of(self.config).num_frames)
        return ()

    def _prioritize(self, batch: Mapping[ModuleID, Rows], places: Mapping[ModuleID, Array]) -> None:
        buffers = {
            module_id: buffer
            for module_id, buffer in self._buffers.items()
            if isinstance(buffer, PrioritizedReplayBuffer) and module_id in batch
        }
        if not buffers:
            return
        asked = {module_id: batch[module_id] for module_id in buffers}
        group = self.algorithm.learner_group
        errors = group.foreach_learner(_compute_td_errors, type(self).td_errors, asked)[0]
        for module_id, buffer in buffers.items():
            is_finite = np.isfinite(
                errors[module_id]
            )  # with nonfinite="skip" the others keep their priorities
            buffer.update_priorities(places[module_id][is_finite], abs(errors[module_id][is_finite]))

    def get_state(self) -> dict[str, Any]:
        """The buffers, with their rows unless `checkpoint_replay` is off, and steps that are not used yet."""
        return {
            module_id: {
                "replay": buffer.get_state(rows=self.config.get_config_for_module(module_id).saves_replay),
                "waiting": self._transitions[module_id].get_state(),
                "rows_owed": self._rows_owed,
            }
            for module_id, buffer in self._buffers.items()
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Training`. A state without rows is logged; learning then waits for as many rows as at the beginning."""
        self._buffers, self._transitions, self._rows_owed = {}, {}, 0.0
        for module_id, each in state.items():
            self._ensure_buffer(module_id)
            self._buffers[module_id].set_state(each["replay"])
            self._transitions[module_id].set_state(each["waiting"])
            check_columns(
                self._buffers[module_id].row_shapes(), self.config, module_id, self._form(module_id)
            )
            self._rows_owed = float(each.get("rows_owed", 0.0))  # older checkpoints have none
        self._was_emptied = any(each["replay"].get("rows", {}) is None for each in state.values())
        # Rows that a checkpoint has include them.
        self._needs_demonstrations = bool(self.config.demonstrations) and (not state or self._was_emptied)
        if self._was_emptied:
            _log.warning(
                "the checkpoint has no rows of the replay buffer (checkpoint_replay=False): learning goes on after %d "
                "environment steps have filled it again",
                self.config.num_steps_sampled_before_learning_starts,
            )


def _compute_td_errors(
    learner: LearnerProtocol, td_errors: Callable[..., Tensor], batch: Mapping[ModuleID, Rows]
) -> dict[ModuleID, Array]:
    """The TD errors [B] of each module's rows with its current weights.

    In inference mode: layers such as BatchNorm must not count the rows a second time.
    """
    errors = {}
    for module_id, rows in batch.items():
        tensors = learner._convert_batch_type({**rows, **_draw_noise(learner, module_id, rows)})
        tensors = with_structured_obs(learner.module[module_id], tensors)
        given = BatchRows(module_id, tensors, lambda tensor: tensor)  # in which a state is one column
        found = learner.module[module_id].in_mode(False, _forward, learner, td_errors, module_id, given)
        errors[module_id] = learner._convert_to_numpy(found)
        if Columns.LOSS_MASK in rows:
            errors[module_id] = sequence_priorities(errors[module_id], rows[Columns.LOSS_MASK])
    return errors


def _forward(
    learner: LearnerProtocol,
    td_errors: Callable[..., Tensor],
    module_id: ModuleID,
    tensors: Mapping[str, Tensor],
) -> Tensor:
    fwd_out = learner.module[module_id].forward_train(tensors)
    return td_errors(learner, module_id, learner.config_view(module_id), tensors, fwd_out)


def _draw_noise(learner: LearnerProtocol, module_id: ModuleID, rows: Rows) -> Rows:
    """The noise columns for the TD errors of these rows, from a stream that updates do not use."""
    leading = rows[Columns.LOSS_MASK].shape if Columns.LOSS_MASK in rows else (len(rows[Columns.OBS]),)
    rng = learner.stream(module_id, "priorities")
    shapes = learner.get_noise_columns(module_id)
    return {name: rng.standard_normal((*leading, *shape), np.float32) for name, shape in shapes.items()}


def _sequence_form(learner: LearnerProtocol, module_id: ModuleID, burn_in: int) -> SequenceForm | None:
    """The form of a module's sequences; None for one without a state."""
    module = learner.module[module_id]
    if not module.is_stateful:
        return None
    initial = {name: np.asarray(value) for name, value in module.get_initial_state().items()}
    return SequenceForm(max_seq_len(module.model_config), burn_in, initial)
