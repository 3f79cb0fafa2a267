"""The settings of CQL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad.config import field
from plugrad_offline.transition_config import TransitionConfig
from plugrad_sac import SACConfig


@dataclass(frozen=True, kw_only=True)
class CQLConfig(TransitionConfig):
    """Settings of CQL beside those of every offline algorithm; all are arguments of `.training(...)`.

    Names are RLlib's. The defaults are the paper's for locomotion (arXiv:2006.04779, appendix F).
    """

    default_model_config: ClassVar[Mapping[str, Any]] = {
        "fcnet_hiddens": [256, 256, 256],
        "fcnet_activation": "relu",
    }
    """The networks of the paper's authors."""

    actor_lr: float | list[list[float]] | None = field(1e-4)
    alpha_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the temperature; None: lr"
    )
    min_q_weight: float = field(
        5.0, minimum=0, help="weight of the conservative term beside half the squared TD error"
    )
    num_actions: int = field(
        10,
        minimum=1,
        help="actions per row and source: uniform, of the policy in obs, of the policy in new_obs",
    )
    temperature: float = field(
        1.0, above=0, help="temperature of the soft maximum of the sampled actions' values"
    )
    lagrangian: bool = field(
        False,
        help="learn a multiplier of min_q_weight that keeps the conservative term near lagrangian_thresh",
    )
    lagrangian_thresh: float = field(
        5.0, help="target of each critic's conservative term, min_q_weight included, with lagrangian"
    )
    deterministic_backup: bool = field(
        True, help="values of the next state without the policy's entropy, unlike SAC"
    )
    initial_alpha: float = field(
        1.0, above=0, help="the initial temperature of SAC: the weight of the policy's entropy"
    )
    target_entropy: float | str | None = field(
        "auto",
        check=SACConfig.fields()["target_entropy"].check,
        help="target entropy of the policy in nats; auto: minus the number of dimensions; "
        "None: the temperature is constant",
    )
