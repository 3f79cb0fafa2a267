"""What an Algorithm does with its policy: sample, evaluate, record."""

from collections.abc import Mapping
from contextlib import closing
from functools import cached_property, partial
from typing import Any

import gymnasium as gym

from plugrad.group.acting import ActingLearner
from plugrad.group.env_runners import RemoteEnvRunners
from plugrad.learner import Learner
from plugrad.learner.acting import env_module_id, make_policy
from plugrad.learner.connectors import initial_state
from plugrad.offline import EpisodeData
from plugrad.policy import Policy
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.rng_streams import stream
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.environments import get_env_observation_space, reward_threshold
from plugrad.sampling.evaluation import evaluate
from plugrad.sampling.recurrent_state import PolicyFunction
from plugrad.sampling.whole_episodes import sample_episodes
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


class ActingAlgorithm:
    """The part of an `Algorithm` that acts in environments.

    Attributes:
        config: the settings in use, with the seed.
        env_runner: samples `config.env`; None if the config `is_offline`.
    """

    config: Any
    env_runner: EnvRunner | RemoteEnvRunners | None
    _acting: ActingLearner
    _evaluator: EnvRunner | None

    @property
    def _learner(self) -> Learner:
        return self._acting.learner

    def _make_training_env_runner(self) -> EnvRunner | RemoteEnvRunners:
        if not self.config.num_env_runners:
            return self._make_env_runner(partial(self._act, explore=True), self.config.seed)
        return RemoteEnvRunners(self.config, lambda: self._acting.get_weights(self._module_id))

    @property
    def _module_id(self) -> ModuleID:
        return env_module_id(self._learner.module)

    @cached_property
    def _env_observation_space(self) -> gym.Space[Any] | None:
        """The space of one observation as the environment gives it; None without an environment."""
        if isinstance(self.env_runner, EnvRunner):
            return self.env_runner.env_observation_space
        if self.config.env is None:
            return None
        config = self.config
        return get_env_observation_space(config.env, config.env_config, frame_stack=config.frame_stack)

    @property
    def _normalizer(self) -> ObservationNormalizer | None:
        return None if self.env_runner is None else self.env_runner.normalizer

    def _make_env_runner(self, act: PolicyFunction, seed: int | None = None, **changes: Any) -> EnvRunner:
        config = self.config.env_runners(**changes) if changes else self.config
        module_id = self._module_id
        state = initial_state(self._learner.module[module_id])
        normalizer = None
        if (
            config.normalize_observations
        ):  # an older checkpoint's module reads rows of which all is normalised
            normalizer = ObservationNormalizer.of_space(config.observation_space)
        return EnvRunner(
            config=config,
            act=act,
            initial_state=state,
            seed=seed,
            normalizer=normalizer,
            module_id=module_id,
        )

    def _act(self, observations: Array, state: Any = None, **settings: Any) -> Mapping[str, Any]:
        learner = self._acting.get_synced()
        return learner.compute_actions(observations, module_id=self._module_id, state=state, **settings)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """The policy of a module: from observations of the environment to actions that its `step` takes.

        `predict` uses the weights, and the statistics of `normalize_observations`, of the moment when it is called.
        `plugrad.load_policy` gives the policy of a checkpoint.

        Args:
            module_id: the module; the default also means the only module.

        Raises:
            UnknownModuleError: there is no such module.
        """
        return make_policy(
            self._acting.get_synced,
            module_id,
            env_observation_space=self._env_observation_space,
            normalizer=self._normalizer,
        )

    @property
    def env_spec_reward_threshold(self) -> float | None:
        """The mean return at which the environment counts as solved, as its registration says; or None."""
        return reward_threshold(self.config.env)

    def evaluate(self, num_episodes: int | None = None, seed: int | None = None) -> dict[str, Any]:
        """Play whole episodes with the policy, without exploration.

        Training never plays these episodes: evaluation has a random stream of its own.

        Args:
            num_episodes: episodes; None: `config.evaluation_num_episodes`.
            seed: the same seed and policy give the same episodes. None: the config's seed.

        Returns:
            `episode_return_mean`, `episode_return_min`, `episode_return_max`, `episode_len_mean` in steps and
            `num_episodes`.

        Raises:
            ConfigError: the config names no environment.
        """
        if self._evaluator is None:
            self._evaluator = self._make_env_runner(partial(self._act, explore=False))
        if self._normalizer is not None:
            self._evaluator.normalizer = self._normalizer.frozen_copy()
        number = num_episodes or self.config.evaluation_num_episodes
        found = evaluate(self._evaluator, num_episodes=number, seed=self._env_seed("evaluation", seed))
        return {
            "episode_return_mean": sum(found.returns) / number,
            "episode_return_min": min(found.returns),
            "episode_return_max": max(found.returns),
            "episode_len_mean": sum(found.lengths) / number,
            "num_episodes": number,
        }

    def record(self, num_episodes: int, *, seed: int | None = None, explore: bool = False) -> EpisodeData:
        """Record whole episodes of the policy, for `plugrad.offline.save_episodes`.

        Observations are the environment's own, also where the policy sees them normalized. Neither training nor
        evaluation plays these episodes.

        Args:
            num_episodes: episodes, >= 1.
            seed: the same seed and policy give the same episodes. None: the config's seed.
            explore: act with exploration, as in training.

        Returns:
            The episodes and the spaces of the environment.

        Raises:
            ConfigError: the config names no environment.
        """
        env_seed = self._env_seed("recording", seed)
        # Actions have a stream of their own: recording changes nothing that training draws.
        rng = stream(env_seed, "actions") if explore else None
        act: PolicyFunction = partial(self._act, explore=explore, rng=rng)
        if self._normalizer is not None:
            act = partial(_normalized, act, self._normalizer)
        with closing(self._make_env_runner(act, normalize_observations=False)) as runner:
            episodes = sample_episodes(runner, num_episodes=num_episodes, seed=env_seed)
        spaces = {"observation_space": runner.observation_space, "action_space": runner.action_space}
        return EpisodeData(episodes=episodes, **spaces)

    def _env_seed(self, purpose: str, seed: int | None) -> int:
        """The seed of the environments for one purpose, made of the given seed or the config's."""
        chosen = self.config.seed if seed is None else seed
        return int(stream(chosen, "environments", purpose).integers(2**63))


def _normalized(
    act: PolicyFunction, normalizer: ObservationNormalizer, obs: Array, *state: Any, **mask: Array
) -> Any:
    return act(normalizer.normalize(obs), *state, **mask)
