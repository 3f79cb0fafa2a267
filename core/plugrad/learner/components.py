"""The parts of a learner's state by name: components, and what belongs to one module or optimizer in them.

    "rl_module"                          a whole component
    "rl_module/p0"                       one module's part of it
    "optimizer/p0_default_optimizer"     one optimizer's, by its full name
    "coefficients/p0"

A part keeps its place in the state, so that `{"rl_module": {"p0": ...}}` can be set as it was got. Knows names only.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from plugrad.errors import ConfigError, RestoreMismatchError, did_you_mean
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
