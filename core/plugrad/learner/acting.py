"""The Learner's methods that act: what a simulator of your own needs to make a batch.

How a module acts says `plugrad.learner.inference`. Knows no framework.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.learner.inference import Actor
from plugrad.learner.locking import locked
from plugrad.learner.policies import make_policy, warn_without_statistics
from plugrad.learner.sequences import values_of_episodes
from plugrad.policy import Policy
from plugrad.rl_module import MultiRLModule
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class ActingMethods:
    """Actions and values of a Learner's modules, in numpy."""

    config: Any
    module: MultiRLModule
    _actor: Actor

    _lock: Any

    def _check_is_built(self, error: bool = True) -> bool:
        raise NotImplementedError

    def stream(self, *names: str) -> np.random.Generator:
        """This learner's own random generator of these names."""
        raise NotImplementedError

    @locked
    def compute_actions(
        self,
        obs: Array,
        *,
        module_id: ModuleID = DEFAULT_MODULE_ID,
        explore: bool = True,
        state: Mapping[str, Array] | None = None,
        rng: np.random.Generator | None = None,
    ) -> dict[str, Any]:
        """Act on a batch of observations: what a simulator of your own needs to make a batch to train on.

        The actions are the distribution's own, which the loss needs. An environment may refuse them: those of a Box
        are not clipped to its bounds, those of `Discrete(n, start=s)` count from 0. `get_policy().predict` gives
        actions for `env.step`.

        Args:
            obs: an array [B, ...] of rows of the module's observation space: flattened, and normalised if the module
                learns from normalised ones.
            module_id: who acts.
            explore: sample; else the mode of the distribution.
            state: of a stateful module, `{name: [B, ...]}`: `state_out` of the last call; None where episodes begin.
            rng: where sampling gets its random numbers from; None: the learner's stream "<module id>/actions".

        Returns:
            Numpy columns `actions`, `action_logp` [B], `action_dist_inputs` and, while exploring, `vf_preds` [B];
            of a stateful module also `state_out`, `{name: [B, ...]}`.

        Raises:
            BatchError: observations or state of another shape than the module's, or a dict or tuple of observations.
        """
        self._check_is_built()
        _ = self.module[module_id]  # an unknown id is an error before it has a random stream
        if isinstance(obs, Mapping | tuple):
            raise _structured(module_id, self.module[module_id].observation_space, obs)
        rng = self.stream(module_id, "actions") if rng is None else rng
        return self._actor.compute_actions(np.asarray(obs), module_id, explore, rng, state)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """The way from an observation to an action that `env.step` takes, always with the weights of the moment.

        It takes observations as the module learns from them: a learner knows neither how an environment's were
        flattened nor the statistics of `normalize_observations`, of which it warns. `Algorithm.get_policy` knows both.

        Args:
            module_id: whose policy; the default also means the only module.

        Raises:
            UnknownModuleError: there is no such module.
        """
        self._check_is_built()
        warn_without_statistics(self.config)
        return make_policy(lambda: self, module_id)

    @locked
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

    @locked
    def compute_values_of_episodes(
        self, episodes: Sequence[SingleAgentEpisode], *, module_id: ModuleID = DEFAULT_MODULE_ID
    ) -> Array:
        """State values, float32 [B + E], of all observations of E episodes with B steps, each in its recorded state."""
        self._check_is_built()
        return values_of_episodes(self, module_id, episodes)


def _structured(module_id: ModuleID, space: Any, obs: Any) -> BatchError:
    found = f"{type(obs).__name__} of {', '.join(map(str, obs)) if isinstance(obs, Mapping) else len(obs)}"
    return BatchError(
        f"module {module_id!r}, compute_actions: expected an array [B, ...] of rows of {space}; found {found}. "
        "gymnasium.spaces.flatten(space, observation) makes a row of one observation; "
        "Algorithm.get_policy().predict(observation) takes it as the environment gives it",
        module_id=module_id,
        column="obs",
        expected=f"an array of rows of {space}",
        found=found,
    )
