"""`TransitionConfig`: the settings of offline algorithms with critics, which learn from transitions."""

from dataclasses import dataclass

from plugrad import OfflineConfig
from plugrad.config import field


@dataclass(frozen=True, kw_only=True)
class TransitionConfig(OfflineConfig):
    """Settings that IQL and CQL share; all are arguments of `.training(...)`."""

    lr: float | list[list[float]] | None = field(  # type: ignore[assignment]
        3e-4,
        schedulable=True,
        help="learning rate of parts without one of their own: a float or [[timestep, value], ...]",
    )
    actor_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the policy; None: lr"
    )
    critic_lr: float | list[list[float]] | None = field(
        None, schedulable=True, minimum=0, help="learning rate of the critics; None: lr"
    )
    train_batch_size: int = field(25_600, help="recorded steps per update: 100 gradient steps")
    minibatch_size: int | None = field(256, help="recorded steps per gradient step; None: all of the update")
    n_step: int = field(
        1,
        minimum=1,
        help="rewards that are summed before a value is bootstrapped",
        maximum=100_000,
        reason="so many steps of each episode wait in memory",
    )
    tau: float = field(0.005, above=0, maximum=1, help="how far the target critics move: 1 copies")
    target_network_update_freq: int = field(
        0,
        minimum=0,
        help="gradient steps (target_update update: recorded steps) between two moves of the target critics; "
        "0: every time",
    )
    target_update: str = field(
        "step",
        choices=("step", "update"),
        help="the target critics move within an update after gradient steps, or after updates",
    )
