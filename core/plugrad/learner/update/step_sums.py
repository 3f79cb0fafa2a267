"""What the calls of `forward_backward` since the last step have added up, besides gradients: rows, metrics, weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plugrad.gradients import Layout
from plugrad.learner.state.state import Snapshot
from plugrad.metrics import SEPARATOR
from plugrad.types import ALL_MODULES, Array, ModuleID


@dataclass
class StepSums:
    """What the calls since the last step have added up.

    A call's mass is the number of its rows that count, or the sum of its `loss_mask`, which may have fractions. Its
    weight is its mass in units of that of the first call that has the module. So a single call has the weight 1.

    Args:
        snapshot: of the learner before the first one.
        added: of each call that was added, the masses, for each module and for all.
        rows: of all calls, also of those that were skipped; for each module.
        env_steps: of all calls.
        num_calls: how many.
        seen: layouts of the optimizers that have gradients.
        metrics: sums of metrics times weights.
        weights: sums of the weights of each metric.
    """

    snapshot: Snapshot
    added: list[dict[ModuleID, float]] = field(default_factory=list)
    rows: dict[ModuleID, int] = field(default_factory=dict)
    env_steps: int = 0
    num_calls: int = 0
    seen: set[Layout] = field(default_factory=set)
    metrics: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def weights_of(self, masses: Mapping[ModuleID, float]) -> dict[ModuleID, float]:
        """The weights of a call.

        Args:
            masses: of each module and of all.

        Returns:
            `{module_id or ALL_MODULES: weight}`.
        """
        first: dict[ModuleID, float] = {}
        for each in (*self.added, masses):
            first = {**each, **first}
        return {module_id: mass / first[module_id] for module_id, mass in masses.items()}

    def factors(self) -> dict[ModuleID, Array]:
        """What the sums of gradients are multiplied by."""
        weights: dict[ModuleID, float] = {}
        for masses in self.added:
            for module_id, weight in self.weights_of(masses).items():
                weights[module_id] = weights.get(module_id, 0.0) + weight
        weights.pop(ALL_MODULES, None)
        return {module_id: np.array([1.0 / weight], np.float32) for module_id, weight in weights.items()}

    def are_proportional(self, masses: Mapping[ModuleID, float]) -> bool:
        """Whether all modules have the same share of their rows in each call, with a further one.

        Args:
            masses: of the further call.
        """
        calls = [*self.added, masses]
        ids = {module_id for each in calls for module_id in each}
        numbers = np.array([[each.get(module_id, 0) for module_id in sorted(ids)] for each in calls], float)
        shares = numbers / numbers.sum(0)
        return bool(np.allclose(shares, shares[:, :1], rtol=0.0, atol=1e-7))  # fractions are float32

    def add(self, masses: Mapping[ModuleID, float], means: Mapping[str, Any]) -> None:
        """Add a call.

        Args:
            masses: of each module and of all.
            means: its metrics, times its weights.
        """
        weights = self.weights_of(masses)
        for name, value in means.items():
            weight = weights.get(name.split(SEPARATOR)[0], weights[ALL_MODULES])
            self.metrics[name] = self.metrics.get(name, 0.0) + float(value)
            self.weights[name] = self.weights.get(name, 0.0) + weight
        self.added.append(dict(masses))

    def means(self) -> dict[str, Any]:
        """The means of the metrics over the rows of all calls."""
        return {name: np.asarray(value / self.weights[name]) for name, value in self.metrics.items()}
