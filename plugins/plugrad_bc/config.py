"""The settings of behaviour cloning and MARWIL."""

from dataclasses import dataclass
from typing import Self

from plugrad import AlgorithmConfig
from plugrad.algorithm import Algorithm
from plugrad.config import field
from plugrad.errors import ConfigError
from plugrad.offline import load_episodes
from plugrad_bc.rllib import RLLIB_DEFAULTS


@dataclass(frozen=True, kw_only=True)
class BCConfig(AlgorithmConfig):
    """Settings of BC beside those of every algorithm; all are arguments of `.training(...)`.

    It learns from recorded episodes; `env` is only for evaluation and may be left out.
    """

    input_: str | list[str] | None = field(
        None,
        section="offline_data",
        also_in="training",
        help="recorded episodes: a directory of plugrad record, minari:<data set id>, or a list of these",
    )
    lr: float | list[list[float]] = field(
        1e-3, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    train_batch_size: int = field(2048, help="recorded steps per update")
    minibatch_size: int | None = field(64, help="rows per gradient step; none: the whole batch")
    beta: float = field(
        0.0, minimum=0, help="weight of the advantages in MARWIL's exponent; 0: plain behaviour cloning"
    )
    vf_coeff: float = field(1.0, minimum=0, help="weight of the value error, if beta is above 0")
    moving_average_sqd_adv_norm_start: float = field(
        100.0, above=0, variable=True, help="initial moving average of the squared advantages"
    )
    moving_average_sqd_adv_norm_update_rate: float = field(
        1e-8, minimum=0, maximum=1, help="how far an update moves that average"
    )
    evaluation_interval: int | None = field(10, help="evaluate every so many iterations; none: never")

    @classmethod
    def rllib_defaults(cls) -> Self:
        """A config with the defaults of RLlib 2.60 where they differ from plugrad's: docs/from-rllib.md lists them.

        Networks included.
        """
        return cls(**RLLIB_DEFAULTS)

    @property
    def is_offline(self) -> bool:
        """True."""
        return True

    def validate(self) -> None:
        """As `AlgorithmConfig.validate`.

        Raises:
            ConfigError: also if observations are to be normalised: there are no running statistics offline.
        """
        super().validate()
        if self.normalize_observations:
            raise ConfigError(
                "normalize_observations=True: recorded observations are learned from as they are"
            )

    def build_algo(self) -> Algorithm:
        """As `AlgorithmConfig.build_algo`; without an environment and spaces, the spaces are those of the data."""
        if self.env is not None or self.observation_space is not None:
            return super().build_algo()
        data = load_episodes(self.input_)
        spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
        return self.environment(**spaces).build_algo()


@dataclass(frozen=True, kw_only=True)
class MARWILConfig(BCConfig):
    """`BCConfig` with advantages that count: `beta` is 1 unless it is given, as in RLlib."""

    beta: float = field(1.0, minimum=0, help="weight of the advantages in MARWIL's exponent")
