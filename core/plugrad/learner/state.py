"""A learner's whole state as plain data: weights, optimizer slots, coefficients, counters, random streams.

Nested dicts by name, numpy arrays and plain values, copies throughout. Loading checks everything first and changes
nothing if anything does not fit. Knows no file and no framework.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from plugrad.errors import ConfigError, RestoreMismatchError, did_you_mean
from plugrad.optimizers import SCALAR_SLOTS, Optimizer
from plugrad.rl_module import check_same_arrays
from plugrad.types import COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE

COMPONENTS = (COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER, "coefficients", "counters", "streams")
State = dict[str, Any]


def get_state(learner: Any, components: Collection[str]) -> State:
    """The components named, each `{name: ...}`."""
    makers = {
        COMPONENT_RL_MODULE: learner.module.get_state,
        COMPONENT_OPTIMIZER: lambda: _optimizers(learner),
        "coefficients": lambda: _coefficients(learner),
        "counters": lambda: dict(learner.counters),
        "streams": lambda: _streams(learner),
    }
    return {name: makers[name]() for name in COMPONENTS if name in components}


def set_state(learner: Any, state: Mapping[str, Any]) -> None:
    """Take over the components that `state` has, each exactly as it is there.

    Raises:
        RestoreMismatchError: an unknown component, or entries that are missing, unexpected or mis-shaped.
    """
    unexpected = [name for name in state if name not in COMPONENTS]
    if unexpected:
        known = ", ".join(COMPONENTS)
        raise RestoreMismatchError(
            f"a state has the components {known}; unexpected: {', '.join(unexpected)}. Nothing was changed.",
            unexpected=unexpected,
        )
    check_same_arrays(_flatten(_expected(learner, state)), _flatten(state), where="the learner")
    generators = _generators(state["streams"]["generators"]) if "streams" in state else {}
    if COMPONENT_RL_MODULE in state:
        learner.module.set_state(state[COMPONENT_RL_MODULE])
    for full_name, saved in state.get(COMPONENT_OPTIMIZER, {}).items():
        _set_optimizer(learner, learner.registered_optimizers[full_name].optimizer, saved)
    for module_id, values in state.get("coefficients", {}).items():
        for name, value in values.items():
            learner.coefficients[module_id][name].assign(value)
    if "counters" in state:
        learner.counters = dict(state["counters"])
    if "streams" in state:
        learner.seed, learner.streams = state["streams"]["seed"], generators


def _expected(learner: Any, state: Mapping[str, Any]) -> State:
    """The present state; counters and generators come and go with training, so their names are those of `state`."""
    expected = get_state(learner, list(state))
    if isinstance(state.get("counters"), Mapping):
        expected["counters"] = dict.fromkeys(state["counters"], 0)
    if isinstance(state.get("streams"), Mapping):
        names = state["streams"].get("generators")
        generator = np.random.PCG64(0).state
        names = names if isinstance(names, Mapping) else ()
        expected["streams"] = {"seed": 0, "generators": dict.fromkeys(names, generator)}
    return expected


def _streams(learner: Any) -> State:
    generators = {name: rng.bit_generator.state for name, rng in learner.streams.items()}
    return {"seed": learner.seed, "generators": generators}


def _generators(states: Mapping[str, Any]) -> dict[str, np.random.Generator]:
    generators = {name: np.random.default_rng(0) for name in states}
    for name, generator in generators.items():
        try:
            generator.bit_generator.state = states[name]
        except (ValueError, OverflowError) as error:
            raise RestoreMismatchError(
                f"random stream {name!r}: expected the state of a PCG64, found {states[name]}. Nothing was changed.",
                mismatched=[f"streams/generators/{name}"],
            ) from error
    return generators


def _optimizers(learner: Any) -> State:
    return {name: _optimizer(learner, each.optimizer) for name, each in learner.registered_optimizers.items()}


def _optimizer(learner: Any, optimizer: Optimizer) -> State:
    slots = {name: slot.numpy() for name, slot in optimizer.slots.items()}
    return {
        "learning_rate": np.asarray(learner._get_optimizer_lr(optimizer), np.float32),
        "slots": {
            name: value if name in SCALAR_SLOTS else _by_name(optimizer, value)
            for name, value in slots.items()
        },
    }


def _by_name(optimizer: Optimizer, flat: Any) -> State:
    layout = optimizer.parameters.layout
    parts = np.split(flat, np.cumsum(layout.sizes)[:-1])
    return {
        ref: part.reshape(shape).copy()
        for ref, shape, part in zip(layout.refs, layout.shapes, parts, strict=True)
    }


def _set_optimizer(learner: Any, optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    learner._set_optimizer_lr(optimizer, float(saved["learning_rate"]))
    refs = optimizer.parameters.layout.refs
    for name, slot in optimizer.slots.items():
        value = saved["slots"][name]
        slot.assign(value if name in SCALAR_SLOTS else np.concatenate([np.ravel(value[ref]) for ref in refs]))


def _coefficients(learner: Any) -> State:
    return {
        module_id: {name: variable.numpy() for name, variable in each.variables.items()}
        for module_id, each in learner.coefficients.items()
    }


def _flatten(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Arrays, plain values and empty dicts by path."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        where = f"{path}/{name}" if path else name
        flat.update(_flatten(value, where) if isinstance(value, Mapping) and value else {where: value})
    return flat


def select(
    components: str | Collection[str] | None, not_components: str | Collection[str] | None
) -> list[str]:
    """The component names that a caller of `get_state` means.

    Raises:
        ConfigError: for a name that is no component.
    """
    wanted = COMPONENTS if components is None else _names(components)
    left_out = () if not_components is None else _names(not_components)
    return [name for name in wanted if name not in left_out]


def _names(given: str | Collection[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in COMPONENTS:
            known = ", ".join(COMPONENTS)
            raise ConfigError(
                f"no state component {name!r}; there are {known}.{did_you_mean(name, COMPONENTS)}"
            )
    return names
