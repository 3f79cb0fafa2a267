"""The settings of RND."""

from dataclasses import dataclass

from plugrad.config import field
from plugrad_ppo import PPOConfig


@dataclass(frozen=True, kw_only=True)
class RNDConfig(PPOConfig):
    """Settings of RND beside those of PPO; all are arguments of `.training(...)`."""

    rnd_coeff: float = field(
        0.5, minimum=0, help="weight of the bonus's advantages beside those of rewards; the paper's is 1 to 2"
    )
    rnd_lr: float = field(1e-4, minimum=0, help="learning rate of the predictor")
    rnd_gamma: float = field(
        0.99, minimum=0, maximum=1, help="discount of the bonus's returns, by whose deviation it is divided"
    )
    rnd_hiddens: list[int] = field([64, 64], help="widths of the hidden layers of target and predictor")
    rnd_features: int = field(64, minimum=1, help="how many outputs of the target are predicted")
