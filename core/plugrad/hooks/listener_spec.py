"""Hooks of a listener: called on every plugin that implements them, never inside a compiled program.

    [options.entry_points]
    plugrad.plugins =
        mine = plugrad_mine:listener

A listener is loaded only when `config.plugins("mine")`, `--plugin` or `PLUGRAD_PLUGINS` names it.
"""

from collections.abc import Mapping
from typing import Any

from plugrad.contract import since
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec
from plugrad.types import ModuleID


class ListenerSpec:
    """Hook specifications of a listener; a listener may also wrap learner hooks with `@hookimpl(wrapper=True)`."""

    @hookspec
    def learner_built(self, learner: LearnerProtocol) -> None:
        """Called when a learner has its modules and optimizers.

        Args:
            learner: the learner.

        Example:
            @hookimpl
            def learner_built(learner):
                print(learner.module)
        """

    @hookspec
    def update_begun(self, learner: LearnerProtocol, timesteps: Mapping[str, int] | None) -> None:
        """Called when `update()` has checked its batch; nothing has changed yet.

        Args:
            learner: the learner.
            timesteps: the argument of `update`.

        Example:
            @hookimpl
            def update_begun(learner):
                start_clock()
        """

    @hookspec
    def update_ended(self, learner: LearnerProtocol, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Called when `update()` is about to return these results.

        Args:
            learner: the learner.
            results: `{module_id or ALL_MODULES: {name: float or numpy array}}`.

        Example:
            @hookimpl
            def update_ended(results):
                log(results)
        """

    @hookspec
    def module_added(self, learner: LearnerProtocol, module_id: ModuleID) -> None:
        """Called after `add_module()`.

        Args:
            learner: the learner.
            module_id: the id of the new module.

        Example:
            @hookimpl
            def module_added(module_id):
                print("new:", module_id)
        """

    @hookspec
    def module_removed(self, learner: LearnerProtocol, module_id: ModuleID) -> None:
        """Called after `remove_module()`.

        Args:
            learner: the learner.
            module_id: the id of the removed module.

        Example:
            @hookimpl
            def module_removed(module_id):
                print("gone:", module_id)
        """

    @hookspec
    @since(2)
    def algorithm_built(self, algorithm: Any) -> None:
        """Called when an Algorithm has its learners and its env runner.

        Args:
            algorithm: the Algorithm.

        Example:
            @hookimpl
            def algorithm_built(algorithm):
                print(algorithm.config)
        """

    @hookspec
    @since(2)
    def env_runner_built(self, learner: LearnerProtocol, env_runner: Any) -> None:
        """Called when an env runner has its environments, in the process where it steps them.

        Args:
            learner: the learner whose modules act.
            env_runner: the env runner; `env_runner.envs` are the environments, where these are objects of this process,
                and `env_runner.in_evaluation` says whether it plays for `Algorithm.evaluate`.

        Example:
            @hookimpl
            def env_runner_built(env_runner):
                print(env_runner.envs)
        """

    @hookspec
    @since(2)
    def episode_started(self, learner: LearnerProtocol, env_runner: Any, episode: Any) -> None:
        """Called when an environment was reset, in the process where it steps.

        Args:
            learner: the learner whose modules act.
            env_runner: `env_runner.log_metric(name, value)` logs a metric.
            episode: a `plugrad.sampling.watched_episodes.WatchedEpisode`: `observations`, `actions`, `rewards` and
                `infos` so far, `env`, and `custom_data`, a dict for listeners.

        Example:
            @hookimpl
            def episode_started(episode):
                episode.custom_data["heights"] = []
        """

    @hookspec
    @since(2)
    def episode_stepped(self, learner: LearnerProtocol, env_runner: Any, episode: Any) -> None:
        """Called when an environment has taken a step, also its last one.

        Args:
            learner: the learner whose modules act.
            env_runner: as in `episode_started`.
            episode: as in `episode_started`.

        Example:
            @hookimpl
            def episode_stepped(episode):
                episode.custom_data["heights"].append(episode.observations[-1][0])
        """

    @hookspec
    @since(2)
    def episode_ended(self, learner: LearnerProtocol, env_runner: Any, episode: Any) -> None:
        """Called after the last step of an episode, before the environment is reset.

        Args:
            learner: the learner whose modules act.
            env_runner: as in `episode_started`.
            episode: as in `episode_started`; `episode.terminated` and `episode.truncated` say how it ended.

        Example:
            @hookimpl
            def episode_ended(env_runner, episode):
                env_runner.log_metric("highest", max(episode.custom_data["heights"]), reduce="max")
        """

    @hookspec
    @since(2)
    def sample_ended(self, learner: LearnerProtocol, env_runner: Any, episodes: Any) -> None:
        """Called when an env runner has a sample, in the process where it steps.

        Args:
            learner: the learner whose modules act.
            env_runner: as in `episode_started`.
            episodes: what `sample()` is about to return: whole episodes and chunks.

        Example:
            @hookimpl
            def sample_ended(env_runner, episodes):
                env_runner.log_metric("chunks", len(episodes))
        """

    @hookspec
    @since(2)
    def evaluation_begun(self, algorithm: Any) -> None:
        """Called when `Algorithm.evaluate()` begins.

        Args:
            algorithm: the Algorithm.

        Example:
            @hookimpl
            def evaluation_begun():
                start_clock()
        """

    @hookspec
    @since(2)
    def evaluation_ended(self, algorithm: Any, results: dict[str, Any]) -> None:
        """Called when `Algorithm.evaluate()` is about to return these results.

        Args:
            algorithm: the Algorithm.
            results: such as `episode_return_mean`; what a listener adds is returned, too.

        Example:
            @hookimpl
            def evaluation_ended(results):
                log(results)
        """

    @hookspec
    def iteration_ended(self, algorithm: Any, results: dict[str, Any]) -> None:
        """Called when `Algorithm.train()` is about to return these results.

        Args:
            algorithm: the Algorithm; `algorithm.ask_to_stop(reason)` ends `plugrad train` after this iteration.
            results: plain numbers by flat keys, such as `env_runners/episode_return_mean`; what a listener adds is
                returned, too.

        Example:
            @hookimpl
            def iteration_ended(algorithm, results):
                if results["time/iteration"] > 60:
                    algorithm.ask_to_stop("an iteration took more than a minute")
        """

    @hookspec
    def algorithm_stopped(self, algorithm: Any) -> None:
        """Called at the first `Algorithm.stop()`, while environments and learners still exist.

        Args:
            algorithm: the Algorithm.

        Example:
            @hookimpl
            def algorithm_stopped():
                close_log()
        """

    @hookspec
    def checkpoint_saved(self, learner: LearnerProtocol, path: str) -> None:
        """Called when a checkpoint is complete on disk.

        Args:
            learner: the learner.
            path: its directory.

        Example:
            @hookimpl
            def checkpoint_saved(path):
                upload(path)
        """

    @hookspec
    def checkpoint_restored(self, learner: LearnerProtocol, path: str) -> None:
        """Called when the state of a checkpoint was restored.

        Args:
            learner: the learner.
            path: the path that was given.

        Example:
            @hookimpl
            def checkpoint_restored(path):
                print("back at", path)
        """
