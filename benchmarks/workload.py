"""The measured work: one PPO update in two sizes, its data and its initial weights.

It needs numpy only, because the peers run in a venv without plugrad.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Batch = dict[str, Array]
Weights = dict[str, Array]

LEARNING_RATE = 3e-4
ADAM_BETAS = (0.9, 0.999)
ADAM_EPS = 1e-5
CLIP_PARAM = 0.2
VF_COEFF = 0.5
GRAD_CLIP = 0.5
LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Cell:
    """One size of work.

    Args:
        name: how it is called on the command line.
        rows: of the rollout.
        obs_size: numbers in an observation.
        num_actions: discrete actions, or dimensions of a Gaussian one.
        continuous: whether actions are Gaussian.
        hiddens: widths of the tanh layers; the policy and the value network have them each.
        minibatch_size: rows per optimizer step.
        num_epochs: passes over the rollout.
    """

    name: str
    rows: int
    obs_size: int
    num_actions: int
    continuous: bool
    hiddens: tuple[int, ...]
    minibatch_size: int
    num_epochs: int

    @property
    def num_steps(self) -> int:
        """Return the number of optimizer steps of one update."""
        return self.num_epochs * self.rows // self.minibatch_size


SMALL = Cell("small", 2048, 4, 2, False, (64, 64), 64, 10)
WIDE = Cell("wide", 8192, 376, 17, True, (256, 256), 512, 4)
SAVED = Cell("saved", 64, 4, 2, False, (256, 256), 64, 1)
"""One step, so that the optimizer has its slots: what checkpoints are measured with."""
CELLS = {each.name: each for each in (SMALL, WIDE, SAVED)}


def make_batch(cell: Cell, seed: int, rows: int | None = None) -> Batch:
    """Make a rollout with RLlib's column names: actions of a nearly uniform policy, standard normal advantages.

    Args:
        cell: the size of the work.
        seed: equal seeds give equal data to every contestant.
        rows: instead of the cell's.
    """
    rng = np.random.default_rng([seed, 1])
    rows = cell.rows if rows is None else rows

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    batch: Batch = {"obs": normal(rows, cell.obs_size)}
    if cell.continuous:
        actions = normal(rows, cell.num_actions)
        logp = -0.5 * (actions**2 + LOG_2PI).sum(1)
        inputs = np.zeros((rows, 2 * cell.num_actions), np.float32)
    else:
        actions = rng.integers(cell.num_actions, size=rows)
        logp = np.full(rows, -np.log(cell.num_actions))
        inputs = np.zeros((rows, cell.num_actions), np.float32)
    batch |= {"actions": actions, "action_logp": logp.astype(np.float32), "action_dist_inputs": inputs}
    return batch | {"vf_preds": normal(rows), "advantages": normal(rows), "value_targets": normal(rows)}


def initial_weights(cell: Cell, seed: int) -> Weights:
    """Return `{name: float32 array}`, (in, out), with the names and the order of plugrad's built-in networks."""
    rng = np.random.default_rng([seed, 2])
    outputs = {"pi": cell.num_actions, "vf": 1}
    weights: Weights = {}
    for encoder, last in outputs.items():
        widths = (cell.obs_size, *cell.hiddens, last)
        names = [f"{encoder}.{n}" for n in range(len(cell.hiddens))] + [f"{encoder}.out"]
        for name, (inputs, width) in zip(names, pairwise(widths), strict=True):
            scale = 0.01 if name == "pi.out" else 1.0
            drawn = rng.standard_normal((inputs, width)) * scale / np.sqrt(inputs)
            weights[f"{name}.weight"] = drawn.astype(np.float32)
            weights[f"{name}.bias"] = np.zeros(width, np.float32)
        if encoder == "pi" and cell.continuous:
            weights["pi.log_std"] = np.zeros(last, np.float32)
    return weights


def row_order(cell: Cell, rows: int, rng: np.random.Generator | None) -> Array:
    """Row numbers int64 [steps, minibatch_size]: each epoch in a new order, or in the batch's own without `rng`."""
    epochs = [np.arange(rows) if rng is None else rng.permutation(rows) for _ in range(cell.num_epochs)]
    whole = np.concatenate(epochs)
    steps = len(whole) // cell.minibatch_size
    return whole[: steps * cell.minibatch_size].reshape(steps, cell.minibatch_size)
