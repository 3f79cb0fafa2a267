"""An update as a program: the eager loop over the core's step."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from plugrad.hooks.backend_spec import Program
from plugrad.types import ModuleBatches, ModuleID
from torch import Tensor

Step = Callable[[ModuleBatches, Mapping[ModuleID, Tensor]], dict[str, Tensor]]


def compile_update(learner: Any, step: Step, mode: str) -> Program:
    """The eager loop: no host synchronisation between the first minibatch and the metrics at the end."""

    def run(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int) -> dict[str, Tensor]:
        rows = [dict(zip(indices, each, strict=True)) for each in zip(*indices.values(), strict=True)]
        metrics = [step(columns, rows[n]) for n in range(num_steps)]
        names = list(metrics[0])
        table = torch.stack([torch.stack([each[name] for name in names]) for each in metrics])
        return dict(zip(names, table.mean(0), strict=True))

    return Program(run, "none", "eager torch, one step per minibatch")
