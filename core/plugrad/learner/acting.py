"""The Learner's methods that act: what a simulator of your own needs to make a batch.

How a module acts says `plugrad.learner.inference`. Knows no framework.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.episodes import SingleAgentEpisode
from plugrad.learner.inference import Actor
from plugrad.learner.sequences import values_of_episodes
from plugrad.rl_module import MultiRLModule
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class ActingMethods:
    """Actions and values of a Learner's modules, in numpy."""

    module: MultiRLModule
    _actor: Actor

    def _check_is_built(self, error: bool = True) -> bool:
        raise NotImplementedError

    def stream(self, *names: str) -> np.random.Generator:
        """This learner's own random generator of these names."""
        raise NotImplementedError

    def compute_actions(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        explore: bool = True,
        state: Mapping[str, Array] | None = None,
    ) -> dict[str, Any]:
        """Act on a batch of observations: what a simulator of your own needs to make a batch.

        Args:
            obs: [B, ...], as the module's observation space.
            module_id: who acts.
            explore: sample; else the mode of the distribution.
            state: of a stateful module, `{name: [B, ...]}`: `state_out` of the last call; None where episodes begin.

        Returns:
            Numpy columns `actions`, `action_logp` [B], `action_dist_inputs` and, while exploring, `vf_preds` [B];
            of a stateful module also `state_out`, `{name: [B, ...]}`.

        Raises:
            BatchError: observations or state of another shape than the module's.
        """
        self._check_is_built()
        _ = self.module[module_id]  # an unknown id is an error before it has a random stream
        rng = self.stream(module_id, "actions")
        return self._actor.compute_actions(np.asarray(obs), module_id, explore, rng, state)

    def compute_values(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        state: Mapping[str, Array] | None = None,
    ) -> Array:
        """State values, float32 [B], of observations [B, ...]; of a stateful module [B, T] of sequences [B, T, ...].

        Args:
            obs: the observations.
            module_id: whose values.
            state: that the sequences begin with, `{name: [B, ...]}`; None: that of the start of an episode.
        """
        self._check_is_built()
        return self._actor.compute_values(np.asarray(obs), module_id, state)

    def compute_values_of_episodes(
        self, episodes: Sequence[SingleAgentEpisode], *, module_id: ModuleID = DEFAULT_MODULE_ID
    ) -> Array:
        """State values, float32 [B + E], of all observations of E episodes with B steps, each in its recorded state."""
        self._check_is_built()
        return values_of_episodes(self, module_id, episodes)
