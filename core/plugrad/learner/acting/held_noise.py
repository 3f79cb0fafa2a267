"""Random numbers that several steps of a module draw alike: the noise of gSDE."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plugrad.distributions import Distribution
from plugrad.types import Array, ModuleID


@dataclass
class Held:
    """The random numbers of several steps.

    Args:
        rng: drew them.
        version: of the weights.
        numbers: of each row [N, width].
        left: steps that are still to draw them; below 0: all until the weights change.
    """

    rng: np.random.Generator
    version: int
    numbers: Array
    left: int


class HeldNoise(NamedTuple):
    """Gives each module the same random numbers for some steps.

    New weights end the steps, and so does a new rollout, also that of a run which goes on from a checkpoint: what is
    kept here needs no saving. Where an episode begins, its row gets new numbers. So a policy whose weights never change
    has other noise in each episode.

    Args:
        held: what each module draws at present.
        begun: the rows of each module in which episodes have begun since it drew.
    """

    held: dict[ModuleID, Held]
    begun: dict[ModuleID, Array]

    def begin(self, module_id: ModuleID, rows: Array | None = None) -> None:
        """Draw new numbers in the next step.

        Args:
            module_id: the module.
            rows: where an episode begins, bool [N]; None: in all, as where a rollout begins.
        """
        held = self.held.get(module_id)
        if rows is None or held is None or len(rows) != len(held.numbers):
            self.held.pop(module_id, None)
        else:
            before = self.begun.get(module_id, rows)
            self.begun[module_id] = rows | before if len(before) == len(rows) else rows

    def sample(
        self, module_id: ModuleID, distribution: Distribution, rng: np.random.Generator, version: int
    ) -> Array:
        """Actions of a module; see `Distribution.sample`.

        Args:
            module_id: the module.
            distribution: in numpy.
            rng: draws the numbers.
            version: of the weights.
        """
        if distribution.noise_steps == 1:
            return distribution.sample(rng)
        return np.asarray(distribution.sample_by(self.noise(module_id, distribution, rng, version)))

    def noise(
        self, module_id: ModuleID, distribution: Distribution, rng: np.random.Generator, version: int
    ) -> Array:
        """The random numbers of `sample`; see `Distribution.noise`.

        Args:
            module_id: the module.
            distribution: of any framework.
            rng: draws the numbers.
            version: of the weights.
        """
        if distribution.noise_steps == 1:
            return distribution.noise(rng)
        number = distribution.ops.shape(distribution.logits)[0]
        held, begun = self.held.get(module_id), self.begun.pop(module_id, None)
        if held is None or held.rng is not rng or held.version != version or held.left == 0:
            held = Held(rng, version, distribution.noise(rng), distribution.noise_steps)
            self.held[module_id] = held
        elif len(held.numbers) < number:  # the place of a row in the batch is what its numbers belong to
            held.numbers = np.concatenate([held.numbers, distribution.noise(rng)[len(held.numbers) :]])
        elif begun is not None and len(begun) == number:
            held.numbers = np.where(begun[:, None], distribution.noise(rng), held.numbers)
        held.left -= 1
        return held.numbers[:number]
