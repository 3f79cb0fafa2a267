"""What `plugrad.testing.backend_suite` needs from torch: an optimizer and a model, as users write them.

`plugrad certify torch` finds these fixtures here.
"""

from collections.abc import Callable, Sequence

import pytest
import torch


@pytest.fixture
def native_optimizer() -> Callable[[Sequence[torch.Tensor], float], torch.optim.Optimizer]:
    """`gradient_descent`."""
    return gradient_descent


@pytest.fixture
def user_model() -> Callable[[], torch.nn.Module]:
    """`NormedModel`, with the same weights each time."""

    def make() -> torch.nn.Module:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return NormedModel()

    return make


def gradient_descent(params: Sequence[torch.Tensor], lr: float) -> torch.optim.Optimizer:
    """torch's SGD with two param groups."""
    return torch.optim.SGD([{"params": params[:2]}, {"params": params[2:]}], lr)


class NormedModel(torch.nn.Module):
    """A policy and a value over BatchNorm and Dropout."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Dropout(dropout)
        )
        self.head = torch.nn.Linear(8, 3)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [B, 2] and values [B, 1] of observations [B, 3]."""
        outputs = self.head(self.body(obs))
        return outputs[:, :2], outputs[:, 2:]
