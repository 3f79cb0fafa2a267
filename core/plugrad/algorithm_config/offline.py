"""`OfflineConfig`: the settings that offline algorithms share."""

from dataclasses import dataclass

from plugrad.algorithm import Algorithm
from plugrad.algorithm_config.algorithm_config import AlgorithmConfig
from plugrad.config import field
from plugrad.errors import ConfigError
from plugrad.offline import load_episodes


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
