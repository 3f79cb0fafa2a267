"""The settings of IMPALA."""

from dataclasses import dataclass

from plugrad import AlgorithmConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(AlgorithmConfig):
    """Settings of IMPALA beside those of every algorithm; all are arguments of `.training(...)`."""

    lr: float | list[list[float]] = field(
        2e-3, help="learning rate: a float or [[timestep, value], ...]", schedulable=True
    )
    train_batch_size: int = field(256, help="environment steps per update, at least")
    rollout_fragment_length: int | None = field(32)
    grad_clip: float | None = field(0.5, help="limit on the gradient; none: no limit")
    vtrace_clip_rho_threshold: float = field(
        1.0, above=0, help="bound of the importance ratios in the value targets; inf: none"
    )
    vtrace_clip_pg_rho_threshold: float = field(
        1.0, above=0, help="bound of the importance ratios in the policy gradient; inf: none"
    )
    lambda_: float = field(
        0.95, minimum=0, maximum=1, help="lambda of V-trace: 0 trusts the values, 1 the rewards"
    )
    vf_loss_coeff: float = field(0.25, minimum=0, help="weight of the value error")
    entropy_coeff: float | list[list[float]] = field(
        0.01, help="weight of the entropy bonus", schedulable=True
    )

    @property
    def reads_masked_steps(self) -> bool:
        """True: the targets of a step follow from the steps behind it, whether or not these count in the loss."""
        return True
