"""The train loop: experience -> learner group -> evaluation -> checkpoint.

What one iteration does is a `plugrad.training.Training`'s business. Knows every room below and no framework; nothing
here is needed by who brings batches of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import index
from time import perf_counter
from typing import Any

from plugrad.errors import ConfigError
from plugrad.group import LearnerGroup
from plugrad.group.acting import ActingLearner
from plugrad.group.env_runners import RemoteEnvRunners
from plugrad.learner import Learner, disk
from plugrad.learner.build import with_spaces
from plugrad.learner.hyperparameters import Hyperparameters, chosen
from plugrad.learner.sequences import initial_state
from plugrad.offline import EpisodeData
from plugrad.results import Results, flatten
from plugrad.sampling.carried_state import Act
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.environments import reward_threshold
from plugrad.sampling.evaluation import evaluate
from plugrad.sampling.normalization import ObservationNormalizer
from plugrad.sampling.whole_episodes import first_episodes
from plugrad.streams import fresh_seed, stream
from plugrad.training import ModuleResults, Training
from plugrad.types import DEFAULT_MODULE_ID, Array

NUM_ENV_STEPS = "num_env_steps_sampled_lifetime"


class Algorithm:
    """Gets experience and trains on it, one iteration per `train()`.

    Args:
        config: with `env` set, unless it `is_offline`; without a seed it draws one, and keeps it in `config`.

    Attributes:
        env_runner: samples `config.env`; None if the config `is_offline`.
        stop_reason: what `ask_to_stop` was told; who calls `train()` in a loop should look at it.
    """

    def __init__(self, config: Any) -> None:
        config = config.debugging(seed=fresh_seed() % 2**31) if config.seed is None else config
        self.config = with_spaces(config)
        self.iteration = 0
        self.stop_reason: str | None = None
        self.learner_group = LearnerGroup(config=self.config)
        self._acting = ActingLearner(self.learner_group)
        self.env_runner: EnvRunner | RemoteEnvRunners | None = None
        if not config.is_offline:
            self.env_runner = self._make_own_env_runner()
        self._evaluator: EnvRunner | None = None
        self._is_stopped = False
        self._seconds: dict[str, float] = {}
        self._training: Training = self._learner._provide("get_training_class")(self)

    @property
    def _learner(self) -> Learner:
        return self._acting.learner

    def _make_own_env_runner(self) -> EnvRunner | RemoteEnvRunners:
        if not self.config.num_env_runners:
            return self._make_env_runner(self._explore, self.config.seed)
        return RemoteEnvRunners(self.config, self._acting.weights)

    def _make_env_runner(self, act: Act, seed: int | None = None, **changes: Any) -> EnvRunner:
        config = self.config.env_runners(**changes) if changes else self.config
        state = initial_state(self._learner.module[DEFAULT_MODULE_ID])
        return EnvRunner(config=config, act=act, initial_state=state, seed=seed)

    def _explore(self, observations: Array, state: Any = None) -> Mapping[str, Any]:
        return self._acting.up_to_date().compute_actions(observations, state=state)

    def _exploit(self, observations: Array, state: Any = None) -> Mapping[str, Any]:
        return self._acting.up_to_date().compute_actions(observations, explore=False, state=state)

    @property
    def env_spec_reward_threshold(self) -> float | None:
        """The mean return at which the environment counts as solved, if it says so."""
        return reward_threshold(self.config.env)

    def train(self) -> Results:
        """One iteration: the algorithm's training step, then evaluation if it is time.

        Returns:
            Flat keys: `env_runners/episode_return_mean`, `num_env_steps_sampled_lifetime`,
            `learners/<module>/<key>`, `time/<stage>` in seconds, `evaluation/*`, `training_iteration`.
        """
        start = perf_counter()
        self._seconds = {"sample": 0.0, "learn": 0.0}
        learned = self._training.training_step()
        self.iteration += 1
        results = Results({"training_iteration": self.iteration, NUM_ENV_STEPS: self._training.num_env_steps})
        if self.env_runner is not None:
            results.update(flatten(self.env_runner.get_metrics(), "env_runners"))
        results.update(flatten(learned, "learners"))
        results.update(flatten(self._seconds, "time"))
        if self._is_time_to_evaluate():
            results.update(flatten(self.evaluate(), "evaluation"))
        results["time/iteration"] = perf_counter() - start
        self._learner.tell("iteration_ended", algorithm=self, results=results)
        return results

    def _is_time_to_evaluate(self) -> bool:
        interval = self.config.evaluation_interval
        return bool(interval and self.config.env is not None and self.iteration % interval == 0)

    def sample(self, num_steps_per_env: int | None = None) -> list[Any]:
        """Episodes from the environments, as `EnvRunner.sample` gives them: for training steps.

        Raises:
            ConfigError: the config `is_offline`.
        """
        if self.env_runner is None:
            raise ConfigError(f"{type(self.config).__name__} is offline: it has no env runner to sample with")
        with self._timed("sample"):
            return self.env_runner.sample(num_steps_per_env)

    def update(
        self, batch: Any = None, *, episodes: Sequence[Any] | None = None, **settings: Any
    ) -> ModuleResults:
        """`Learner.update` by the learner group, at the present timestep: for training steps."""
        timesteps = {NUM_ENV_STEPS: self._training.num_env_steps}
        with self._timed("learn"):
            results: ModuleResults = self.learner_group.update(
                batch, episodes=episodes, timesteps=timesteps, **settings
            )[0]
            self._acting.follow()
        return results

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self._seconds[stage] = self._seconds.get(stage, 0.0) + perf_counter() - start

    def ask_to_stop(self, reason: str) -> None:
        """Ask whoever trains in a loop, such as `plugrad train`, to stop after this iteration.

        Args:
            reason: a sentence part, such as "stopped early: no better mean return in 50 iterations".
        """
        self.stop_reason = reason

    def evaluate(self, num_episodes: int | None = None, seed: int | None = None) -> dict[str, Any]:
        """Returns of whole episodes of the greedy policy.

        Args:
            num_episodes: default `config.evaluation_num_episodes`.
            seed: the same seed and policy give the same episodes; default: the config's, so that evaluations are
                comparable. Training never plays these episodes: evaluation has a random stream of its own.

        Raises:
            ConfigError: the config names no environment.
        """
        if self._evaluator is None:
            self._evaluator = self._make_env_runner(self._exploit)
        if self.env_runner is not None and self.env_runner.normalizer is not None:
            self._evaluator.normalizer = self.env_runner.normalizer.frozen_copy()
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
        """Whole episodes of the policy, for `plugrad.offline.save_episodes`.

        Observations are the environment's own, also where the policy sees them normalised.

        Args:
            num_episodes: how many, >= 1.
            seed: the same seed and policy give the same episodes; default: the config's. Neither training nor
                evaluation plays these episodes.
            explore: act as while training, not greedily.

        Raises:
            ConfigError: the config names no environment.
        """
        act = self._explore if explore else self._exploit
        normalizer = None if self.env_runner is None else self.env_runner.normalizer
        if normalizer is not None:
            act = partial(_normalized, act, normalizer)
        runner = self._make_env_runner(act, normalize_observations=False)
        try:
            episodes = first_episodes(
                runner, num_episodes=num_episodes, seed=self._env_seed("recording", seed)
            )
        finally:
            runner.close()
        return EpisodeData(
            episodes=episodes, observation_space=runner.observation_space, action_space=runner.action_space
        )

    def _env_seed(self, purpose: str, seed: int | None) -> int:
        """A seed of environments for one purpose, from the given seed or the config's."""
        chosen = self.config.seed if seed is None else seed
        return int(stream(chosen, "environments", purpose).integers(2**63))

    def save_to_path(self, path: disk.StrPath, *, keep: int = 2) -> str:
        """Write learner, env runner, training and counters as one checkpoint; returns `path`.

        A run that saves and goes on equals one that is resumed from there. Running episodes that cannot be saved
        (see `EnvRunner.get_state`) therefore end here.
        """
        state = {
            "learner": self._acting.get_state(),
            "env_runner": None if self.env_runner is None else self.env_runner.get_state(),
            "training": self._training.get_state(),
            "training_iteration": self.iteration,
        }
        disk.save(path, state, disk.metadata_of(self._learner, self.config, kind="algorithm"), keep=keep)
        if self.env_runner is not None:
            self.env_runner.cut()
        self._learner.tell("checkpoint_saved", path=str(path))
        return str(path)

    def restore_from_path(
        self, path: disk.StrPath, *, hyperparameters: Hyperparameters = "checkpoint"
    ) -> None:
        """Go on exactly where the checkpoint was saved; or nothing changes.

        Args:
            path: a checkpoint directory or one of its saves.
            hyperparameters: whose settings of training to go on with, those of the "checkpoint" or those of this
                algorithm's "config": see `Learner.restore_from_path`.
        """
        checkpoint = disk.load(path, kind="algorithm")
        state = checkpoint.state
        with self._all_or_nothing(), disk.saying_what_does_not_fit(checkpoint):
            iteration = index(state["training_iteration"])
            self._take(chosen(self.config, hyperparameters, checkpoint.metadata["config"]))
            self._training.set_state(state.get("training", {}))  # older checkpoints have none
            if self.env_runner is not None:
                self.env_runner.set_state(state["env_runner"])
            self.learner_group.restore_from_path(checkpoint.path, hyperparameters=hyperparameters)
            self._acting.restored()
        self.iteration = iteration

    def _take(self, config: Any) -> None:
        self.config = config
        self._training = type(self._training)(self)
        if self.env_runner is not None:
            self.env_runner.config = config

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Put back what a restore has changed if a later part of it fails; the learners come last."""
        config, training = self.config, self._training
        runner = None if self.env_runner is None else self.env_runner.get_state()
        try:
            yield
        except BaseException:
            self._take(config)
            self._training = training
            if self.env_runner is not None and runner is not None:
                self.env_runner.set_state(runner)
            raise

    @classmethod
    def from_checkpoint(
        cls, path: disk.StrPath, *, backend: str | None = None, env: Any = None
    ) -> "Algorithm":
        """An algorithm with the config and state of a checkpoint, on its backend or another.

        Args:
            path: a checkpoint directory or one of its saves.
            backend: such as "tf2" for a checkpoint of torch.
            env: needed for an environment that is no Gymnasium id; a checkpoint imports no code.
        """
        given = [] if env is None else ["env"]
        checkpoint = disk.load(path, kind="algorithm")
        with disk.saying_what_does_not_fit(checkpoint):
            config = disk.config_of(checkpoint, backend=backend, given=given)
            algorithm = cls(config if env is None else config.environment(env))
        algorithm.restore_from_path(path)
        return algorithm

    def stop(self) -> None:
        """Close environments and learners; calling it again does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._learner.tell("algorithm_stopped", algorithm=self)
        for runner in (self.env_runner, self._evaluator):
            if runner is not None:
                runner.close()
        self.learner_group.shutdown()


def _normalized(
    act: Act, normalizer: ObservationNormalizer, observations: Array, *state: Any
) -> Mapping[str, Any]:
    return act(normalizer.normalize(observations), *state)
