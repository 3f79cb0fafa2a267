"""A learner's state as nested dicts: reading, checking, setting, saving; parts by path, such as "rl_module/p0"."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.checkpoint import save_checkpoint
from plugrad.config.serialize import with_names
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import ConfigError, RestoreMismatchError, did_you_mean
from plugrad.learner.state.buffers import fill_missing_buffers
from plugrad.learner.state.components import COMPONENTS, State, find_made_variables, state_variables
from plugrad.model_config import UINT8_SCALE
from plugrad.ops import Variable
from plugrad.optimizers import DelayedOptimizer, without_count
from plugrad.rl_module import MultiRLModule, check_same_arrays
from plugrad.types import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE, ModuleID, StrPath

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

Parts = Mapping[str, Collection[str]]
"""`{component: names of its parts}`; empty where a component has no parts to choose from."""
Paths = str | Collection[str] | None


def parts_in(state: Mapping[str, Any]) -> dict[str, list[str]]:
    """The parts that a state has."""
    return {
        name: list(each)
        if isinstance(each, Mapping) and name in COMPONENTS and COMPONENTS[name].has_parts
        else []
        for name, each in state.items()
    }


def _paths_of(parts: Parts) -> list[str]:
    """Every name by which one of `parts` can be requested."""
    return [*parts, *(f"{component}/{part}" for component, names in parts.items() for part in names)]


def select_parts(have: Parts, components: Paths, not_components: Paths = None) -> dict[str, list[str]]:
    """Resolve names of components and parts.

    Args:
        have: the existing parts.
        components: names of those wanted; None: all.
        not_components: names of those to leave out.

    Returns:
        `{component: names of its parts}`.

    Raises:
        ConfigError: there is no such component or part; lists the existing ones.
    """
    wanted = set(_pairs(have, have if components is None else components))
    left_out = set(_pairs(have, () if not_components is None else not_components))
    chosen: dict[str, list[str]] = {}
    for component, part in _pairs(have, have):
        if (component, part) in wanted - left_out:
            chosen.setdefault(component, []).extend([] if part is None else [part])
    return chosen


def oldest_reader(state: Mapping[str, Any]) -> int:
    """The version of the checkpoint format that a state needs, by the components that have something in it."""
    return max(
        (COMPONENTS[name].since for name, each in state.items() if name in COMPONENTS and each), default=1
    )


def check_whole(state: Mapping[str, Any], where: Any) -> None:
    """Refuse a state that lacks components.

    Args:
        state: of a checkpoint.
        where: names it in the error.

    Raises:
        RestoreMismatchError: a component is missing; names those that it has.
    """
    missing = [name for name in _required() if name not in state]
    if missing:
        raise RestoreMismatchError(
            f"{where} is not whole: it has {', '.join(map(str, state)) or 'nothing'}; missing: {', '.join(missing)}. "
            "Nothing was changed. To take a part, name it: component=...",
            missing=missing,
        )


def pick_parts(state: Mapping[str, Any], components: Paths) -> dict[str, Any]:
    """Take some parts of a state, with the same nesting; arguments and errors as in `select_parts`."""
    chosen = select_parts(parts_in(state), components)
    return {
        component: {name: state[component][name] for name in names} if names else state[component]
        for component, names in chosen.items()
    }


def _pairs(have: Parts, paths: str | Collection[str]) -> Iterator[tuple[str, str | None]]:
    for path in (paths,) if isinstance(paths, str) else paths:
        component, slash, part = str(path).partition("/")
        if component not in have or (slash and part not in have[component]):
            known = _paths_of(have)
            raise ConfigError(
                f"no state component {str(path)!r}; there are {', '.join(known)}.{did_you_mean(str(path), known)}",
                known=known,
            )
        names: Collection[str | None] = [part] if slash else have[component] or [None]
        yield from ((component, name) for name in names)


def parts_of(learner: "Learner") -> dict[str, list[str]]:
    """The parts that a learner's state has now."""
    return {name: component.parts(learner) for name, component in COMPONENTS.items()}


def copy_state(learner: "Learner", components: Paths, not_components: Paths) -> State:
    """Copy a learner's state, or parts of it, with the same nesting; see `Learner.get_state`."""
    chosen = select_parts(parts_of(learner), components, not_components)
    return {name: COMPONENTS[name].get(learner, parts) for name, parts in chosen.items()}


def load_into(learner: "Learner", state: Mapping[str, Any]) -> None:
    """Load a state exactly. If it does not fit, nothing changes.

    A state with all components must be complete. A state with some components restores only these, and within them
    only the modules and optimizers that it has. Where it has a module's weights and not its target network, the target
    network becomes equal to them.

    Args:
        learner: a built learner.
        state: of `get_state`.

    Raises:
        RestoreMismatchError: an unknown component, or entries that are missing, unexpected or mis-shaped.
    """
    if isinstance(state, Mapping) and COMPONENT_RL_MODULE in state:
        state = {**state, COMPONENT_RL_MODULE: fill_missing_buffers(learner, state[COMPONENT_RL_MODULE])}
    _check(learner, state)
    # Streams first: they may still raise, and nothing is changed yet. Target networks last: they follow the weights
    # that are loaded, unless they are loaded too.
    order = [name for name in reversed(COMPONENTS) if name != "targets"]
    for name in (*order, "targets"):
        if name in state:
            COMPONENTS[name].set(learner, state[name])


def _check(learner: "Learner", state: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping):
        raise RestoreMismatchError(
            f"a state is a dict of components, found {type(state).__name__}. Nothing was changed."
        )
    unexpected = [str(name) for name in state if name not in COMPONENTS]
    if unexpected:
        known = ", ".join(COMPONENTS)
        raise RestoreMismatchError(
            f"a state has the components {known}; unexpected: {', '.join(unexpected)}. Nothing was changed.",
            unexpected=unexpected,
        )
    own, given = parts_of(learner), parts_in(state)
    paths = _paths_of(own)
    strangers = set(_paths_of(given)) - set(paths)
    where = f"the learner, which has {', '.join(paths)}" if strangers else "the learner"
    is_whole = _required().keys() <= set(given)
    template = {}
    for name, parts in given.items():
        # A whole state must have all parts, any other those that it contains.
        wanted = own[name] if is_whole or not parts else [each for each in own[name] if each in parts]
        template[name] = COMPONENTS[name].template(learner, wanted, state[name])
    check_same_arrays(template, state, where=where)


def _required() -> dict[str, None]:
    """The names of the components that every whole state has; an older one lacks those that were added since."""
    return {name: None for name, component in COMPONENTS.items() if component.since == 1}


def optimizer_states(learner: "Learner") -> State:
    """`{"<module id>_<optimizer name>": state}` of all optimizers."""
    return {
        full_name: {
            "learning_rate": np.asarray(learner._get_optimizer_lr(each.optimizer), np.float32),
            "slots": each.optimizer_adapter.get_slots(),
        }
        for full_name, each in learner.registered_optimizers.items()
    }


def load_optimizers(learner: "Learner", state: Mapping[str, Any]) -> None:
    """Load the states of the optimizers in `state`.

    Args:
        learner: a built learner.
        state: from `optimizer_states`, or some of its entries.

    Raises:
        RestoreMismatchError: there is no such optimizer, or an entry is missing, unexpected or mis-shaped.
    """
    _check(learner, {COMPONENT_OPTIMIZER: state})
    for full_name, saved in state.items():
        registered = learner.registered_optimizers[full_name]
        learner._set_optimizer_lr(registered.optimizer, float(saved["learning_rate"]))
        adapter, slots = registered.optimizer_adapter, saved["slots"]
        adapter.set_slots(slots if isinstance(adapter, DelayedOptimizer) else without_count(slots))


# --- the same on disk; `plugrad.learner.state.checkpoint` loads it ---


def metadata_of(learner: "Learner", config: Any, *, kind: str) -> dict[str, Any]:
    """The metadata of a checkpoint: what is needed to rebuild its learner, and which plugins wrote it.

    Args:
        learner: the learner, for its modules and plugins.
        config: the config of the learner or algorithm that is saved.
        kind: "learner" or "algorithm".

    Returns:
        JSON data.
    """
    written = with_names(config).to_dict()
    return {
        "kind": kind,
        "backend": config.backend,
        "algorithm": written["algorithm"],
        "module_ids": list(learner.module),
        "plugins": [*learner._plugin_manifest],
        "config": written,
        UINT8_SCALE: byte_scales(learner.module),
    }


def warn_of_unwritable(config: Any) -> None:
    """Warn, at the user's line, of a setting with which nothing can be saved, such as a lambda in `env_wrappers`."""
    try:
        with_names(config).to_dict()
    except ConfigError as error:
        warn_at_users_line(f"{error}. Until then save_to_path raises this error")


def save_state(path: StrPath, state: Mapping[str, Any], metadata: Mapping[str, Any], *, keep: int) -> str:
    """Write a state with its metadata.

    Args:
        path: a checkpoint directory.
        state: nested dicts of arrays and plain values.
        metadata: JSON data.
        keep: how many saves to keep.

    Returns:
        `path`.
    """
    key = COMPONENT_LEARNER if metadata.get("kind") == "algorithm" else ""
    learner = dict(state[key] if key else state)
    for name in [name for name, each in learner.items() if not each and oldest_reader({name: True}) > 1]:
        del learner[name]  # so that an older version of plugrad reads the file
    state, version = {**state, key: learner} if key else learner, oldest_reader(learner)
    return str(save_checkpoint(path, state, metadata=metadata, keep=keep, format_version=version))


def byte_scales(modules: MultiRLModule) -> dict[ModuleID, str]:
    """The rules by which built-in modules scale uint8 numbers, of those for which the rules differ."""
    networks = ((module_id, module.network) for module_id, module in modules.items())
    return {module_id: rule for module_id, network in networks if network and (rule := network.uint8_rule)}


# --- copies of a learner's state that are restored after an error, and its digest ---

_MADE_FOR_MODULES = ("config", "connectors", "_update_run", "_actor")
"""Attributes of a learner, besides its state, that are replaced when its modules or settings change."""


class Snapshot:
    """Copies of what an update changes, to undo it.

    Args:
        learner: a built learner.
        variables: False leaves out the variables, which are nearly all of the memory: weights, optimizers' states.
            `copy_variables` copies some of them later.
    """

    def __init__(self, learner: "Learner", *, variables: bool = True) -> None:
        self._learner = learner
        find_made_variables(learner)
        self._variables: list[tuple[Variable, Any]] = []
        self._changes: dict[ModuleID, int] = {}
        self._has_all = False
        self._values = copy_values(learner)
        if variables:
            self.copy_all()

    def copy_variables(self, trained: Collection[ModuleID]) -> None:
        """Copy the variables that an update of some modules changes: their parameters, slots and targets.

        Also coefficients and plugins' own state, which are of no single module, and the buffers of all: the loss of one
        module may run another. May be called again with more modules.

        Args:
            trained: ids of these modules.
        """
        learner = self._learner
        if self._has_all:
            return
        self._copy([each for part in COMPONENTS.values() for each in part.moved(learner, trained)])
        begun = self._changes
        if begun or len(trained) < len(learner.module):
            counts = {each: self._count(each) for each in learner.module}
            self._changes = {
                each: begun.get(each, count)
                for each, count in counts.items()
                if each not in trained or begun.get(each, count) != count  # changed too early for this copy
            }

    def copy_all(self) -> None:
        """Copy what was not copied yet: somebody is about to change more than an update does."""
        if not self._has_all:
            self._has_all, self._changes = True, {}
            self._copy(state_variables(self._learner))

    def _copy(self, variables: Sequence[Variable]) -> None:
        known = {id(variable) for variable, _ in self._variables}
        new = [each for each in variables if id(each) not in known] if known else variables
        if new:
            self._variables += zip(new, self._learner._snapshot_variables(new), strict=True)

    def changed_beside(self) -> list[ModuleID]:
        """The modules that have other weights than at the copy and were not copied: nothing can undo that."""
        modules = self._learner.module
        return [
            each for each, count in self._changes.items() if each in modules and self._count(each) != count
        ]

    def _count(self, module_id: ModuleID) -> int:
        module = self._learner.module[module_id]
        return module._num_loads if module_id in self._learner.buffers else module._count_changes()

    def restore(self) -> None:
        """Restore everything."""
        self.restore_variables()
        restore_values(self._learner, self._values)

    def restore_variables(self) -> None:
        """Restore what a program may change. Counters and random streams stay as they are."""
        for variable, value in self._variables:
            variable.assign(value)


def copy_values(learner: "Learner") -> dict[str, Any]:
    """Copy what updates and connectors change outside of variables: counters and random streams."""
    return {name: each.values(learner) for name, each in COMPONENTS.items()}


def restore_values(learner: "Learner", values: Mapping[str, Any]) -> None:
    """Restore a copy.

    Args:
        learner: a built learner; it may be another one than that of the copy.
        values: from `copy_values`.
    """
    for name, each in values.items():
        COMPONENTS[name].restore(learner, each)


@contextmanager
def restore_on_error(learner: "Learner") -> Iterator[None]:
    """Restore the whole learner if the block raises.

    Unlike `Snapshot` alone, this also restores added or removed modules and optimizers, and settings.
    """
    snapshot = Snapshot(learner)
    names = [name for each in COMPONENTS.values() for name in each.attributes]
    former = {name: getattr(learner, name) for name in (*_MADE_FOR_MODULES, *names)}
    former = {name: dict(value) if isinstance(value, dict) else value for name, value in former.items()}
    results = dict(learner.metrics.results)
    try:
        yield
    except BaseException:
        for name, value in former.items():
            setattr(learner, name, value)
        learner.metrics.results = results
        snapshot.restore()
        learner.weights_version += 1
        raise


def digest(learner: "Learner") -> str:
    """A hash of the whole state (weights, slots, counters, random streams, ...): equal only for equal learners.

    Flat vectors are hashed directly: a few megabytes take a few milliseconds.
    """
    find_made_variables(learner)
    found = blake2b(digest_size=16)
    for component in COMPONENTS.values():
        for part in component.digest_parts(learner):
            found.update(part)
    # Learners of a group exchange flat vectors in this order.
    found.update(repr((list(learner.module), list(learner.registered_optimizers))).encode())
    return found.hexdigest()
