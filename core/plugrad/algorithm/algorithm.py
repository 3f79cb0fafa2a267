"""`Algorithm`: samples experience, trains on it, evaluates and saves.

A `plugrad.training.Training` decides what one iteration does.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from operator import index
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, overload

from plugrad.algorithm.modules import ChangingAlgorithm
from plugrad.algorithm.sample_requests import RequestingAlgorithm
from plugrad.algorithm.starting import StartingAlgorithm
from plugrad.checkpoint import Checkpoint
from plugrad.config.serialize import encode
from plugrad.deprecation import unknown_attribute
from plugrad.env_runners.remote_env_runners import RemoteEnvRunners
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.group import LearnerGroup
from plugrad.learner.acting.env_runner_policies import AnyEnvRunner
from plugrad.learner.modules.build import with_spaces
from plugrad.learner.modules.users_classes import warn_of_far_bounds
from plugrad.learner.state.checkpoint import (
    ENV_OBSERVATION_SPACE,
    ENV_OBSERVATION_SPACES,
    Hyperparameters,
    as_checkpoint_error,
    check_spaces,
    load_state,
    with_hyperparameters_of,
)
from plugrad.learner.state.components import generators_of
from plugrad.learner.state.state import metadata_of, save_state
from plugrad.learner.state.untrusted import config_to_build, with_bounds_of_env
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.offline import EpisodeRecorder
from plugrad.results import Results, flatten
from plugrad.rng_streams import fresh_seed
from plugrad.sampling.logged_metrics import add_logged
from plugrad.sampling.tensor_env_runner import TensorEnvRunner
from plugrad.training import ModuleResults, Training
from plugrad.types import COMPONENT_LEARNER, StrPath

NUM_ENV_STEPS = "num_env_steps_sampled_lifetime"
PARTS = {"learner", "acting", "env_runner", "recorder", "training", "training_iteration"}
"""The parts of an Algorithm's state in a checkpoint."""


class Algorithm(RequestingAlgorithm, ChangingAlgorithm, StartingAlgorithm):
    """Samples experience and trains on it, one iteration per `train()`.

        algorithm = PPOConfig().environment("CartPole-v1").build_algo()
        results = algorithm.train()
        algorithm.save_to_path("checkpoints")
        algorithm.stop()

    Args:
        config: an `AlgorithmConfig` with `env` set, unless it `is_offline`. If it has no seed, one is drawn.

    Attributes:
        config: the settings in use, with the seed.
        env_runner: samples `config.env`; None if the config `is_offline`.
        iteration: iterations so far, including those before a restore.
        learner_group: the LearnerGroup that trains.
        run_directory: where `plugrad train` keeps the run, for listeners that write files; None elsewhere.
        stop_reason: the argument of `ask_to_stop`, or None. Your own loop should end when it is set.
    """

    if not TYPE_CHECKING:  # a type checker refuses attributes that do not exist

        def __getattr__(self, name: str) -> Any:
            return unknown_attribute(self, "Algorithm", name)

    def __init__(self, config: Any) -> None:
        config = config.debugging(seed=fresh_seed() % 2**31) if config.seed is None else config
        self.config = with_spaces(config)
        self.iteration = 0
        self.run_directory: str | None = None
        self.stop_reason: str | None = None
        self._evaluator: AnyEnvRunner | None = None
        self._recorder: EpisodeRecorder | None = None
        self._is_stopped = False
        self._seconds: dict[str, float] = {}
        with ExitStack() as started:  # whatever was started ends if the rest fails
            self.learner_group = LearnerGroup(config=self.config)
            started.callback(self.learner_group.shutdown)
            self._acting = self.learner_group.acting_learner
            training: type[Training] = self._learner._provide("get_training_class")
            training.check_config(self.config)
            self.env_runner = None if config.is_offline else self._make_training_env_runner()
            if self.env_runner is not None:
                started.callback(self.env_runner.close)
            self._begin(training)
            self._learner.notify("algorithm_built", algorithm=self)
            started.pop_all()

    def _begin(self, training: type[Training]) -> None:
        for module_id in () if self.config.is_offline else self._acting_module_ids:
            warn_of_far_bounds(self._learner.module[module_id])
        if self.config.evaluation_interval is not None and self._evaluation_config.env is not None:
            self._warn_of_no_time_limit()
        if self.config.output is not None:
            self.record_training(self.config.output)
        self._training = training(self)

    def train(self) -> Results:
        """Run one iteration: the algorithm's training step, and evaluation every `evaluation_interval` iterations.

        `min_sample_timesteps_per_iteration` repeats the training step until that many environment steps are sampled.
        The learners' results are those of the last update.

        Returns:
            Results by flat keys, such as `env_runners/episode_return_mean`, `num_env_steps_sampled_lifetime`,
            `learners/<module_id>/<key>`, `evaluation/episode_return_mean`, `training_iteration`, and
            `time/<stage>` in seconds.
        """
        start = perf_counter()
        self._seconds = {"sample": 0.0, "learn": 0.0}
        learned = self._run_training_steps()
        self.iteration += 1
        results = Results({"training_iteration": self.iteration, NUM_ENV_STEPS: self._training.num_env_steps})
        if self.env_runner is not None:
            results.update(flatten(self.env_runner.get_metrics(), "env_runners"))
            add_logged(results, flatten(self.env_runner.logged.take(), "env_runners"))
        results.update(flatten(learned, "learners"))
        results.update(self._training.get_metrics())
        results.update(flatten(self._seconds, "time"))
        interval = self.config.evaluation_interval
        if interval and self._evaluation_config.env is not None and self.iteration % interval == 0:
            results.update(flatten(self.evaluate(), "evaluation"))
        results["time/iteration"] = perf_counter() - start
        self._learner.notify("iteration_ended", algorithm=self, results=results)
        return results

    def _run_training_steps(self) -> ModuleResults:
        """Run the training steps of one iteration; returns the results of the last update."""
        end = self._training.num_env_steps + self.config.min_sample_timesteps_per_iteration
        learned = self._training.training_step()
        while self._training.num_env_steps < end and self.stop_reason is None:
            learned = self._training.training_step() or learned
        return learned

    def sample(self, num_steps_per_env: int | None = None, *, random_actions: bool = False) -> list[Any]:
        """Sample episodes; see `BaseEnvRunner.sample`.

        Args:
            num_steps_per_env: steps of each environment, >= 1; None: as the config says.
            random_actions: draw actions from the action space instead of the policy.

        Returns:
            Whole episodes and chunks.

        Raises:
            ConfigError: the config `is_offline`.
        """
        if self.env_runner is None:
            raise ConfigError(f"{type(self.config).__name__} is offline: it has no env runner to sample with")
        with self._timed("sample"):
            episodes: list[Any] = self.env_runner.sample(num_steps_per_env, random_actions=random_actions)
            if self._recorder is not None:
                self._recorder.add(episodes)
            return episodes

    @overload
    def update(
        self, batch: Any = None, *, async_update: Literal[False] = False, **settings: Any
    ) -> ModuleResults: ...
    @overload
    def update(
        self, batch: Any = None, *, async_update: Literal[True], **settings: Any
    ) -> list[ModuleResults]: ...
    def update(
        self, batch: Any = None, *, async_update: bool = False, **settings: Any
    ) -> ModuleResults | list[ModuleResults]:
        """Update the learners at the current timestep; for training steps.

        Args:
            batch: `{module_id: {column: array [B, ...]}}`, see `Learner.update`.
            async_update: do not wait for this update.
            **settings: `episodes` instead of a batch; `minibatch_size`, `num_epochs`, `shuffle_batch_per_epoch` and
                `num_total_minibatches` instead of the config's.

        Returns:
            `{module_id: {name: value}}`; all learners report the same. With `async_update`, a list of the results of
            earlier calls that are done, one dict per learner and call.

        Raises:
            Exception: see `Learner.update` and `LearnerGroup.update`.
        """
        settings |= {"timesteps": {NUM_ENV_STEPS: self._training.num_env_steps}}
        with self._timed("learn"):
            results = self.learner_group.update(batch, async_update=async_update, **settings)
        return list(results) if async_update else results[0]

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self._seconds[stage] = self._seconds.get(stage, 0.0) + perf_counter() - start

    def ask_to_stop(self, reason: str) -> None:
        """Ask the loop that calls `train()`, such as `plugrad train`, to stop after this iteration.

        Args:
            reason: becomes `stop_reason`.
        """
        self.stop_reason = reason

    def record_training(self, path: str) -> None:
        """From now on write whole episodes that training samples to a data set, as the setting `output` does.

        Episodes that have begun before are left out.
        `save_to_path` and `stop` write what is still in memory. `plugrad.offline.load_episodes` reads the data set.

        Args:
            path: a directory; episodes that it already has are kept.

        Raises:
            ConfigError: the config `is_offline`, `normalize_observations` is set, or the environment has many agents.
        """
        config = self.config
        if self.env_runner is None:
            raise ConfigError(
                f"output={path!r}: {type(config).__name__} is offline: it samples nothing to record"
            )
        if self._is_multi_agent:
            raise ConfigError(
                f"output={path!r}: training of many agents is not recorded: record one module of the trained policies, "
                "by plugrad record --module or Algorithm.record(module_id=)"
            )
        if config.normalize_observations:
            raise ConfigError(
                f"output={path!r}: with normalize_observations=True episodes have no observations of the environment: "
                "record a trained policy, by plugrad record or Algorithm.record"
            )
        self._recorder = EpisodeRecorder(
            path,
            observation_space=config.observation_space,
            action_space=config.action_space,
            max_rows_per_file=config.output_max_rows_per_file,
            max_rows=config.output_max_rows,
        )

    def save_to_path(self, path: StrPath, *, keep: int = 2) -> str:
        """Write learner, env runner, training and counters as one checkpoint.

        A run that saves and continues computes the same as a run that is restored from the save. So running episodes
        that cannot be saved (`EnvRunner.get_state`) end here.

        Args:
            path: a directory for this algorithm alone; each call adds a save to it.
            keep: how many saves to keep, including this one.

        Returns:
            `path`.

        Raises:
            CheckpointError: it cannot be written; earlier saves are unchanged.
        """
        if self._recorder is not None:
            self._recorder.flush()
        state = {
            "learner": self.learner_group.get_state()[COMPONENT_LEARNER],
            "acting": self._acting.get_streams(),
            "env_runner": self._recorded_statistics()
            if self.env_runner is None
            else self.env_runner.get_state(),
            "training": self._training.get_state(),
            "training_iteration": self.iteration,
        }
        if self._recorder is not None:
            state["recorder"] = self._recorder.get_state()
        save_state(path, state, self._metadata(), keep=keep)
        if self.env_runner is not None:
            self.env_runner.truncate()
        self._learner.notify("checkpoint_saved", path=str(path))
        return str(path)

    def _recorded_statistics(self) -> dict[str, Any] | None:
        """The statistics of an offline algorithm, as those of an env runner are saved; None without them."""
        states = {module_id: each.get_state() for module_id, each in self._normalizers.items()}
        if self._is_multi_agent:
            return {"normalizers": states} if states else None
        return {"normalizer": next(iter(states.values()))} if states else None

    def _metadata(self) -> dict[str, Any]:
        metadata = metadata_of(self._learner, self.config, kind="algorithm")
        with suppress(ConfigError):  # a user's own space class: `load_policy` takes flat observations then
            spaces = {
                module_id: encode(space, "observations")
                for module_id, space in self._env_observation_spaces.items()
            }
            if self._is_multi_agent:
                metadata[ENV_OBSERVATION_SPACES] = spaces
            elif spaces:
                metadata[ENV_OBSERVATION_SPACE] = next(iter(spaces.values()))
        return metadata

    def begin_new_episodes(self) -> None:
        """Drop running episodes: training goes on with other ones, with seeds and random actions not used before.

        So a run leaves an episode whose replay leads to the same error of a simulator again.

        Raises:
            ConfigError: the config `is_offline`.
        """
        self._sampler_of_new_episodes().begin_new_episodes()
        for generator in self._acting.learner.streams.values():
            bits = generator.bit_generator
            bits.state = bits.jumped().state  # type: ignore[attr-defined]

    def _sampler_of_new_episodes(self) -> AnyEnvRunner | TensorEnvRunner | RemoteEnvRunners:
        if self.env_runner is None:
            raise ConfigError(f"{type(self.config).__name__} is offline: it has no episodes to begin anew")
        return self.env_runner

    def restore_from_path(
        self,
        path: StrPath,
        *,
        component: str | None = None,
        hyperparameters: Hyperparameters = "checkpoint",
        new_episodes: bool = False,
        allow_other_bounds: bool = False,
    ) -> None:
        """Restore a checkpoint of an Algorithm, or a part of its learner. If that fails, nothing changes.

        Args:
            path: a checkpoint directory, whose newest save is read, or one of its saves.
            component: a component of the learner's state, as in `Learner.restore_from_path`, to start from another
                run's weights: "rl_module" also takes the statistics of `normalize_observations` of the modules and of
                `normalize_rewards`, and their target networks become equal to the weights. RLlib's path of it,
                "learner_group/learner/rl_module", is the same. None: all.
            hyperparameters: which `.training(...)` settings to use from now on: those of the "checkpoint", or those of
                this algorithm's "config".
            new_episodes: do not replay the episodes that ran when the checkpoint was saved: see `begin_new_episodes`.
                The environments may then have other settings and wrappers than those of the checkpoint.
            allow_other_bounds: accept a checkpoint whose actions or images have other bounds, to train on in a wider or
                narrower space; so does the setting `.environment(..., allow_other_bounds=True)`.

        Raises:
            CheckpointError: there is no checkpoint, or it is damaged.
            ConfigError: `new_episodes`, and the config `is_offline`.
            SpaceMismatchError: it was trained in other spaces.
            RestoreMismatchError: it does not fit this algorithm; lists all differences.
        """
        if component is not None:
            self._restore_component(path, component)
            return
        if new_episodes:
            self._sampler_of_new_episodes()
        checkpoint = load_state(path, kind="algorithm")
        state = checkpoint.state
        _check_parts(checkpoint)
        with as_checkpoint_error(checkpoint):
            allowed = allow_other_bounds or self.config.allow_other_bounds
            check_spaces(self.config, checkpoint, self._env_observation_spaces, allow_other_bounds=allowed)
        with self._all_or_nothing(), as_checkpoint_error(checkpoint):
            iteration = index(state["training_iteration"])
            acted = state.get("acting", {})  # older checkpoints have none
            generators_of(acted)  # an error before anything is changed
            theirs = with_hyperparameters_of(self.config, checkpoint, hyperparameters)
            if self.env_runner is None:  # recorded rows are normalised by what the weights know
                super().set_statistics(
                    self._statistics_in(checkpoint, checkpoint, list(self._learner.module))
                )
            self._use_config(self.config if hyperparameters == "config" else theirs)
            self._training.set_state(state.get("training", {}))  # older checkpoints have none
            if self._recorder is not None and "recorder" in state:
                self._recorder = self._recorder.resumed(state["recorder"], new_episodes=new_episodes)
            if self.env_runner is not None:
                running: dict[str, Any] = {"running": None, "runners": {}} if new_episodes else {}
                self.env_runner.set_state({**state["env_runner"], **running})
            self.learner_group._restore(checkpoint.path, hyperparameters=hyperparameters)
            self._acting.reset(acted)
            if new_episodes:
                self.begin_new_episodes()
        self.iteration = iteration

    def set_statistics(self, statistics: Mapping[str, Any]) -> None:
        """See `ActingAlgorithm.set_statistics`. Recorded episodes are normalised anew, by these."""
        super().set_statistics(statistics)
        if self.env_runner is None and statistics.get("observations"):
            state = self._training.get_state()
            self._use_config(self.config)
            self._training.set_state(state)

    def _use_config(self, config: Any) -> None:
        self.config = config
        self._training = type(self._training)(self)
        if self.env_runner is not None:
            self.env_runner.config = config

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A block that restores a checkpoint: an error leaves all parts as they were. The learners come last."""
        config, training, recorder = self.config, self._training, self._recorder
        statistics = self.get_statistics()
        runner = None if self.env_runner is None else self.env_runner.get_state()
        try:
            yield
        except BaseException:
            if self.env_runner is None:
                super().set_statistics(statistics)
            self._use_config(config)
            self._training, self._recorder = training, recorder
            if self.env_runner is not None and runner is not None:
                self.env_runner.set_state(runner)
            raise

    @classmethod
    def from_checkpoint(
        cls,
        path: StrPath,
        *,
        backend: str | None = None,
        env: Any = None,
        env_config: dict[str, Any] | None = None,
        evaluation_env: Any = None,
        evaluation_env_config: dict[str, Any] | None = None,
        agent_to_module: Any = None,
        env_wrappers: Any = None,
        module_spec: RLModuleSpec | MultiRLModuleSpec | None = None,
        new_episodes: bool = False,
        allow_other_bounds: bool = False,
    ) -> "Algorithm":
        """Build an algorithm with the config and the state of a checkpoint.

        Args:
            path: a checkpoint directory, whose newest save is read, or one of its saves.
            backend: another backend than the checkpoint's, such as "tf2" for a checkpoint of torch.
            env: the environment, if the checkpoint's is not a Gymnasium id: a checkpoint imports no code.
            env_config: arguments of the environment in place of the checkpoint's, which `env` gets too.
            evaluation_env: the environment of evaluations, if the checkpoint has one that is not a Gymnasium id.
            evaluation_env_config: its arguments in place of the checkpoint's.
            agent_to_module: which agents use which modules, if the checkpoint's is a function.
            env_wrappers: the wrappers of the environment, if the checkpoint's are not Gymnasium's own.
            module_spec: the modules, if the checkpoint's have your own classes: as in
                `config.rl_module(rl_module_spec=...)`.
            new_episodes: see `restore_from_path`.
            allow_other_bounds: accept an `env` whose actions or images have other bounds than the checkpoint's, and use
                the environment's.

        Returns:
            The algorithm.

        Raises:
            CheckpointError: there is no checkpoint, or it is damaged.
            ConfigError: its settings name code, which you must pass as an argument.
            RestoreMismatchError: the state does not fit the modules.
            SpaceMismatchError: the environment has other spaces than the checkpoint's.
        """
        instead = {
            "env": env,
            "env_config": env_config,
            "evaluation_env": evaluation_env,
            "evaluation_env_config": evaluation_env_config,
            "agent_to_module": agent_to_module,
            "env_wrappers": env_wrappers,
            "rl_module_spec": module_spec,
        }
        given = {name: value for name, value in instead.items() if value is not None}
        with config_to_build(path, kind="algorithm", backend=backend, given=given) as config:
            config = config.changed(**given)
            # The checkpoint's setting speaks of its own environment.
            if env is not None or allow_other_bounds:
                config = config.changed(allow_other_bounds=allow_other_bounds)
            if allow_other_bounds:
                config = with_bounds_of_env(config)
            algorithm = cls(config)
        with ExitStack() as built:
            built.callback(algorithm.stop)
            algorithm.restore_from_path(
                path, new_episodes=new_episodes, allow_other_bounds=allow_other_bounds
            )
            built.pop_all()
        return algorithm

    def stop(self) -> None:
        """Close environments and learners, also if a listener raises an error. Calling it again does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        with ExitStack() as parts:  # which ends the last one first
            parts.callback(self.learner_group.shutdown)
            for runner in (self._evaluator, self.env_runner):
                if runner is not None:
                    parts.callback(runner.close)
            parts.callback(self._learner.notify, "algorithm_stopped", algorithm=self)
            if self._recorder is not None:
                parts.callback(self._recorder.flush)


def _check_parts(checkpoint: Checkpoint) -> None:
    """Refuse a state with a part that no Algorithm saves."""
    if unexpected := sorted(checkpoint.state.keys() - PARTS):
        raise RestoreMismatchError(
            f"{checkpoint.path} has parts that an Algorithm has not: {', '.join(unexpected)[:400]}",
            unexpected=unexpected,
        )
