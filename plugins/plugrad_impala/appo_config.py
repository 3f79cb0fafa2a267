"""The settings of APPO."""

from dataclasses import dataclass

from plugrad.config import field
from plugrad_impala.impala_config import IMPALAConfig


@dataclass(frozen=True, kw_only=True)
class APPOConfig(IMPALAConfig):
    """Settings of APPO beside those of IMPALA; all are arguments of `.training(...)`."""

    clip_param: float | list[list[float]] = field(
        0.4, minimum=0, help="epsilon of the clipped surrogate", schedulable=True
    )
    target_worker_clipping: float = field(
        2.0, above=0, help="bound of the ratio of the acting policy to the target network's"
    )
    circular_buffer_num_batches: int = field(
        4,
        minimum=1,
        for_all_modules=True,
        help="batches that are kept to learn from again",
        maximum=100_000,
        reason="so many batches are in memory",
    )
    circular_buffer_iterations_per_batch: int = field(
        2,
        minimum=1,
        for_all_modules=True,
        help="updates on each batch, at most",
        maximum=100_000,
        reason="an update repeats so often before it returns",
    )
    tau: float = field(1.0, above=0, maximum=1, help="how far the target network moves: 1 copies")
    target_network_update_freq: float = field(
        0.5,
        above=0,
        maximum=1_000_000,
        reason="it is a share of the steps of all kept batches",
        help="trained steps between two moves of the target network, in "
        "circular_buffer_num_batches * circular_buffer_iterations_per_batch * train_batch_size steps",
    )
    use_kl_loss: bool = field(False, help="add a KL penalty whose coefficient adapts")
    kl_coeff: float = field(1.0, minimum=0, help="initial KL coefficient", variable=True)
    kl_target: float = field(0.01, minimum=0, help="KL divergence per update that the coefficient aims at")

    @property
    def steps_between_target_updates(self) -> int:
        """Trained environment steps between two moves of the target network."""
        batches = self.circular_buffer_num_batches * self.circular_buffer_iterations_per_batch
        return max(1, round(self.target_network_update_freq * batches * self.train_batch_size))
