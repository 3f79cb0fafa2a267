"""The settings of DQN."""

from dataclasses import dataclass
from typing import Any, Self

from plugrad import AlgorithmConfig
from plugrad.config import field
from plugrad.config.fields import FieldInfo
from plugrad.errors import ConfigError
from plugrad_dqn.replay_settings import DEFAULTS, merged
from plugrad_dqn.rllib import RLLIB_DEFAULTS


def _check_replay(info: FieldInfo, value: Any) -> dict[str, Any]:
    return merged(value)


@dataclass(frozen=True, kw_only=True)
class DQNConfig(AlgorithmConfig):
    """Settings of DQN beside those of every algorithm; all are arguments of `.training(...)`.

    One iteration samples `rollout_fragment_length` steps of each environment, then takes all its gradient steps in one
    update: `train_batch_size` rows drawn from the replay buffer, `minibatch_size` of them per step.
    """

    lr: float | list[list[float]] = field(
        1e-3, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    train_batch_size: int = field(4096, help="rows drawn per update, unless training_intensity says how many")
    minibatch_size: int | None = field(64, help="rows per gradient step; none: the whole batch")
    rollout_fragment_length: int | None = field(16, help="steps per environment between two updates")
    grad_clip: float | None = field(10.0, help="limit on the gradient; none: no limit")
    training_intensity: float | None = field(
        None, above=0, help="rows trained on per environment step; none: as train_batch_size comes out"
    )
    num_steps_sampled_before_learning_starts: int = field(
        1000, minimum=0, help="environment steps that only fill the replay buffer"
    )
    epsilon: float | list[list[float]] = field(
        [[0, 1.0], [10_000, 0.05]], schedulable=True, help="share of random actions while exploring"
    )
    target_network_update_freq: int = field(
        500,
        minimum=0,
        help="environment steps between two moves of the target network; 0: after every update",
    )
    tau: float = field(1.0, above=0, maximum=1, help="how far the target network moves: 1 copies")
    double_q: bool = field(
        True, help="the online network chooses, the target network values (van Hasselt 2016)"
    )
    dueling: bool = field(True, help="state value and advantages apart (Wang et al. 2016)")
    n_step: int = field(1, minimum=1, help="rewards that are summed before a value is bootstrapped")
    huber_delta: float = field(1.0, above=0, help="beyond this TD error the loss grows linearly")
    replay_buffer_config: dict[str, Any] = field(
        DEFAULTS, check=_check_replay, help='"type" (uniform, prioritized), capacity, alpha, beta, save'
    )

    @classmethod
    def rllib_defaults(cls) -> Self:
        """A config with the defaults of RLlib 2.60 where they differ from plugrad's: docs/from-rllib.md lists them.

        Networks included.
        """
        return cls(**RLLIB_DEFAULTS)

    def validate(self) -> None:
        """As `AlgorithmConfig.validate`.

        Raises:
            ConfigError: also if a batch cannot hold a minibatch.
        """
        super().validate()
        if self.training_intensity is None and (self.minibatch_size or 1) > self.train_batch_size:
            raise ConfigError(
                f"minibatch_size={self.minibatch_size} is above train_batch_size={self.train_batch_size}, which counts "
                "the rows of all gradient steps of one update"
            )
