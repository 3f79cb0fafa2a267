"""Behaviour cloning with a loss in plain PyTorch, so that existing code can stay as it is."""

from collections.abc import Mapping
from typing import Any

import torch
from demonstrations import demonstrations

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig, Columns
from plugrad_torch import TorchLearner


class BCTorchLearner(TorchLearner):
    """Behaviour cloning: maximises the log-probability of the recorded actions."""

    def compute_loss_for_module(
        self,
        *,
        module_id: str,
        config: Any,
        batch: Mapping[str, torch.Tensor],
        fwd_out: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        logits = fwd_out[Columns.ACTION_DIST_INPUTS]
        return torch.nn.functional.cross_entropy(logits, batch[Columns.ACTIONS])


def main() -> None:
    config = (
        AlgorithmConfig()
        .environment("CartPole-v1")
        .framework("torch")
        .training(lr=3e-3, minibatch_size=128)
        .learners(learner_class=BCTorchLearner)
        .debugging(seed=0)
    )
    learner, batch = config.build_learner(), demonstrations(2048)
    for _ in range(5):
        print(learner.update(batch)[DEFAULT_MODULE_ID]["total_loss"])  # ln 2 at first


if __name__ == "__main__":
    main()
