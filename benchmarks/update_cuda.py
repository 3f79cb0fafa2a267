"""Time of one PPO update on a CUDA device: plugrad's modes, a hand-written eager loop and a hand-written CUDA graph.

    python benchmarks/update_cuda.py --rounds 10

All contestants run in turn in one process on one device. Every measurement ends with a device synchronisation.
"""

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from plugrad import Learner
from plugrad_ppo import PPOConfig

WARM_UPS = 5
"""Updates before those that count: "auto" records its steps after 200 gradient steps."""


@dataclass(frozen=True)
class Cell:
    """The size of the work: rows, network and minibatches of one update."""

    name: str
    rows: int
    inputs: int
    actions: int
    discrete: bool
    hiddens: tuple[int, ...]
    minibatch: int
    epochs: int


CELLS = [
    Cell("small", 2048, 4, 2, True, (64, 64), 64, 10),
    Cell("wide", 8192, 376, 17, False, (256, 256), 512, 4),
]


def make_batch(cell: Cell) -> dict[str, Any]:
    """Make random columns of the right shapes."""
    rng = np.random.default_rng(0)
    columns = cell.actions if cell.discrete else 2 * cell.actions
    normal = rng.standard_normal
    return {
        "obs": normal((cell.rows, cell.inputs)).astype(np.float32),
        "actions": rng.integers(0, cell.actions, cell.rows)
        if cell.discrete
        else normal((cell.rows, cell.actions)).astype(np.float32),
        "action_logp": np.full(cell.rows, -0.7 if cell.discrete else -24.0, np.float32),
        "action_dist_inputs": np.zeros((cell.rows, columns), np.float32),
        "advantages": normal(cell.rows).astype(np.float32),
        "value_targets": normal(cell.rows).astype(np.float32),
    }


def plugrad_update(cell: Cell, mode: str) -> tuple[Callable[[], Any], Learner]:
    """Make a function that calls `Learner.update` with all checks."""
    actions = gym.spaces.Discrete(cell.actions) if cell.discrete else gym.spaces.Box(-1, 1, (cell.actions,))
    config = (
        PPOConfig()
        .environment(observation_space=gym.spaces.Box(-10, 10, (cell.inputs,)), action_space=actions)
        .framework("torch", compile=mode, device="cuda:0")
        .rl_module(model_config={"fcnet_hiddens": list(cell.hiddens)})
        .training(minibatch_size=cell.minibatch, num_epochs=cell.epochs, optimizer={"eps": 1e-5})
        .debugging(seed=0)
    )
    learner = Learner(config=config)
    learner.build()
    batch = make_batch(cell)
    return lambda: learner.update(batch), learner


class Twin:
    """A hand-written update for one device: networks, loss, clip, fused Adam."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        outputs = cell.actions
        self.pi, self.vf = self._encoder(outputs), self._encoder(1)
        self.log_std = torch.nn.Parameter(torch.zeros(cell.actions, device="cuda"))
        self.params = [*self.pi.parameters(), *self.vf.parameters()] + (
            [] if cell.discrete else [self.log_std]
        )
        self.adam = torch.optim.Adam(self.params, lr=3e-4, eps=1e-5, fused=True, capturable=True)
        self.data = {
            name: torch.as_tensor(column, device="cuda") for name, column in make_batch(cell).items()
        }

    def _encoder(self, outputs: int) -> torch.nn.Sequential:
        widths = (self.cell.inputs, *self.cell.hiddens)
        layers: list[torch.nn.Module] = []
        for inputs, width in itertools.pairwise(widths):
            layers += [torch.nn.Linear(inputs, width), torch.nn.Tanh()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], outputs)).cuda()

    def step(self, rows: torch.Tensor) -> torch.Tensor:
        """Do one step on a minibatch."""
        data = {name: column.index_select(0, rows) for name, column in self.data.items()}
        outputs, values = self.pi(data["obs"]), self.vf(data["obs"]).squeeze(-1)
        if self.cell.discrete:
            log_probs = torch.log_softmax(outputs, -1)
            logp = log_probs.gather(-1, data["actions"][:, None]).squeeze(-1)
            entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        else:
            scaled = (data["actions"] - outputs) * torch.exp(-self.log_std)
            logp = (-0.5 * scaled.square() - self.log_std - 0.9189385).sum(-1)
            entropy = (self.log_std + 1.4189385).sum()
        ratio = torch.exp(logp - data["action_logp"])
        clipped = ratio.clamp(0.8, 1.2)
        policy_loss = -torch.min(ratio * data["advantages"], clipped * data["advantages"]).mean()
        value_loss = (values - data["value_targets"]).square().mean()
        loss = policy_loss + 0.5 * value_loss - 0.0 * entropy
        self.adam.zero_grad(set_to_none=False)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.params, 0.5, foreach=True)
        self.adam.step()
        return loss.detach()

    def indices(self) -> torch.Tensor:
        """Return the shuffled rows of all minibatches."""
        order = [torch.randperm(self.cell.rows, device="cuda") for _ in range(self.cell.epochs)]
        return torch.cat(order).view(-1, self.cell.minibatch)

    def eager(self) -> None:
        """Run all steps eagerly."""
        for rows in self.indices():
            self.step(rows)

    def graph(self) -> Callable[[], None]:
        """Run all steps by replaying a captured CUDA graph."""
        rows = self.indices()[0].clone()
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step(rows)
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            self.step(rows)

        def update() -> None:
            for each in self.indices():
                rows.copy_(each)
                captured.replay()

        return update


def timed(update: Callable[[], Any]) -> float:
    """Return the milliseconds of one update."""
    torch.cuda.synchronize()
    start = perf_counter()
    update()
    torch.cuda.synchronize()
    return 1e3 * (perf_counter() - start)


def race(cell: Cell, rounds: int) -> dict[str, float]:
    """Run all contestants in turn, print medians and medians of paired ratios, and return the median milliseconds."""
    contestants: dict[str, Callable[[], Any]] = {}
    for mode in ("none", "auto", "complete_update"):
        update, learner = plugrad_update(cell, mode)
        first = timed(update)
        contestants[f"plugrad {mode}"] = update
        for _ in range(WARM_UPS):
            timed(update)
        print(f"{cell.name}: plugrad {mode}: first update {first / 1e3:.1f} s; {learner.update_mode}")
    contestants["hand-written eager"] = Twin(cell).eager
    contestants["hand-written CUDA graph"] = Twin(cell).graph()
    for update in contestants.values():
        timed(update)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, update in contestants.items():
            times[name].append(timed(update))
    for name, own in times.items():
        line = f"{cell.name:6} {name:26} {median(own):8.2f} ms"
        for twin in ("hand-written eager", "hand-written CUDA graph"):
            ratio = median(a / b for a, b in zip(own, times[twin], strict=True))
            line += f"   {ratio:5.2f} of {twin}"
        print(line)
    return {name: median(own) for name, own in times.items()}


def main() -> None:
    """Parse the command line and run the contestants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for cell in CELLS:
        race(cell, rounds)


if __name__ == "__main__":
    main()
