"""The train loop: experience -> learner group -> evaluation -> checkpoint.

What one iteration does is a `plugrad.training.Training`'s business. Knows every room below and no framework; nothing
here is needed by who brings batches of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from operator import index
from time import perf_counter
from typing import Any, Literal, overload

import gymnasium as gym

from plugrad.config.serialize import encode
from plugrad.errors import ConfigError
from plugrad.group import LearnerGroup
from plugrad.group.env_runners import RemoteEnvRunners
from plugrad.learner import Learner, checkpointing
from plugrad.learner.acting import env_module_id, make_policy
from plugrad.learner.build import with_spaces
from plugrad.learner.checkpointing import Hyperparameters, resolve_hyperparameters
from plugrad.learner.components import generators_of
from plugrad.learner.connectors import initial_state
from plugrad.learner.expected_weights import expect_weights
from plugrad.offline import EpisodeData
from plugrad.policy import Policy
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.results import Results, flatten
from plugrad.rng_streams import fresh_seed, stream
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.environments import get_env_observation_space, reward_threshold
from plugrad.sampling.evaluation import evaluate
from plugrad.sampling.recurrent_state import PolicyFunction
from plugrad.sampling.whole_episodes import sample_episodes
from plugrad.training import ModuleResults, Training
from plugrad.types import COMPONENT_LEARNER, DEFAULT_MODULE_ID, Array, ModuleID

NUM_ENV_STEPS = "num_env_steps_sampled_lifetime"


class Algorithm:
    """Gets experience and trains on it, one iteration per `train()`.

    Args:
        config: with `env` set, unless it `is_offline`; without a seed it draws one, and keeps it in `config`.

    Attributes:
        env_runner: samples `config.env`; None if the config `is_offline`.
        run_directory: where `plugrad train` keeps the run, for listeners that write files; None elsewhere.
        stop_reason: what `ask_to_stop` was told; who calls `train()` in a loop should look at it.
    """

    def __init__(self, config: Any) -> None:
        config = config.debugging(seed=fresh_seed() % 2**31) if config.seed is None else config
        self.config = with_spaces(config)
        self.iteration = 0
        self.run_directory: str | None = None
        self.stop_reason: str | None = None
        self.learner_group = LearnerGroup(config=self.config)
        self._acting = self.learner_group.acting_learner
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
        return RemoteEnvRunners(self.config, lambda: self._acting.get_weights(self._module_id))

    @property
    def _module_id(self) -> ModuleID:
        """The module that acts in the environment."""
        return env_module_id(self._learner.module)

    @cached_property
    def _env_observation_space(self) -> gym.Space[Any] | None:
        """Of one observation as the environment gives it; None without an environment."""
        if isinstance(self.env_runner, EnvRunner):
            return self.env_runner.env_observation_space
        if self.config.env is None:
            return None
        return get_env_observation_space(self.config.env, self.config.env_config)

    @property
    def _normalizer(self) -> ObservationNormalizer | None:
        return None if self.env_runner is None else self.env_runner.normalizer

    def _make_env_runner(self, act: PolicyFunction, seed: int | None = None, **changes: Any) -> EnvRunner:
        config = self.config.env_runners(**changes) if changes else self.config
        module_id = self._module_id
        state = initial_state(self._learner.module[module_id])
        return EnvRunner(config=config, act=act, initial_state=state, seed=seed, module_id=module_id)

    def _explore(self, observations: Array, state: Any = None, **settings: Any) -> Mapping[str, Any]:
        return self._act(observations, state, explore=True, **settings)

    def _exploit(self, observations: Array, state: Any = None) -> Mapping[str, Any]:
        return self._act(observations, state, explore=False)

    def _act(self, observations: Array, state: Any, **settings: Any) -> Mapping[str, Any]:
        learner = self._acting.get_synced()
        return learner.compute_actions(observations, module_id=self._module_id, state=state, **settings)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """The way from an observation of the environment to an action that its `step` takes.

        It acts with the weights, and the statistics of `normalize_observations`, of the moment when `predict` is
        called; `plugrad.load_policy` gives those of a checkpoint.

        Args:
            module_id: whose policy; the default also means the only module.

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
        self._learner.notify("iteration_ended", algorithm=self, results=results)
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

    @overload
    def update(
        self,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        async_update: Literal[False] = False,
        **settings: Any,
    ) -> ModuleResults: ...
    @overload
    def update(
        self,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        async_update: Literal[True],
        **settings: Any,
    ) -> list[ModuleResults]: ...
    def update(
        self,
        batch: Any = None,
        *,
        episodes: Sequence[Any] | None = None,
        async_update: bool = False,
        **settings: Any,
    ) -> ModuleResults | list[ModuleResults]:
        """`LearnerGroup.update` at the present timestep: for training steps.

        Args:
            batch: see `Learner.update`.
            episodes: instead.
            async_update: do not wait.
            **settings: `minibatch_size`, `num_epochs`, `shuffle_batch_per_epoch`, `num_total_minibatches`.

        Returns:
            The results of one learner; all report the same. With `async_update` a list: for each earlier call that is
            done one dict per learner, as `LearnerGroup.update` returns it, `[]` if there is none.
        """
        timesteps = {NUM_ENV_STEPS: self._training.num_env_steps}
        with self._timed("learn"):
            results: Sequence[ModuleResults] = self.learner_group.update(
                batch, episodes=episodes, timesteps=timesteps, async_update=async_update, **settings
            )
        return list(results) if async_update else results[0]

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
        env_seed = self._env_seed("recording", seed)
        act: PolicyFunction = self._exploit
        if explore:  # drawn from a stream of its own: recording changes nothing that training draws
            act = partial(self._explore, rng=stream(env_seed, "actions"))
        if self._normalizer is not None:
            act = partial(_normalized, act, self._normalizer)
        runner = self._make_env_runner(act, normalize_observations=False)
        try:
            episodes = sample_episodes(runner, num_episodes=num_episodes, seed=env_seed)
        finally:
            runner.close()
        return EpisodeData(
            episodes=episodes, observation_space=runner.observation_space, action_space=runner.action_space
        )

    def _env_seed(self, purpose: str, seed: int | None) -> int:
        """A seed of environments for one purpose, from the given seed or the config's."""
        chosen = self.config.seed if seed is None else seed
        return int(stream(chosen, "environments", purpose).integers(2**63))

    def save_to_path(self, path: checkpointing.StrPath, *, keep: int = 2) -> str:
        """Write learner, env runner, training and counters as one checkpoint; returns `path`.

        A run that saves and goes on equals one that is resumed from there. Running episodes that cannot be saved
        (see `EnvRunner.get_state`) therefore end here.
        """
        state = {
            "learner": self.learner_group.get_state()[COMPONENT_LEARNER],
            "acting": self._acting.get_streams(),
            "env_runner": None if self.env_runner is None else self.env_runner.get_state(),
            "training": self._training.get_state(),
            "training_iteration": self.iteration,
        }
        checkpointing.save(path, state, self._metadata(), keep=keep)
        if self.env_runner is not None:
            self.env_runner.truncate()
        self._learner.notify("checkpoint_saved", path=str(path))
        return str(path)

    def _metadata(self) -> dict[str, Any]:
        metadata = checkpointing.metadata_of(self._learner, self.config, kind="algorithm")
        if self._env_observation_space is not None:
            with suppress(
                ConfigError
            ):  # a space of the user's own class: `load_policy` takes flat observations then
                metadata[checkpointing.ENV_OBSERVATION_SPACE] = encode(
                    self._env_observation_space, "observations"
                )
        return metadata

    def restore_from_path(
        self, path: checkpointing.StrPath, *, hyperparameters: Hyperparameters = "checkpoint"
    ) -> None:
        """Go on exactly where the checkpoint was saved; or nothing changes.

        Args:
            path: a checkpoint directory or one of its saves.
            hyperparameters: whose settings of training to go on with, those of the "checkpoint" or those of this
                algorithm's "config": see `Learner.restore_from_path`.
        """
        checkpoint = checkpointing.load(path, kind="algorithm")
        state = checkpoint.state
        with self._all_or_nothing(), checkpointing.as_checkpoint_error(checkpoint):
            iteration = index(state["training_iteration"])
            acted = state.get("acting", {})  # older checkpoints have none
            generators_of(acted)  # an error before anything is changed
            self._take(resolve_hyperparameters(self.config, hyperparameters, checkpoint.metadata["config"]))
            self._training.set_state(state.get("training", {}))  # older checkpoints have none
            if self.env_runner is not None:
                self.env_runner.set_state(state["env_runner"])
            self.learner_group.restore_from_path(checkpoint.path, hyperparameters=hyperparameters)
            self._acting.reset(acted)
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
        cls, path: checkpointing.StrPath, *, backend: str | None = None, env: Any = None
    ) -> "Algorithm":
        """An algorithm with the config and state of a checkpoint, on its backend or another.

        Args:
            path: a checkpoint directory or one of its saves.
            backend: such as "tf2" for a checkpoint of torch.
            env: needed for an environment that is no Gymnasium id; a checkpoint imports no code.
        """
        given = [] if env is None else ["env"]
        checkpoint = checkpointing.load(path, kind="algorithm")
        with checkpointing.as_checkpoint_error(checkpoint):
            config = checkpointing.config_of(checkpoint, backend=backend, given=given)
            with expect_weights(checkpoint.state.get("learner", {})):
                algorithm = cls(config if env is None else config.environment(env))
        algorithm.restore_from_path(path)
        return algorithm

    def stop(self) -> None:
        """Close environments and learners; calling it again does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._learner.notify("algorithm_stopped", algorithm=self)
        for runner in (self.env_runner, self._evaluator):
            if runner is not None:
                runner.close()
        self.learner_group.shutdown()


def _normalized(
    act: PolicyFunction, normalizer: ObservationNormalizer, observations: Array, *state: Any
) -> Mapping[str, Any]:
    return act(normalizer.normalize(observations), *state)
