"""Whether a sum of gradients that begins in the backward pass pays: two processes of one machine, gloo.

    torchrun --nproc-per-node 2 benchmarks/overlap.py

A hand-written step: forward, backward, sum of the flat gradient, Adam. "After" sums the whole vector when the backward
pass has ended. "Within" sums a bucket of at least 4 MB as soon as its last gradient is there, as torch's
DistributedDataParallel does. Both alternate in paired rounds; "no sum" is the step without any.
"""

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import distributed

BUCKET = 1 << 20
"""Entries of a bucket: 4 MB."""


class Step:
    """A step of a network of two hidden layers.

    Args:
        width: units of a hidden layer.
        rows: of this process.
    """

    def __init__(self, width: int, rows: int) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(64, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh()]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 8))
        self.obs, self.goal = torch.randn(rows, 64), torch.randn(rows, 8)
        params = [*self.model.parameters()]
        self.size = sum(each.numel() for each in params)
        self.flat, self.gradient = (
            torch.cat([each.detach().reshape(-1) for each in params]),
            torch.zeros(self.size),
        )
        self.adam = torch.optim.Adam([self.flat], lr=1e-4, fused=True)
        self.flat.grad = self.gradient
        self.works: list[Any] = []
        self.is_within, self.end = False, self.size
        self.starts, self.arrived = [], set[int]()
        start = 0
        for each in params:
            stop = start + each.numel()
            each.data = self.flat[start:stop].view_as(each)
            each.grad = self.gradient[start:stop].view_as(each)
            each.register_post_accumulate_grad_hook(lambda _, start=start: self._has(start))
            self.starts.append(start)
            start = stop

    def _has(self, start: int) -> None:
        """A gradient is there; autograd reaches the last layer first."""
        self.arrived.add(start)
        for first in reversed([each for each in self.starts if each < self.end]):
            if not self.is_within or first not in self.arrived:
                return
            if self.end - first >= BUCKET or first == 0:
                self._sum(first)

    def _sum(self, start: int) -> None:
        self.works.append(distributed.all_reduce(self.gradient[start : self.end], async_op=True))
        self.end = start

    def run(self, way: str) -> float:
        """Take a step; seconds."""
        self.is_within, self.end = way == "within", self.size
        self.arrived.clear()
        distributed.barrier()
        begun = perf_counter()
        self.gradient.zero_()
        ((self.model(self.obs) - self.goal) ** 2).mean().backward()
        if way != "no sum" and self.end:
            self._sum(0)
        for each in self.works:
            each.wait()
        self.works.clear()
        self.adam.step()
        return perf_counter() - begun


def main() -> None:
    """Measure some sizes and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    for width, rows in ((1024, 128), (1024, 1024), (2048, 128), (2048, 512)):
        step, ways = Step(width, rows), ("no sum", "after", "within")
        gradients = []
        for way in ("after", "within"):
            flat = step.flat.clone()
            step.run(way)
            gradients.append(step.gradient.clone())
            step.flat.copy_(flat)
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(options.rounds + 2):
            for way in ways if number % 2 else ways[::-1]:
                found = step.run(way)
                if number >= 2:
                    seconds[way].append(found)
        if distributed.get_rank() == 0:
            ratio = median(w / a for w, a in zip(seconds["within"], seconds["after"], strict=True))
            shown = ", ".join(
                f"{way} {1e3 * median(each):.1f} ({1e3 * min(each):.1f})" for way, each in seconds.items()
            )
            print(
                f"{4e-6 * step.size:.1f} MB, {rows} rows: median (best) ms: {shown}; within/after {ratio:.2f}",
                flush=True,
            )
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
