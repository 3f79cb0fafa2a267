"""Hooks of a listener: called on every plugin that implements them, never inside a compiled program.

    [options.entry_points]
    plugrad.plugins =
        mine = plugrad_mine:listener

A listener is loaded only when `config.plugins("mine")`, `--plugin` or `PLUGRAD_PLUGINS` names it.
"""

from collections.abc import Mapping
from typing import Any

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
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Called when `Algorithm.train()` is about to return these results.

        Args:
            algorithm: the Algorithm; `algorithm.ask_to_stop(reason)` ends `plugrad train` after this iteration.
            results: plain numbers by flat keys, such as `env_runners/episode_return_mean`.

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
