"""The components of a learner's state: how each is read, set, undone, hashed, and removed with its module.

`COMPONENTS` lists them all. `Learner.get_state` and `set_state`, snapshots, the digest and `remove_module` read this
list. A new component is a subclass of `Component` with an entry there.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.errors import CheckpointError, RestoreMismatchError
from plugrad.learner.state.buffers import (
    buffer_variables,
    keep_made,
    set_plugin_state,
    with_plugin_variables,
)
from plugrad.learner.update.target_networks import moves_after_updates
from plugrad.ops import Variable
from plugrad.optimizers import undelayed, with_count_as_in, without_count
from plugrad.rng_streams import owner_of
from plugrad.types import COMPONENT_OPTIMIZER, COMPONENT_PLUGIN_STATE, COMPONENT_RL_MODULE, ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

State = dict[str, Any]


class Component:
    """One component of a learner's state.

    Attributes:
        name: its key in `Learner.get_state()`.
        attributes: the learner's attributes that hold it. The first maps the names of its parts to the parts.
        has_parts: whether `get_state("<name>/<part>")` can return one part.
        since: the version of the checkpoint format that added it. A file of an older format lacks it: it then begins
            anew. A save that holds it is of this format at least; older versions of plugrad say that they are too old.
    """

    name: str
    attributes: tuple[str, ...]
    has_parts = True
    since = 1

    def parts(self, learner: "Learner") -> list[str]:
        """The names of its parts: module ids, or full names of optimizers; empty without parts."""
        return list(getattr(learner, self.attributes[0])) if self.has_parts else []

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        """The current state.

        Args:
            learner: a built learner.
            parts: names from `parts()`; ignored without parts.

        Returns:
            `{part: nested dict of numpy copies and plain values}`; the whole component if it has no parts.
        """
        raise NotImplementedError

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        """Load a state, or the parts in it.

        Args:
            learner: a built learner.
            state: from `get`, already checked.
        """
        raise NotImplementedError

    def template(self, learner: "Learner", parts: Collection[str], state: Any) -> State:
        """What a state must look like to fit. Default: the current state.

        Args:
            learner: a built learner.
            parts: those that the state must have.
            state: the given state, not checked yet.

        Returns:
            A state with the expected names, shapes and dtypes.
        """
        return self.get(learner, parts)

    def variables(self, learner: "Learner") -> list[Variable]:
        """The variables that programs read and change."""
        return []

    def moved(self, learner: "Learner", trained: Collection[ModuleID]) -> list[Variable]:
        """The variables that an update of the modules with these ids changes. Default: all."""
        return self.variables(learner)

    def values(self, learner: "Learner") -> State:
        """A copy of what updates change outside of variables. Default: the whole component if it has no parts."""
        return {} if self.has_parts else self.get(learner, ())

    def restore(self, learner: "Learner", values: State) -> None:
        """Restore a copy.

        Args:
            learner: a built learner.
            values: from `values()`.
        """
        if not self.has_parts:
            self.set(learner, values)

    def digest_parts(self, learner: "Learner") -> Iterator[bytes]:
        """The bytes from which the learner's digest is computed; equal for equal learners."""
        for variable in self.variables(learner):
            if not getattr(variable, "is_divided", False):  # else each learner has another part of it
                yield variable.numpy().tobytes()
        yield json.dumps(self.values(learner), sort_keys=True, default=repr).encode()

    def drop(self, learner: "Learner", module_id: ModuleID) -> None:
        """Remove what belongs to a module.

        Args:
            learner: a built learner.
            module_id: of the module.
        """
        for attribute in self.attributes:
            getattr(learner, attribute).pop(module_id, None)


class _Modules(Component):
    """Parameters and buffers of modules. Parameters are variables of the optimizers."""

    name = COMPONENT_RL_MODULE
    attributes = ("module", "buffers", "num_parameters", "frozen_parameters")

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        return {module_id: learner.module[module_id].get_state() for module_id in parts}

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        learner.module.set_state(state)

    def variables(self, learner: "Learner") -> list[Variable]:
        return buffer_variables(learner.buffers, learner.module)

    def digest_parts(self, learner: "Learner") -> Iterator[bytes]:
        yield from super().digest_parts(learner)
        for module_id in sorted(set(learner.module) - set(learner.trainable_module_ids)):
            for value in learner.module[module_id].get_state().values():
                yield value.tobytes()

    def drop(self, learner: "Learner", module_id: ModuleID) -> None:
        others = {other: module for other, module in learner.module.items() if other != module_id}
        learner.module = type(learner.module)(others).of_learner()
        learner.buffers.pop(module_id, None)
        learner.num_parameters.pop(module_id, None)
        learner.frozen_parameters.pop(module_id, None)


class _Optimizers(Component):
    """Learning rates and slots, by `_get_optimizer_state` and `_set_optimizer_state`, which users may override."""

    name = COMPONENT_OPTIMIZER
    attributes = ("registered_optimizers",)

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        states = learner._get_optimizer_state()
        return {full_name: states[full_name] for full_name in parts}

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        learner._set_optimizer_state(state)

    def template(self, learner: "Learner", parts: Collection[str], state: Any) -> State:
        """A framework's own optimizer makes its slots at its first step; and `every` may have changed."""
        template = self.get(learner, parts)
        for full_name, each in template.items():
            saved = state.get(full_name) if isinstance(state, Mapping) else None
            slots = saved.get("slots") if isinstance(saved, Mapping) else None
            slots = slots if isinstance(slots, Mapping) else {}
            adapter = learner.registered_optimizers[full_name].optimizer_adapter
            each["slots"] = with_count_as_in(adapter.slots_like(without_count(slots)), slots)
        return template

    def variables(self, learner: "Learner") -> list[Variable]:
        registered = learner.registered_optimizers.values()
        return [variable for each in registered for variable in each.optimizer_adapter.variables]

    def moved(self, learner: "Learner", trained: Collection[ModuleID]) -> list[Variable]:
        """Of the other modules' optimizers the learning rates: schedules and listeners move them."""
        found: list[Variable] = []
        for each in learner.registered_optimizers.values():
            adapter = each.optimizer_adapter
            if not each.modules.isdisjoint(trained):
                found += adapter.variables
            elif (rate := getattr(undelayed(adapter), "lr", None)) is not None:
                found.append(rate)
            else:  # a framework's own keeps it in its state
                found += adapter.variables
        return found

    def drop(self, learner: "Learner", module_id: ModuleID) -> None:
        for full_name, each in list(learner.registered_optimizers.items()):
            if module_id in (each.module_id, *each.modules):
                del learner.registered_optimizers[full_name]


class _Targets(Component):
    """Target networks. Before they are read, they follow weights that were loaded into their modules alone."""

    name = "targets"
    attributes = ("targets",)

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        return {module_id: learner.targets[module_id].get_state() for module_id in parts}

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        for module_id, weights in state.items():
            learner.targets[module_id].set_state(weights)

    def template(self, learner: "Learner", parts: Collection[str], state: Any) -> State:
        """How often targets are updated may have changed."""
        saved = state if isinstance(state, Mapping) else {}
        return {
            name: with_count_as_in(each, saved.get(name)) for name, each in self.get(learner, parts).items()
        }

    def variables(self, learner: "Learner") -> list[Variable]:
        for target in learner.targets.values():
            target.follow_loads()
        # By name: equal learners may have added their modules in a different order.
        return [each for _, target in sorted(learner.targets.items()) for each in target.variables]

    def moved(self, learner: "Learner", trained: Collection[ModuleID]) -> list[Variable]:
        """Also those that are updated after every update, whichever modules it trained."""
        found: list[Variable] = []
        for module_id, target in learner.targets.items():
            target.follow_loads()
            if module_id in trained or moves_after_updates(learner, module_id):
                found += target.variables
        return found

    def restore(self, learner: "Learner", values: State) -> None:
        """The variables are restored already, also where an undone load had changed the modules."""
        for target in learner.targets.values():
            target.keep()


class _Coefficients(Component):
    """Scheduled and adaptive settings that losses read."""

    name = "coefficients"
    attributes = ("coefficients",)

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        return {
            module_id: {
                name: variable.numpy() for name, variable in learner.coefficients[module_id].variables.items()
            }
            for module_id in parts
        }

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        for module_id, values in state.items():
            for name, value in values.items():
                learner.coefficients[module_id].variables[name].assign(value)

    def variables(self, learner: "Learner") -> list[Variable]:
        return [
            variable
            for _, coefficients in sorted(learner.coefficients.items())
            for variable in coefficients.variables.values()
        ]


class _Counters(Component):
    """Lifetime counters, `{"<name>/<module id>": number}`. Which ones exist changes during training.

    A counter of the user's own may be any real number, also infinite, such as a best return so far. Nothing else can
    be loaded, so nothing else is in a state. A state has numpy's numbers as Python numbers.
    """

    name = "counters"
    attributes = ("counters",)
    has_parts = False

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        counters = {name: _plain(number) for name, number in learner.counters.items()}
        for name, number in counters.items():
            if not isinstance(name, str) or not _is_counter(name, number):
                found = f"{type(learner.counters[name]).__name__} {str(learner.counters[name])[:60]}"
                raise CheckpointError(
                    f"learner.counters[{name!r}] is {found}: a counter has a text as its name and is a real number, an "
                    "int or a float that is not NaN (1 for True), or no checkpoint could be opened; plugrad's own are "
                    "finite. Keep arrays and texts elsewhere, such as in your listener",
                    counter=name,
                )
        return counters

    def values(self, learner: "Learner") -> State:
        plain, counters = (int, float), learner.counters.items()  # most are: an update asks for it
        return {name: each if type(each) in plain else _plain(each) for name, each in counters}

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        learner.counters = {name: _plain(number) for name, number in state.items()}

    def template(self, learner: "Learner", parts: Collection[str], state: Any) -> State:
        given = state if isinstance(state, Mapping) else learner.counters
        return {
            name: number if _is_counter(name, _plain(number)) else 0
            for name, number in given.items()
            if isinstance(name, str)
        }

    def drop(self, learner: "Learner", module_id: ModuleID) -> None:
        ids = [*learner.module, module_id]
        for name in list(learner.counters):
            if max((each for each in ids if name.endswith(f"/{each}")), key=len, default=None) == module_id:
                del learner.counters[name]


def _plain(number: Any) -> Any:
    """A numpy number, which a checkpoint returns as an array without axes, as Python's; others as they are."""
    is_numpy = isinstance(number, np.generic | np.ndarray) and number.ndim == 0
    return number.item() if is_numpy else number


def _is_counter(name: str, number: Any) -> bool:
    """Whether a counter may have this value; those that plugrad counts are finite."""
    if type(number) is float and isinf(number):
        own = name.split("/")[0]
        return not own.endswith("_lifetime") and own not in _FINITE
    return type(number) is int or (type(number) is float and isfinite(number))


_FINITE = (
    "weights_seq_no",
    "last_target_update_ts",
    "last_target_update_rows",
    "num_skipped_updates_in_a_row",
)


class _Streams(Component):
    """The seed and the random generators, `{"<module id>/<purpose>": generator}`, made when they are first used."""

    name = "streams"
    attributes = ("streams", "noise_columns")
    has_parts = False

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        for name, rng in learner.streams.items():
            if not isinstance(getattr(rng, "bit_generator", None), np.random.PCG64):
                raise CheckpointError(
                    f"learner.streams[{name!r}] is a {type(rng).__name__}: expected a numpy Generator of a PCG64, or "
                    f"no checkpoint could be opened; learner.stream({name!r}) makes one",
                    stream=name,
                )
        if not isinstance(learner.seed, int | np.integer) or isinstance(learner.seed, bool):
            raise CheckpointError(
                f"learner.seed is {learner.seed!r}: expected an int, or no checkpoint could be opened"
            )
        generators = {name: rng.bit_generator.state for name, rng in learner.streams.items()}
        return {"seed": int(learner.seed), "generators": generators}

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        learner.seed, learner.streams = state["seed"], generators_of(state["generators"])

    def template(self, learner: "Learner", parts: Collection[str], state: Any) -> State:
        generators = state.get("generators") if isinstance(state, Mapping) else None
        names = generators if isinstance(generators, Mapping) else ()
        like = np.random.PCG64(0).state
        return {"seed": 0, "generators": {name: like for name in names if isinstance(name, str)}}

    def restore(self, learner: "Learner", values: State) -> None:
        """Unlike `set`, it keeps the generators, which others may hold."""
        states = values["generators"]
        kept = {name: each for name, each in learner.streams.items() if name in states}
        for name, generator in kept.items():
            generator.bit_generator.state = states[name]
        new = generators_of({name: state for name, state in states.items() if name not in kept})
        learner.seed, learner.streams = values["seed"], {**kept, **new}

    def drop(self, learner: "Learner", module_id: ModuleID) -> None:
        ids = [*learner.module, module_id]
        for name in [name for name in learner.streams if owner_of(name, ids) == module_id]:
            del learner.streams[name]
        learner.noise_columns.pop(module_id, None)


class _PluginState(Component):
    """What plugins registered with `Learner.register_state`, and what was restored for plugins that have not yet."""

    name = COMPONENT_PLUGIN_STATE
    attributes = ("_initial_plugin_state", "_restored_plugin_state", "_made_variables")
    since = 3

    def parts(self, learner: "Learner") -> list[str]:
        find_made_variables(learner)
        return [*learner._initial_plugin_state, *learner._restored_plugin_state]

    def get(self, learner: "Learner", parts: Collection[str]) -> State:
        own, waiting = learner._plugin_variables, learner._restored_plugin_state
        return {name: own[name].numpy() if name in own else waiting[name].copy() for name in parts}

    def set(self, learner: "Learner", state: Mapping[str, Any]) -> None:
        set_plugin_state(learner, state)

    def template(self, learner: "Learner", parts: Collection[str], state: Any) -> State:
        """What no plugin has registered yet may be any array of numbers."""
        given = state if isinstance(state, Mapping) else {}
        names = [*parts, *(each for each in given if isinstance(each, str) and each not in parts)]
        own = learner._plugin_variables
        waiting = {
            name: each if isinstance(each, np.ndarray) and each.dtype.kind in "biuf" else np.zeros(0)
            for name, each in ((name, given.get(name)) for name in names)
        }
        return {name: own[name].numpy() if name in own else waiting[name] for name in names}

    def variables(self, learner: "Learner") -> list[Variable]:
        return [variable for _, variable in sorted(learner._plugin_variables.items())]

    def values(self, learner: "Learner") -> State:
        """The names alone: the values are copied as variables."""
        return dict.fromkeys(learner._plugin_variables)

    def restore(self, learner: "Learner", values: State) -> None:
        """What was registered after the copy gets its initial value."""
        own = learner._plugin_variables
        late = {name: each for name, each in learner._initial_plugin_state.items() if name not in values}
        for name, value in {**values, **late}.items():
            if value is not None and name in own:
                own[name].assign(value)

    def digest_parts(self, learner: "Learner") -> Iterator[bytes]:
        yield from super().digest_parts(learner)
        for name, value in sorted(learner._restored_plugin_state.items()):
            yield name.encode() + value.tobytes()

    def drop(self, learner: "Learner", module_id: ModuleID) -> None:
        ids = [*learner.module, module_id]

        def without(named: Mapping[str, Any]) -> dict[str, Any]:
            return {name: each for name, each in named.items() if owner_of(name, ids) != module_id}

        learner.buffers = with_plugin_variables(learner.buffers, without(learner._plugin_variables))
        learner._initial_plugin_state = without(learner._initial_plugin_state)
        learner._restored_plugin_state = without(learner._restored_plugin_state)


COMPONENTS: dict[str, Component] = {
    each.name: each
    for each in (
        _Modules(),
        _Optimizers(),
        _Targets(),
        _Coefficients(),
        _Counters(),
        _Streams(),
        _PluginState(),
    )
}
"""`{name: component}`, in the order of `Learner.get_state()`."""


def find_made_variables(learner: "Learner") -> None:
    """Make what plugins made with `get_tensor_variable`, and still have, part of the state, in the order of making.

    Args:
        learner: with modules and optimizers.
    """
    if learner._made_variables:
        keep_made(learner, {id(each) for each in state_variables(learner)})


def state_variables(learner: "Learner") -> list[Variable]:
    """Every variable of a learner: what programs may change and snapshots copy."""
    return [variable for each in COMPONENTS.values() for variable in each.variables(learner)]


def generators_of(states: Mapping[str, Any]) -> dict[str, np.random.Generator]:
    """Make random generators from their states.

    Args:
        states: `{name: state of a PCG64}`, as `rng.bit_generator.state` gives it.

    Raises:
        RestoreMismatchError: a state is not one of a PCG64.
    """
    generators = {name: np.random.default_rng(0) for name in states}
    for name, generator in generators.items():
        try:
            generator.bit_generator.state = states[name]
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise RestoreMismatchError(
                f"random stream {name!r}: expected the state of a PCG64, found {states[name]}. Nothing was changed.",
                mismatched=[f"streams/generators/{name}"],
            ) from error
    return generators
