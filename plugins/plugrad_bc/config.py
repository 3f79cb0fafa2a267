"""The settings of behaviour cloning."""

from dataclasses import dataclass

from plugrad.config import field
from plugrad_offline import MARWILConfig


@dataclass(frozen=True, kw_only=True)
class BCConfig(MARWILConfig):
    """`MARWILConfig` with a default `beta` of 0, as in RLlib: advantages have no weight."""

    beta: float = field(
        0.0, minimum=0, help="weight of the advantages in MARWIL's exponent; 0: plain behaviour cloning"
    )
