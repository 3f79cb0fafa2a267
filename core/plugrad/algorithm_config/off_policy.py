"""`OffPolicyConfig`: the settings that algorithms with a replay buffer share."""

from dataclasses import dataclass, replace
from typing import Any

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config.algorithm_config import AlgorithmConfig
from plugrad.config import FieldInfo, field
from plugrad.config.config import REPEATED
from plugrad.config.fields import checked
from plugrad.errors import ConfigError
from plugrad.offline import load_episodes
from plugrad.replay.hindsight import STRATEGIES
from plugrad.replay.settings import DEFAULTS, merged_replay_settings
from plugrad.sampling.vectorization import num_environments, steps_per_env


def _check_n_step(info: FieldInfo, value: Any) -> Any:
    """A number, or the least and the most of those that are drawn."""
    if not isinstance(value, list):
        return checked(replace(info, check=None), value)
    bounds = [checked(replace(info, check=None), each) for each in value if not isinstance(each, list)]
    if len(bounds) != 2 or len(value) != 2 or bounds[0] > bounds[1]:
        raise ConfigError(
            f"{info.name} must be a number of steps, or [least, most], got {value!r}",
            field=info.name,
            found=value,
        )
    return bounds


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """Settings of algorithms that learn from a replay buffer, with `plugrad.training.OffPolicyTraining`.

    One iteration samples `rollout_fragment_length` steps of each environment. Then it takes all its gradient steps in
    one update: `train_batch_size` rows drawn from the replay buffer, `minibatch_size` of them per gradient step.
    """

    train_batch_size: int = field(
        256,
        help="rows drawn per update and module, rounded up to whole minibatches, unless training_intensity says "
        "how many",
    )
    minibatch_size: int | None = field(256, help="rows per gradient step; None: the whole batch")
    rollout_fragment_length: int | None = field(1, help="steps per environment between two updates")
    training_intensity: float | None = field(
        None,
        above=0,
        for_all_modules=True,
        help="rows trained on per environment step; None: as train_batch_size comes out",
        maximum=1_000_000,
        reason=REPEATED,
    )
    num_steps_sampled_before_learning_starts: int = field(
        100, minimum=0, for_all_modules=True, help="environment steps that only fill the replay buffer"
    )
    random_steps: int = field(
        0,
        minimum=0,
        for_all_modules=True,
        help="environment steps at the start of a run whose actions are uniformly random",
    )
    demonstrations: str | list[str] | None = field(
        None,
        for_all_modules=True,
        help="recorded episodes that the replay buffer begins with: a directory of plugrad record, minari:<data set "
        "id>, or a list of these",
    )
    n_step: int | list[int] = field(
        1,
        minimum=1,
        maximum=100_000,
        reason="so many steps of each environment wait in memory",
        check=_check_n_step,
        help="rewards that are summed before a value is bootstrapped; [least, most]: drawn for each row",
    )
    burn_in_len: int = field(
        0,
        minimum=0,
        maximum=100_000,
        reason="so many steps more has each sequence",
        help="steps before those of a sequence that are trained, which renew the recorded state of a recurrent module",
    )
    replay_buffer_config: dict[str, Any] = field(
        dict(DEFAULTS),
        check=lambda info, value: merged_replay_settings(info.make_default(), value),
        help='"type" (uniform, prioritized), capacity in rows, alpha, beta',
    )
    hindsight: str | None = field(
        None,
        choices=STRATEGIES,
        for_all_modules=True,
        help="hindsight experience replay for environments with goals: which goals copies of a step pursue, those of "
        "later states of its episode, of its last state, or of all its states; None: no copies",
    )
    hindsight_goals: int = field(
        4,
        minimum=1,
        maximum=1000,
        reason="so many copies of each step are made",
        for_all_modules=True,
        help="copies of each step, with hindsight=future or episode",
    )
    checkpoint_replay: bool = field(
        True, help="the rows of the replay buffer are part of checkpoints; False: a resumed run refills it"
    )
    tau: float = field(0.005, above=0, maximum=1, help="how far the target network moves: 1 copies")
    target_network_update_freq: int = field(
        0,
        minimum=0,
        help="gradient steps (target_update update: environment steps) between two moves of the target network; "
        "0: every time",
    )
    target_update: str = field(
        "step",
        choices=("step", "update"),
        help="the target network moves within an update after gradient steps, or after updates",
    )

    @property
    def saves_replay(self) -> bool:
        """Whether checkpoints include the rows of the replay buffer."""
        return self.checkpoint_replay and bool(self.replay_buffer_config.get("save", True))

    def validate(self) -> None:
        """See `Config.validate`.

        Raises:
            ConfigError: also if a batch is smaller than a minibatch, or the replay buffer is too small.
        """
        super().validate()
        if self.training_intensity is None and (self.minibatch_size or 1) > self.train_batch_size:
            raise ConfigError(
                f"minibatch_size={self.minibatch_size} is above train_batch_size={self.train_batch_size}, which counts "
                "the rows of all gradient steps of one update"
            )
        self._check_hindsight()
        self._check_capacity("a minibatch", self.minibatch_size or self.train_batch_size)
        self._check_capacity("one sample of all environments", steps_per_env(self) * num_environments(self))

    def _check_hindsight(self) -> None:
        """Goals must be those of the environment, and each reward that of one state."""
        others = {
            "n_step": 1,
            "normalize_observations": False,
            "normalize_rewards": False,
            "frame_stack": None,
        }
        for name, value in others.items() if self.hindsight else ():
            if (found := getattr(self, name)) != value:
                raise ConfigError(
                    f"hindsight={self.hindsight!r} computes rewards of other goals from one observation as the "
                    f"environment gives it; set {name}={value!r}, found {found!r}",
                    field=name,
                    found=found,
                    expected=value,
                )
        if self.hindsight and self.model_config.get("use_prev_reward"):
            raise ConfigError(
                f"hindsight={self.hindsight!r} changes rewards after the policy has acted, and use_prev_reward=True "
                "shows it the earlier ones; leave use_prev_reward out",
                field="model_config",
            )

    def _check_capacity(self, what: str, rows: int) -> None:
        capacity = self.replay_buffer_config["capacity"]
        if capacity < rows:
            raise ConfigError(
                f"replay_buffer_config: capacity={capacity} rows, and {what} has {rows}; set a capacity of {rows} or "
                "more",
                field="replay_buffer_config",
                found=capacity,
                expected=rows,
            )


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(AlgorithmConfig):
    """Settings of algorithms that learn only from recorded episodes, with `plugrad.training.OfflineTraining`.

    Nothing is sampled: `env` is only for evaluation and may be left out. Schedules and `--stop-timesteps` count the
    recorded steps that were trained on, including repetitions, as environment steps.
    """

    input_: str | list[str] | None = field(
        None,
        section="offline_data",
        also_in="training",
        help="recorded episodes: a directory of plugrad record, minari:<data set id>, or a list of these",
    )
    train_batch_size: int = field(2048, help="recorded steps per update")
    minibatch_size: int | None = field(64, help="rows per gradient step; none: the whole batch")
    evaluation_interval: int | None = field(10, help="evaluate every so many iterations; none: never")

    @property
    def is_offline(self) -> bool:
        """True."""
        return True

    def validate(self) -> None:
        """See `Config.validate`.

        Raises:
            ConfigError: also if `normalize_observations` is set without an environment.
        """
        super().validate()
        if self.normalize_observations and self.env is None:
            raise ConfigError(
                "normalize_observations=True and no environment, whose observation space says which numbers are "
                "scaled: without one, recorded observations are learned from as they are"
            )

    def build_algo(self) -> Algorithm:
        """See `AlgorithmConfig.build_algo`; without an environment and spaces, the spaces are those of the data."""
        if self.env is not None or self.observation_space is not None:
            return super().build_algo()
        data = load_episodes(self.input_, allow_other_bounds=self.allow_other_bounds)
        spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
        return self.environment(**spaces).build_algo()
