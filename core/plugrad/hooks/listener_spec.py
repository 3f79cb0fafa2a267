"""What a listener can hear: called on every plugin that implements it, never inside a compiled program.

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
    """Hook specifications of a listener; it may also wrap any other hook with `@hookimpl(wrapper=True)`."""

    @hookspec
    def learner_built(self, learner: LearnerProtocol) -> None:
        """A learner has its modules and optimizers.

        @hookimpl
        def learner_built(learner):
            print(learner.module)
        """

    @hookspec
    def update_begun(self, learner: LearnerProtocol, timesteps: Mapping[str, int] | None) -> None:
        """`update()` was called with a good batch; nothing has changed yet.

        @hookimpl
        def update_begun(learner):
            start_clock()
        """

    @hookspec
    def update_ended(self, learner: LearnerProtocol, results: Mapping[str, Mapping[str, Any]]) -> None:
        """`update()` is about to return these results: plain floats and numpy arrays.

        @hookimpl
        def update_ended(results):
            log(results)
        """

    @hookspec
    def module_added(self, learner: LearnerProtocol, module_id: ModuleID) -> None:
        """`add_module()` is done.

        @hookimpl
        def module_added(module_id):
            print("new:", module_id)
        """

    @hookspec
    def module_removed(self, learner: LearnerProtocol, module_id: ModuleID) -> None:
        """`remove_module()` is done.

        @hookimpl
        def module_removed(module_id):
            print("gone:", module_id)
        """

    @hookspec
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """`Algorithm.train()` is about to return these results, by flat keys; `algorithm.ask_to_stop(reason)` works.

        @hookimpl
        def iteration_ended(algorithm, results):
            if results["time/iteration"] > 60:
                algorithm.ask_to_stop("an iteration took more than a minute")
        """

    @hookspec
    def algorithm_stopped(self, algorithm: Any) -> None:
        """`Algorithm.stop()` was called for the first time; environments and learners are still there.

        @hookimpl
        def algorithm_stopped():
            close_log()
        """

    @hookspec
    def checkpoint_saved(self, learner: LearnerProtocol, path: str) -> None:
        """A checkpoint is complete on disk.

        @hookimpl
        def checkpoint_saved(path):
            upload(path)
        """

    @hookspec
    def checkpoint_restored(self, learner: LearnerProtocol, path: str) -> None:
        """The learner has exactly the state of this checkpoint.

        @hookimpl
        def checkpoint_restored(path):
            print("back at", path)
        """
