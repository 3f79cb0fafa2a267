"""The hand-written eager loop in torch, tuned: fused Adam, no host synchronisation, the batch converted once."""

# ruff: noqa: D102  (what the methods are for is said in contestants.Contestant)

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from contestants import Contestant
from torch import Tensor, nn
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


def tower(cell: Cell, outputs: int) -> nn.Sequential:
    """Linear layers with tanh between."""
    widths = (cell.obs_size, *cell.hiddens, outputs)
    layers: list[nn.Module] = []
    for inputs, width in pairwise(widths):
        layers += [nn.Linear(inputs, width), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def log_prob(inputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
    """Of a categorical (logits) or a diagonal Gaussian (means and `log_std`)."""
    if log_std is None:
        return inputs.log_softmax(-1).gather(1, actions[:, None])[:, 0]
    scaled = (actions - inputs) * torch.exp(-log_std)
    return -0.5 * (scaled * scaled + LOG_2PI).sum(-1) - log_std.sum()


def surrogate_loss(
    logp: Tensor, values: Tensor, old_logp: Tensor, advantages: Tensor, targets: Tensor
) -> Tensor:
    """PPO's clipped surrogate and value error, nothing else: no entropy, no metrics."""
    ratio = torch.exp(logp - old_logp)
    clipped = ratio.clamp(1.0 - CLIP_PARAM, 1.0 + CLIP_PARAM)
    policy = torch.minimum(ratio * advantages, clipped * advantages).mean()
    return VF_COEFF * (values - targets).square().mean() - policy


class TunedEager(Contestant):
    """Ordinary modules and optimizer, as a careful person writes them."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        self._rng = np.random.default_rng(seed)
        self._pi, self._vf = tower(cell, cell.num_actions), tower(cell, 1)
        self._log_std = nn.Parameter(torch.zeros(cell.num_actions)) if cell.continuous else None
        self._named = self._names()
        for name, value in initial_weights(cell, seed).items():
            self._named[name].data.copy_(torch.from_numpy(value.T))
        self._parameters = list(self._named.values())
        self._optimizer = torch.optim.Adam(
            self._parameters, lr=LEARNING_RATE, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True
        )

    def _names(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for name, each in (("pi", self._pi), ("vf", self._vf)):
            linears = [layer for layer in each if isinstance(layer, nn.Linear)]
            for n, layer in enumerate(linears):
                where = f"{name}.out" if n == len(linears) - 1 else f"{name}.{n}"
                named |= {f"{where}.weight": layer.weight, f"{where}.bias": layer.bias}
        return named if self._log_std is None else named | {"pi.log_std": self._log_std}

    def describe(self) -> str:
        return f"torch {torch.__version__}, fused Adam, {torch.get_num_threads()} thread"

    def update(self, shuffle: bool) -> None:
        columns = [torch.from_numpy(self.batch[name]) for name in COLUMNS]
        rows = len(columns[0])
        order = torch.from_numpy(row_order(self._cell, rows, self._rng if shuffle else None))
        losses = [self._step([each[minibatch] for each in columns]) for minibatch in order]
        float(torch.stack(losses).mean())

    def _step(self, minibatch: list[Tensor]) -> Tensor:
        obs, actions, old_logp, advantages, targets = minibatch
        logp = log_prob(self._pi(obs), self._log_std, actions)
        loss = surrogate_loss(logp, self._vf(obs)[:, 0], old_logp, advantages, targets)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._parameters, GRAD_CLIP)
        self._optimizer.step()
        return loss.detach()

    def weights(self) -> Weights:
        return {name: param.detach().numpy().T.copy() for name, param in self._named.items()}

    def save(self, path: Path) -> None:
        with (path / "state.pt").open("wb") as file:
            torch.save({"weights": self._named, "optimizer": self._optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())

    def restore(self, path: Path) -> None:
        state = torch.load(path / "state.pt", weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for name, value in state["weights"].items():
                self._named[name].copy_(value)
