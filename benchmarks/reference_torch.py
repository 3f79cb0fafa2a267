"""A hand-written eager loop in torch, as fast as its author could make it.

Parameters and gradients are slices of one flat vector each, so that clipping and fused Adam take a kernel or two. Rows
are gathered once per pass. Nothing waits for the device before the end.
"""

# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from contestants import Contestant
from torch import Tensor
from workload import (
    ADAM_BETAS,
    ADAM_EPS,
    CLIP_PARAM,
    GRAD_CLIP,
    LEARNING_RATE,
    LOG_2PI,
    VF_COEFF,
    Cell,
    Weights,
    initial_weights,
    row_order,
)

COLUMNS = ("obs", "actions", "action_logp", "advantages", "value_targets")


def make(cell: Cell, seed: int, option: str) -> "TunedEager":
    return TunedEager(cell, seed)


def passes(columns: Sequence[Tensor], order: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the minibatches in order. Rows are gathered for one pass over the batch at a time.

    Args:
        columns: tensors [rows, ...].
        order: row numbers [steps, minibatch size].
    """
    for some in order.split(max(1, len(columns[0]) // order.shape[1])):
        taken = (column.index_select(0, some.reshape(-1)) for column in columns)
        yield from zip(*(each.view(*some.shape, *each.shape[1:]).unbind() for each in taken), strict=True)


def log_prob(inputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
    """Log-probability of a categorical (logits) or a diagonal Gaussian (means and `log_std`)."""
    if log_std is None:
        return inputs.log_softmax(-1).gather(1, actions[:, None])[:, 0]
    scaled = (actions - inputs) * torch.exp(-log_std)
    return -0.5 * (scaled * scaled + LOG_2PI).sum(-1) - log_std.sum()


def surrogate_loss(
    logp: Tensor, values: Tensor, old_logp: Tensor, advantages: Tensor, targets: Tensor
) -> Tensor:
    """PPO's clipped surrogate and value error as one mean over the rows, without entropy and metrics."""
    ratio = torch.exp(logp - old_logp)
    clipped = ratio.clamp(1.0 - CLIP_PARAM, 1.0 + CLIP_PARAM)
    policy = torch.minimum(ratio * advantages, clipped * advantages)
    return (VF_COEFF * (values - targets).square() - policy).mean()


class TunedEager(Contestant):
    """A learner whose layers are functions of slices of one vector, with one fused Adam step."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        self._rng = np.random.default_rng(seed)
        weights = initial_weights(cell, seed)
        self._flat = torch.from_numpy(np.concatenate([value.reshape(-1) for value in weights.values()]))
        self._gradient, self._m, self._v = (torch.zeros_like(self._flat) for _ in range(3))
        self._count = torch.tensor(0.0)
        sizes = [value.size for value in weights.values()]
        self._named: dict[str, Tensor] = {}
        slices = zip(weights.items(), self._flat.split(sizes), self._gradient.split(sizes), strict=True)
        for (name, value), part, slope in slices:
            self._named[name] = part.view(value.shape).requires_grad_()
            self._named[name].grad = slope.view(value.shape)
        self._pi, self._vf = self._layers("pi"), self._layers("vf")

    def _layers(self, name: str) -> list[tuple[Tensor, Tensor]]:
        places = [f"{name}.{n}" for n in range(len(self._cell.hiddens))] + [f"{name}.out"]
        return [(self._named[f"{place}.bias"], self._named[f"{place}.weight"]) for place in places]

    def describe(self) -> str:
        return f"torch {torch.__version__}, flat vector, fused Adam, {torch.get_num_threads()} thread"

    def update(self, shuffle: bool) -> None:
        columns = [torch.from_numpy(self.batch[name]) for name in COLUMNS]
        order = torch.from_numpy(row_order(self._cell, len(columns[0]), self._rng if shuffle else None))
        losses = [self._step(*minibatch) for minibatch in passes(columns, order)]
        float(torch.stack(losses).mean())

    def _step(
        self, obs: Tensor, actions: Tensor, old_logp: Tensor, advantages: Tensor, targets: Tensor
    ) -> Tensor:
        self._gradient.zero_()
        logp = log_prob(forward(self._pi, obs), self._named.get("pi.log_std"), actions)
        loss = surrogate_loss(logp, forward(self._vf, obs)[:, 0], old_logp, advantages, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._gradient.mul_((GRAD_CLIP / (self._gradient.norm() + 1e-6)).clamp_(max=1.0))
        self._adam()
        return loss.detach()

    def _adam(self) -> None:
        """The kernel behind `torch.optim.Adam(fused=True)`, without the optimizer around it."""
        self._count += 1.0
        torch._fused_adam_(
            [self._flat],
            [self._gradient],
            [self._m],
            [self._v],
            [],
            [self._count],
            lr=LEARNING_RATE,
            beta1=ADAM_BETAS[0],
            beta2=ADAM_BETAS[1],
            weight_decay=0.0,
            eps=ADAM_EPS,
            amsgrad=False,
            maximize=False,
        )

    def weights(self) -> Weights:
        return {name: param.detach().numpy().copy() for name, param in self._named.items()}

    def _state(self) -> dict[str, Tensor]:
        return {"weights": self._flat, "m": self._m, "v": self._v, "count": self._count}

    def save(self, path: Path) -> None:
        with (path / "state.pt").open("wb") as file:
            torch.save(self._state(), file)
            file.flush()
            os.fsync(file.fileno())

    def restore(self, path: Path) -> None:
        saved = torch.load(path / "state.pt", weights_only=True)
        for name, tensor in self._state().items():
            tensor.copy_(saved[name])


def forward(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Compute linear layers with tanh between them."""
    *hidden, (bias, weight) = layers
    for b, w in hidden:
        x = torch.addmm(b, x, w).tanh()
    return torch.addmm(bias, x, weight)
