"""A learner's whole state as plain data: nested dicts of numpy copies and plain values, and its parts by path."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from plugrad.errors import ConfigError, RestoreMismatchError, did_you_mean
from plugrad.hooks.learner_protocol import RegisteredOptimizer
from plugrad.learner.buffers import with_present_buffers
from plugrad.learner.internals import LearnerInternals
from plugrad.optimizers import Optimizer
from plugrad.rl_module import check_same_arrays
from plugrad.schedules import Coefficients
from plugrad.types import COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE

COMPONENTS = (COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER, "targets", "coefficients", "counters", "streams")
WITH_PARTS = (COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER, "targets", "coefficients")

Parts = Mapping[str, Collection[str]]
"""`{component: names of its parts}`; empty where a component has no parts to choose from."""
Paths = str | Collection[str] | None


def parts_in(state: Mapping[str, Any]) -> dict[str, list[str]]:
    """The parts that a state has."""
    return {
        name: list(each) if name in WITH_PARTS and isinstance(each, Mapping) else []
        for name, each in state.items()
    }


def paths_of(parts: Parts) -> list[str]:
    """Every name by which something of `parts` can be asked for."""
    return [*parts, *(f"{component}/{part}" for component, names in parts.items() for part in names)]


def select(have: Parts, components: Paths, not_components: Paths = None) -> dict[str, list[str]]:
    """What a caller means by the names of some components and parts.

    Args:
        have: what there is to choose from.
        components: those wanted; None: all.
        not_components: those left out.

    Raises:
        ConfigError: for a name that is neither; lists what there is.
    """
    wanted = set(_pairs(have, have if components is None else components))
    left_out = set(_pairs(have, () if not_components is None else not_components))
    chosen: dict[str, list[str]] = {}
    for component, part in _pairs(have, have):
        if (component, part) in wanted - left_out:
            chosen.setdefault(component, []).extend([] if part is None else [part])
    return chosen


def check_whole(state: Mapping[str, Any], where: Any) -> None:
    """Refuse a part of a state where nobody asked for a part.

    Raises:
        RestoreMismatchError: a component is missing; names those that are there.
    """
    missing = [name for name in COMPONENTS if name not in state]
    if missing:
        raise RestoreMismatchError(
            f"{where} is not whole: it has {', '.join(map(str, state)) or 'nothing'}; missing: {', '.join(missing)}. "
            "Nothing was changed. To take a part, name it: component=...",
            missing=missing,
        )


def pick(state: Mapping[str, Any], chosen: Parts) -> dict[str, Any]:
    """The chosen parts of a state, each in its place."""
    return {
        component: {name: state[component][name] for name in names} if names else state[component]
        for component, names in chosen.items()
    }


def _pairs(have: Parts, paths: str | Collection[str]) -> Iterator[tuple[str, str | None]]:
    for path in (paths,) if isinstance(paths, str) else paths:
        component, slash, part = str(path).partition("/")
        if component not in have or (slash and part not in have[component]):
            raise _unknown(str(path), have)
        names: Collection[str | None] = [part] if slash else have[component] or [None]
        yield from ((component, name) for name in names)


def _unknown(path: str, have: Parts) -> ConfigError:
    known = paths_of(have)
    return ConfigError(
        f"no state component {path!r}; there are {', '.join(known)}.{did_you_mean(path, known)}", known=known
    )


State = dict[str, Any]


def parts_of(learner: LearnerInternals) -> dict[str, list[str]]:
    """The parts that a learner's state has now."""
    return {
        COMPONENT_RL_MODULE: list(learner.module),
        COMPONENT_OPTIMIZER: list(learner.registered_optimizers),
        "targets": list(learner.targets),
        "coefficients": list(learner.coefficients),
        "counters": [],
        "streams": [],
    }


def get_state(learner: LearnerInternals, chosen: Parts) -> State:
    """The chosen parts, each in its place."""
    optimizers = learner._get_optimizer_state() if COMPONENT_OPTIMIZER in chosen else {}
    part: dict[str, Callable[[str], State]] = {
        COMPONENT_RL_MODULE: lambda name: learner.module[name].get_state(),
        COMPONENT_OPTIMIZER: lambda name: optimizers[name],
        "targets": lambda name: learner.targets[name].get_state(),
        "coefficients": lambda name: _coefficients(learner.coefficients[name]),
    }
    whole: dict[str, Callable[[], State]] = {
        "counters": lambda: dict(learner.counters),
        "streams": lambda: _streams(learner),
    }
    return {
        component: whole[component]()
        if component in whole
        else {name: part[component](name) for name in names}
        for component, names in chosen.items()
    }


def set_state(learner: LearnerInternals, state: Mapping[str, Any]) -> None:
    """Take over what `state` has, each exactly as it is there.

    A state with all components is whole and must be complete. One with some of them names what it restores: these
    components, and in them the modules and optimizers that it has.

    Raises:
        RestoreMismatchError: an unknown component, or entries that are missing, unexpected or mis-shaped.
    """
    if isinstance(state, Mapping) and COMPONENT_RL_MODULE in state:
        state = {**state, COMPONENT_RL_MODULE: with_present_buffers(learner, state[COMPONENT_RL_MODULE])}
    _check(learner, state)
    generators = generators_of(state["streams"]["generators"]) if "streams" in state else {}
    if COMPONENT_RL_MODULE in state:
        learner.module.set_state(state[COMPONENT_RL_MODULE])
    if COMPONENT_OPTIMIZER in state:
        learner._set_optimizer_state(state[COMPONENT_OPTIMIZER])
    for module_id, weights in state.get("targets", {}).items():
        learner.targets[module_id].set_state(weights)
    for module_id, values in state.get("coefficients", {}).items():
        for name, value in values.items():
            learner.coefficients[module_id][name].assign(value)
    if "counters" in state:
        learner.counters = dict(state["counters"])
    if "streams" in state:
        learner.seed, learner.streams = state["streams"]["seed"], generators


def _check(learner: LearnerInternals, state: Mapping[str, Any]) -> None:
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
    known_parts, given = parts_of(learner), parts_in(state)
    strangers = [path for path in paths_of(given) if path not in paths_of(known_parts)]
    where = f"the learner, which has {', '.join(paths_of(known_parts))}" if strangers else "the learner"
    check_same_arrays(_expected(learner, state), state, where=where)


def _wanted(known: Parts, given: Parts) -> dict[str, list[str]]:
    """The parts that a state must have: all if it is whole, else those that it names, if it names any."""
    is_whole = set(given) == set(COMPONENTS)
    return {
        component: [
            name for name in known[component] if is_whole or not given[component] or name in given[component]
        ]
        for component in given
    }


def _expected(learner: LearnerInternals, state: Mapping[str, Any]) -> State:
    """The present state; counters and generators come and go with training, so their names are those of `state`."""
    expected = get_state(learner, _wanted(parts_of(learner), parts_in(state)))
    for full_name, own in expected.get(COMPONENT_OPTIMIZER, {}).items():
        own["slots"] = _slots_like(learner, full_name, state[COMPONENT_OPTIMIZER])
    if isinstance(state.get("counters"), Mapping):
        expected["counters"] = {name: 0 for name in state["counters"] if isinstance(name, str)}
    if isinstance(state.get("streams"), Mapping):
        generators, like = state["streams"].get("generators"), np.random.PCG64(0).state
        names = generators if isinstance(generators, Mapping) else ()
        expected["streams"] = {
            "seed": 0,
            "generators": {name: like for name in names if isinstance(name, str)},
        }
    return expected


def _slots_like(learner: LearnerInternals, full_name: str, optimizers: Any) -> State:
    """The slots that must be there; those of a framework's optimizer come into being with its first step."""
    saved = optimizers.get(full_name) if isinstance(optimizers, Mapping) else None
    slots = saved.get("slots") if isinstance(saved, Mapping) else None
    optimizer_adapter: Optimizer = learner.registered_optimizers[full_name].optimizer_adapter
    return optimizer_adapter.slots_like(slots if isinstance(slots, Mapping) else {})


def _streams(learner: LearnerInternals) -> State:
    generators = {name: rng.bit_generator.state for name, rng in learner.streams.items()}
    return {"seed": learner.seed, "generators": generators}


def generators_of(states: Mapping[str, Any]) -> dict[str, np.random.Generator]:
    """Random generators by name, of their states.

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


def get_optimizers(learner: LearnerInternals) -> State:
    """`{"<module id>_<optimizer name>": state}` of all optimizers."""
    return {name: _optimizer(learner, each) for name, each in learner.registered_optimizers.items()}


def set_optimizers(learner: LearnerInternals, state: Mapping[str, Any]) -> None:
    """Take over the states of the optimizers that `state` names.

    Raises:
        RestoreMismatchError: there is no such optimizer, or an entry is missing, unexpected or mis-shaped.
    """
    _check(learner, {COMPONENT_OPTIMIZER: state})
    for full_name, saved in state.items():
        _set_optimizer(learner, learner.registered_optimizers[full_name], saved)


def _optimizer(learner: LearnerInternals, registered: RegisteredOptimizer) -> State:
    return {
        "learning_rate": np.asarray(learner._get_optimizer_lr(registered.optimizer), np.float32),
        "slots": registered.optimizer_adapter.get_slots(),
    }


def _set_optimizer(
    learner: LearnerInternals, registered: RegisteredOptimizer, saved: Mapping[str, Any]
) -> None:
    learner._set_optimizer_lr(registered.optimizer, float(saved["learning_rate"]))
    registered.optimizer_adapter.set_slots(saved["slots"])


def _coefficients(coefficients: Coefficients) -> State:
    return {name: variable.numpy() for name, variable in coefficients.variables.items()}
