"""The Learner's methods that take its state out and put it back: in memory, as weights alone, on disk.

What a state is says `plugrad.learner.state`; how it lies on disk, `plugrad.checkpoint`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from plugrad.checkpoint import Checkpoint
from plugrad.hooks.manager import Plugin
from plugrad.learner import disk
from plugrad.learner import state as state_of
from plugrad.learner.buffers import with_present_buffers
from plugrad.learner.components import Paths, check_whole, parts_in, pick, select
from plugrad.learner.hyperparameters import Hyperparameters, chosen, follow_schedules, log_differences
from plugrad.learner.locking import locked
from plugrad.learner.provenance import warn_of_differences
from plugrad.learner.undo import all_or_nothing
from plugrad.rl_module import MultiRLModule
from plugrad.types import Array, ModuleID


class RememberingMethods:
    """State of a Learner, whole or in part."""

    config: Any
    plugins: Sequence[Plugin]
    module: MultiRLModule
    weights_version: int

    def _configure(self, config: Any) -> None:
        raise NotImplementedError

    _lock: Any

    def _check_is_built(self, error: bool = True) -> bool:
        raise NotImplementedError

    def tell(self, hook: str, **arguments: Any) -> None:
        """Call a listener hook."""
        raise NotImplementedError

    @locked
    def get_state(
        self,
        components: Paths = None,
        *,
        not_components: Paths = None,
    ) -> dict[str, Any]:
        """The whole state, or some parts of it, as nested dicts of numpy copies and plain values.

        Args:
            components: of "rl_module", "optimizer", "targets", "coefficients", "counters", "streams"; or one
                module's or optimizer's part of the first four, such as "rl_module/p0" or
                "optimizer/p0_default_optimizer", which keeps its place: `{"rl_module": {"p0": {...}}}`. None: all.
            not_components: left out.

        Raises:
            ConfigError: there is no such component; lists those that there are.
        """
        self._check_is_built()
        return state_of.get_state(self, select(state_of.parts_of(self), components, not_components))

    @locked
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over what is in `state`, exactly, or nothing.

        Args:
            state: of `get_state`: whole, or a part of it by name; what it does not name stays as it is.

        Raises:
            RestoreMismatchError: lists all missing, unexpected and mis-shaped entries.
        """
        self._check_is_built()
        state_of.set_state(self, state)
        self.weights_version += 1

    def _get_optimizer_state(self) -> dict[str, Any]:
        """`{"<module id>_<optimizer name>": state}`: the component "optimizer" of `get_state`, which asks here."""
        return state_of.get_optimizers(self)

    def _set_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Take over the component "optimizer" of a state, or the optimizers that it names; `set_state` asks here.

        Raises:
            RestoreMismatchError: it does not fit; nothing was changed.
        """
        state_of.set_optimizers(self, state)

    @locked
    def get_weights(self) -> dict[ModuleID, dict[str, Array]]:
        """`{module_id: {name: numpy copy}}` of parameters and buffers, under the framework's own names."""
        return self.module.get_state()

    @locked
    def set_weights(self, weights: Mapping[ModuleID, Mapping[str, Array]]) -> None:
        """Load weights of `get_weights`. Buffers that are missing in them stay as they are; a warning names them."""
        self.module.set_state(with_present_buffers(self, weights))
        self.weights_version += 1

    def get_metadata(self) -> dict[str, Any]:
        """What a checkpoint says of itself: kind, backend, algorithm, module ids, plugins, the config as data."""
        return disk.metadata_of(self, self.config, kind="learner")

    @locked
    def save_to_path(self, path: disk.StrPath, *, keep: int = 2) -> str:
        """Write the whole state into the directory `path`, as its newest save; returns `path`.

        Raises:
            CheckpointError: the disk refused, or another process writes there; older saves are as they were.
        """
        disk.save(path, self.get_state(), self.get_metadata(), keep=keep)
        self.tell("checkpoint_saved", path=str(path))
        return str(path)

    @locked
    def restore_from_path(
        self,
        path: disk.StrPath,
        *,
        component: str | None = None,
        hyperparameters: Hyperparameters = "checkpoint",
    ) -> None:
        """Take over the state, or one part of it, of the newest save in `path`, or of `path/save-<n>`.

        Warns if the checkpoint was written with other plugins than those that are active.

        Args:
            path: a checkpoint directory, of a learner or an algorithm, or one of its saves.
            component: such as "rl_module", "rl_module/p0" or "optimizer/p0_default_optimizer"; None: all.
            hyperparameters: whose settings of training a whole state goes on with: those of the "checkpoint", or of
                this learner's own "config", learning rates and coefficients included. A difference is logged.

        Raises:
            CheckpointError: it cannot be read.
            ConfigError: the checkpoint has no such component; lists those that there are.
            RestoreMismatchError: it does not fit this learner; nothing was changed.
        """
        self._check_is_built()
        checkpoint = disk.load(path, kind="learner")
        state = pick(checkpoint.state, select(parts_in(checkpoint.state), component))
        warn_of_differences(checkpoint.path, checkpoint.metadata, self.plugins)
        if component is not None:
            self.set_state(state)
        else:
            check_whole(state, checkpoint.path)
            self._go_on(state, hyperparameters, checkpoint)
        self.tell("checkpoint_restored", path=str(path))

    def _go_on(self, state: dict[str, Any], whose: Hyperparameters, checkpoint: Checkpoint) -> None:
        saved = checkpoint.metadata["config"]
        with disk.saying_what_does_not_fit(checkpoint):
            config = chosen(self.config, whose, saved)
            log_differences(self.config, whose, saved, checkpoint.path)
        with all_or_nothing(self):
            if config != self.config or whose == "config":
                self._configure(config)
            if whose == "config":
                state = {**state, **self.get_state("coefficients")}
            self.set_state(state)
            if whose == "config":
                follow_schedules(self)
