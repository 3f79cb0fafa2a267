"""The settings of TQC."""

from dataclasses import dataclass
from typing import Any, ClassVar

from plugrad.config import field
from plugrad_sac import SACConfig


@dataclass(frozen=True, kw_only=True)
class TQCConfig(SACConfig):
    """Settings of TQC beside those of SAC; all are arguments of `.training(...)`.

    There are two critics, as in stable-baselines3; the paper has five.
    """

    model_class: ClassVar[Any] = None

    num_quantiles: int = field(25, minimum=1, help="quantiles of each critic (arXiv:2005.04269, section 4)")
    top_quantiles_to_drop_per_critic: int = field(
        2,
        minimum=0,
        help="how many of the largest quantiles are left out of the targets, for each critic; "
        "fewer than num_quantiles",
    )
