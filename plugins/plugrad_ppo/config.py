"""The settings of PPO."""

from dataclasses import dataclass
from math import inf

from plugrad import AlgorithmConfig
from plugrad.columns import Columns
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class PPOConfig(AlgorithmConfig):
    """Settings of PPO beside those of every algorithm; all are arguments of `.training(...)`."""

    lr: float | list[list[float]] = field(
        3e-4, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    train_batch_size: int = field(2048, help="environment steps per update, at least")
    minibatch_size: int | None = field(64, help="rows per gradient step; none: the whole batch")
    num_epochs: int = field(10, help="passes over each batch")
    grad_clip: float | None = field(0.5, help="limit on the gradient; none: no limit")
    lambda_: float = field(
        0.95, minimum=0, maximum=1, help="lambda of GAE: 0 trusts the values, 1 the rewards"
    )
    clip_param: float | list[list[float]] = field(
        0.2, minimum=0, help="epsilon of the clipped surrogate (eq. 7)", schedulable=True
    )
    entropy_coeff: float | list[list[float]] = field(
        0.0, help="weight of the entropy bonus", schedulable=True
    )
    vf_loss_coeff: float = field(0.5, minimum=0, help="weight of the value error")
    vf_clip_param: float = field(inf, minimum=0, help="cap on the squared value error; inf: off")
    use_kl_loss: bool = field(False, help="add a KL penalty whose coefficient adapts (eq. 8)")
    kl_coeff: float = field(0.2, minimum=0, help="initial KL coefficient", variable=True)
    kl_target: float = field(0.01, minimum=0, help="KL divergence per update that the coefficient aims at")
    normalize_advantages: str = field(
        "batch",
        choices=("batch", "minibatch", "none"),
        help="over which rows advantages have mean 0 and standard deviation 1",
    )

    @property
    def needs_whole_batch(self) -> str:
        """See `Config.needs_whole_batch`."""
        if self.normalize_advantages != "batch":
            return ""
        return (
            'normalize_advantages="batch" takes the mean over the whole batch; set '
            'training(normalize_advantages="minibatch")'
        )

    @property
    def standardized_columns(self) -> tuple[str, ...]:
        """Advantages, with `normalize_advantages="minibatch"`."""
        return (Columns.ADVANTAGES,) if self.normalize_advantages == "minibatch" else ()
