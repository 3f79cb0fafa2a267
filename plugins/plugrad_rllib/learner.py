"""Older methods of a Learner: each does what its name did, by the methods of today.

`additional_update` is in `additional`, `save_state` in `saving`.
"""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from plugrad.checkpoint.disk import refuse_links
from plugrad.learner import Learner
from plugrad.learner.state.state import restore_on_error, save_state
from plugrad.types import (
    ALL_MODULES,
    COMPONENT_OPTIMIZER,
    COMPONENT_RL_MODULE,
    TOTAL_LOSS_KEY,
    Array,
    ModuleBatches,
    ModuleID,
    Tensor,
)
from plugrad_rllib.additional import ADDITIONAL, OlderUpdates, cross_after_update
from plugrad_rllib.arguments import (
    TAKES_HPS,
    Hyperparameters,
    takes_hps,
    translate_overrides,
)
from plugrad_rllib.overrides import (
    Bridge,
    adapt_subclasses,
    add_names,
    beneath,
    honour_overrides,
    is_called,
    is_overridden,
    newer,
    older,
    older_method,
    same_arguments,
)
from plugrad_rllib.saving import OlderSaving, StrPath, cross_restore, cross_save
from plugrad_rllib.warning import warn_older

OPTIMIZER_FOLDER = "optimizer_state"
"""Where, within a checkpoint's directory, an overridden `_save_optimizers` writes its own files."""


class OlderLearner:
    """What a Learner was called with before Ray 2.38, and what its subclasses overrode."""

    @property
    def _module(self: Any) -> Any:
        """`learner.module`."""
        warn_older("Learner._module", "Learner.module")
        return self.module

    @property
    def hps(self: Any) -> Hyperparameters:
        """`learner.config`, read as hyperparameters."""
        warn_older("Learner.hps", "Learner.config")
        return Hyperparameters(self.config)

    def compute_loss(self, *, fwd_out: ModuleBatches, batch: ModuleBatches) -> dict[ModuleID, Tensor]:
        """`compute_losses`, and their sum under `ALL_MODULES`, as in Ray 2.6 to 2.35."""
        losses = newer(self, "compute_losses", "compute_loss")(fwd_out=fwd_out, batch=batch)
        return {**losses, ALL_MODULES: sum(losses.values())}

    def get_module_state(
        self, module_ids: Collection[ModuleID] | None = None
    ) -> dict[ModuleID, dict[str, Array]]:
        """`{module_id: {parameter name: numpy copy}}`, of all modules or of these."""
        weights = newer(self, "get_weights", "get_module_state")()
        return {
            module_id: weights[module_id] for module_id in (weights if module_ids is None else module_ids)
        }

    set_module_state = older_method("set_module_state", "set_weights")
    get_optimizer_state = older_method("get_optimizer_state", "_get_optimizer_state")
    set_optimizer_state = older_method("set_optimizer_state", "_set_optimizer_state")
    _get_metadata = older_method("_get_metadata", "get_metadata")

    def _save_optimizers(self: Any, path: StrPath) -> None:
        """A checkpoint of the optimizers' states alone."""
        warn_older("Learner._save_optimizers()", "save_to_path(), which saves the optimizers too")
        save_state(path, self.get_state(COMPONENT_OPTIMIZER), self.get_metadata(), keep=1)

    def _load_optimizers(self: Any, path: StrPath) -> None:
        """Load what `_save_optimizers` wrote, or the optimizers of any checkpoint."""
        warn_older("Learner._load_optimizers()", "restore_from_path(path, component='optimizer')")
        self.restore_from_path(path, component=COMPONENT_OPTIMIZER)

    def _reset(self: Any) -> None:
        """As before `build()`: modules, optimizers, counters and random streams are gone."""
        warn_older("Learner._reset()", "a new Learner(config=...)")
        module_spec, module, plugins = self._given
        self.__init__(config=self.config, module_spec=module_spec, module=module, plugins=plugins)


# --- overrides, called by the methods of today ---------------------------------------------------------------------


def _cross_compute_losses(
    learner: Learner, below: Any, *, fwd_out: ModuleBatches, batch: ModuleBatches
) -> dict[ModuleID, Tensor]:
    """The override's losses. One under `ALL_MODULES` is what was differentiated then, and so alone is now."""
    if is_called(learner, "compute_loss"):
        return below(fwd_out=fwd_out, batch=batch)  # type: ignore[no-any-return]
    losses = dict(older(learner, "compute_loss")(fwd_out=fwd_out, batch=batch))
    if ALL_MODULES not in losses:
        return losses
    total = losses.pop(ALL_MODULES)
    for module_id, loss in losses.items():
        learner.register_metric(module_id, TOTAL_LOSS_KEY, loss)
    return {ALL_MODULES: total}


def _cross_get_state(learner: Learner, below: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    state = dict(below(*args, **kwargs))
    if COMPONENT_RL_MODULE in state:
        present = state[COMPONENT_RL_MODULE]
        with beneath(learner, get_weights=lambda: present):
            given = older(learner, "get_module_state")()
        state[COMPONENT_RL_MODULE] = {
            module_id: given[module_id] for module_id in present if module_id in given
        }
    return state


def _cross_set_state(learner: Learner, below: Any, state: Mapping[str, Any]) -> None:
    rest = dict(state)
    with restore_on_error(learner):
        if COMPONENT_RL_MODULE in rest:
            with beneath(learner, set_weights=lambda weights: below({COMPONENT_RL_MODULE: weights})):
                older(learner, "set_module_state")(rest.pop(COMPONENT_RL_MODULE))
        below(rest)


def _cross_save(learner: Learner, below: Any, path: StrPath, **kwargs: Any) -> str:
    cross_save(learner, below, path, **kwargs)
    if is_overridden(type(learner), Learner, "_save_optimizers"):
        folder = Path(path) / OPTIMIZER_FOLDER
        refuse_links(folder, Path(path))
        folder.mkdir(exist_ok=True)
        older(learner, "_save_optimizers")(str(folder))
    return str(path)


def _cross_restore(learner: Learner, below: Any, path: StrPath, **kwargs: Any) -> None:
    cross_restore(learner, below, path, **kwargs)
    folder = Path(path) / OPTIMIZER_FOLDER
    if is_overridden(type(learner), Learner, "_load_optimizers") and folder.is_dir():
        older(learner, "_load_optimizers")(str(folder))


BRIDGES = (
    Bridge("compute_losses", ("compute_loss",), _cross_compute_losses),
    Bridge("after_gradient_based_update", ADDITIONAL, cross_after_update),
    Bridge("get_state", ("get_module_state",), _cross_get_state),
    Bridge("set_state", ("set_module_state",), _cross_set_state),
    same_arguments("get_weights", "get_module_state"),
    same_arguments("set_weights", "set_module_state"),
    Bridge("save_to_path", ("save_state", "_save_optimizers"), _cross_save),
    Bridge("restore_from_path", ("load_state", "_load_optimizers"), _cross_restore),
)


def adapt() -> None:
    """Make the older names and arguments of a Learner work, and overrides by them."""
    add_names(Learner, OlderLearner, OlderUpdates, OlderSaving)
    for name in TAKES_HPS:
        setattr(Learner, name, takes_hps(getattr(Learner, name)))
    adapt_subclasses(Learner, translate_overrides)
    adapt_subclasses(Learner, partial(honour_overrides, Learner, BRIDGES))
