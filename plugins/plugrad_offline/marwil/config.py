"""The settings of MARWIL."""

from dataclasses import dataclass

from plugrad import OfflineConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class MARWILConfig(OfflineConfig):
    """Settings of MARWIL beside those of every offline algorithm; all are arguments of `.training(...)`."""

    lr: float | list[list[float]] = field(
        1e-3, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    beta: float = field(
        1.0, minimum=0, help="weight of the advantages in MARWIL's exponent; 0: plain behaviour cloning"
    )
    vf_coeff: float = field(1.0, minimum=0, help="weight of the value error, if beta is above 0")
    moving_average_sqd_adv_norm_start: float = field(
        100.0, above=0, variable=True, help="initial moving average of the squared advantages"
    )
    moving_average_sqd_adv_norm_update_rate: float = field(
        1e-8, minimum=0, maximum=1, help="how far an update moves that average"
    )
