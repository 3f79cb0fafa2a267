"""The settings of SAC."""

from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad.config import FieldInfo, field
from plugrad.errors import ConfigError
from plugrad_sac.actor_critic_config import ActorCriticConfig
from plugrad_sac.plain_models import PlainSAC


def _check_twin_q(info: FieldInfo, value: Any) -> bool:
    if value is not True:
        raise ConfigError("twin_q: SAC always has two critics; leave it out", field=info.name)
    return True


def _check_target_entropy(info: FieldInfo, value: Any) -> Any:
    if isinstance(value, str) and value != "auto":
        raise ConfigError(
            f'target_entropy must be a number of nats, "auto" or None, got {value!r}', field=info.name
        )
    return value


@dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """Settings of SAC beside those of every off-policy algorithm; all are arguments of `.training(...)`."""

    model_class: ClassVar[Any] = PlainSAC

    alpha_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the temperature; None: lr"
    )
    initial_alpha: float = field(
        1.0, above=0, help="the initial temperature: the weight of the policy's entropy"
    )
    target_entropy: float | str | None = field(
        "auto",
        check=_check_target_entropy,
        help="target entropy of the policy in nats; auto: minus the dimensions of a Box, 0.98 of "
        "the largest entropy of discrete actions; None: the temperature is constant",
    )
    twin_q: bool = field(True, check=_check_twin_q, help="always two critics; RLlib's name")
