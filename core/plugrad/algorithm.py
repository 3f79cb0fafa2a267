"""The train loop: env runner -> learner group -> evaluation -> checkpoint.

Knows every room below and no framework; nothing here is needed by who brings batches of their own.
"""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import gymnasium as gym

from plugrad.group import LearnerGroup
from plugrad.group.learner_group import the_learner
from plugrad.learner import disk
from plugrad.learner.build import with_spaces
from plugrad.results import Results, flatten
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.evaluation import evaluate
from plugrad.streams import fresh_seed
from plugrad.types import Array

NUM_ENV_STEPS = "num_env_steps_sampled_lifetime"


class Algorithm:
    """Samples an environment and trains on it, one iteration per `train()`.

    Args:
        config: with `env` set; without a seed it draws one, and keeps it in `config`.
    """

    def __init__(self, config: Any) -> None:
        config = config.debugging(seed=fresh_seed() % 2**31) if config.seed is None else config
        self.config = with_spaces(config)
        self.iteration = 0
        self.learner_group = LearnerGroup(config=self.config)
        self._learner = the_learner(self.learner_group)
        self._runner = EnvRunner(config=self.config, act=self._explore, seed=self.config.seed)
        self._evaluator: EnvRunner | None = None

    def _explore(self, observations: Array) -> Mapping[str, Array]:
        return self._learner.compute_actions(observations)

    def _exploit(self, observations: Array) -> Mapping[str, Array]:
        return self._learner.compute_actions(observations, explore=False)

    @property
    def env_spec_reward_threshold(self) -> float | None:
        """The mean return at which the environment counts as solved, if it says so."""
        env = self.config.env
        spec = gym.envs.registration.registry.get(env) if isinstance(env, str) else None
        return None if spec is None else spec.reward_threshold

    def train(self) -> Results:
        """Sample one batch, update once, evaluate if it is time.

        Returns:
            Flat keys: `env_runners/episode_return_mean`, `num_env_steps_sampled_lifetime`,
            `learners/<module>/<key>`, `time/<stage>` in seconds, `evaluation/*`, `training_iteration`.
        """
        start = perf_counter()
        episodes = self._runner.sample()
        sampled = perf_counter()
        timesteps = {NUM_ENV_STEPS: self._runner.total_steps}
        learned = self.learner_group.update(episodes=episodes, timesteps=timesteps)[0]
        updated = perf_counter()
        self.iteration += 1
        results = Results({"training_iteration": self.iteration, NUM_ENV_STEPS: self._runner.total_steps})
        results.update(flatten(self._runner.get_metrics(), "env_runners"))
        results.update(flatten(learned, "learners"))
        results.update({"time/sample": sampled - start, "time/learn": updated - sampled})
        interval = self.config.evaluation_interval
        if interval and self.iteration % interval == 0:
            results.update(flatten(self.evaluate(), "evaluation"))
        results["time/iteration"] = perf_counter() - start
        return results

    def evaluate(self, num_episodes: int | None = None, seed: int | None = None) -> dict[str, Any]:
        """Returns of whole episodes of the greedy policy.

        Args:
            num_episodes: default `config.evaluation_num_episodes`.
            seed: of the environments; default: the config's, so that evaluations are comparable.
        """
        if self._evaluator is None:
            self._evaluator = EnvRunner(config=self.config, act=self._exploit)
        if self._runner.normalizer is not None:
            self._evaluator.normalizer = self._runner.normalizer.frozen_copy()
        number = num_episodes or self.config.evaluation_num_episodes
        found = evaluate(
            self._evaluator, num_episodes=number, seed=self.config.seed if seed is None else seed
        )
        return {
            "episode_return_mean": sum(found.returns) / number,
            "episode_return_min": min(found.returns),
            "episode_return_max": max(found.returns),
            "episode_len_mean": sum(found.lengths) / number,
            "num_episodes": number,
        }

    def save_to_path(self, path: disk.StrPath, *, keep: int = 2) -> str:
        """Write learner, env runner and counters as one checkpoint; returns `path`.

        A run that saves and goes on equals one that is resumed from there. Running episodes that cannot be saved
        (see `EnvRunner.get_state`) therefore end here.
        """
        state = {
            "learner": self._learner.get_state(),
            "env_runner": self._runner.get_state(),
            "training_iteration": self.iteration,
        }
        disk.save(path, state, self.config, list(self._learner.module), kind="algorithm", keep=keep)
        self._runner.cut()
        return str(path)

    def restore_from_path(self, path: disk.StrPath) -> None:
        """Go on exactly where the checkpoint was saved."""
        state = disk.load(path, kind="algorithm").state
        self._learner.set_state(state["learner"])
        self._runner.set_state(state["env_runner"])
        self.iteration = state["training_iteration"]

    @classmethod
    def from_checkpoint(cls, path: disk.StrPath, *, backend: str | None = None) -> "Algorithm":
        """An algorithm with the config and state of a checkpoint, on its backend or another."""
        algorithm = cls(disk.config_of(disk.load(path, kind="algorithm"), backend=backend))
        algorithm.restore_from_path(path)
        return algorithm

    def stop(self) -> None:
        """Close environments and learners; calling it again does nothing."""
        self._runner.close()
        if self._evaluator is not None:
            self._evaluator.close()
        self.learner_group.shutdown()
