"""Random numbers that several steps of a module draw alike: the noise of gSDE."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plugrad.distributions import Distribution
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.types import Array, ModuleID


@dataclass
class Held:
    """The random numbers of several steps.

    Args:
        rng: drew the seed.
        version: of the weights.
        seed: of the numbers.
        left: steps that are still to draw them; below 0: all until the weights change.
    """

    rng: np.random.Generator
    version: int
    seed: int
    left: int


class HeldNoise(NamedTuple):
    """Gives each module the same random numbers for some steps.

    New weights end the steps. So they begin anew in each rollout, also in one that goes on from a checkpoint: what is
    kept here needs no saving.

    Args:
        learner: has the weights.
        held: what each module draws at present.
    """

    learner: LearnerProtocol
    held: dict[ModuleID, Held]

    def sample(self, module_id: ModuleID, distribution: Distribution, rng: np.random.Generator) -> Array:
        """Actions of a module; see `Distribution.sample`."""
        return distribution.sample(self._numbers(module_id, distribution.noise_steps, rng))

    def noise(self, module_id: ModuleID, distribution: Distribution, rng: np.random.Generator) -> Array:
        """The random numbers of `sample`; see `Distribution.noise`."""
        return distribution.noise(self._numbers(module_id, distribution.noise_steps, rng))

    def _numbers(self, module_id: ModuleID, steps: int, rng: np.random.Generator) -> np.random.Generator:
        """`rng`, or if there are several steps a generator that begins as in each of them; `rng` draws its seed."""
        if steps == 1:
            return rng
        version, held = self.learner.weights_version, self.held.get(module_id)
        if held is None or held.rng is not rng or held.version != version or held.left == 0:
            held = self.held[module_id] = Held(rng, version, int(rng.integers(2**63)), steps)
        held.left -= 1
        return np.random.default_rng(held.seed)
