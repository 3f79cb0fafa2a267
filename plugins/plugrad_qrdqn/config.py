"""The settings of QR-DQN."""

from dataclasses import dataclass

from plugrad.config import field
from plugrad_dqn import DQNConfig


@dataclass(frozen=True, kw_only=True)
class QRDQNConfig(DQNConfig):
    """Settings of QR-DQN beside those of DQN; all are arguments of `.training(...)`."""

    num_quantiles: int = field(
        200, minimum=1, help="quantiles of the return of each action (arXiv:1710.10044, section 5)"
    )
    double_q: bool = field(False)
    dueling: bool = field(False)
    huber_delta: float = field(
        1.0, above=0, help="kappa of the quantile Huber loss: beyond this error it grows linearly"
    )
