"""Modules of users' own classes, called with the spaces and settings that their signatures name."""

import inspect
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import Capability
from plugrad.importing.names import resolve_name
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.modules.capabilities import check_here
from plugrad.module_spec import RLModuleSpec
from plugrad.rl_module import RLModule
from plugrad.rng_streams import stream
from plugrad.types import ModuleID

GIVEN = ("observation_space", "action_space", "model_config")
"""Arguments that the class of a model may have."""


def build_own_module(learner: LearnerInternals, module_id: ModuleID, spec: RLModuleSpec) -> RLModule:
    """Build the module that `spec.module_class` makes.

    Meanwhile the random generators of Python, numpy and the framework are seeded by the learner's seed and the
    module's id, so that initial weights follow `debugging(seed=)`. Then they go on from where they were.

    Args:
        learner: the learner, whose backend wraps a model that is not an `RLModule`.
        module_id: the module's id.
        spec: has spaces and `module_class`: a class, a function, or the name of one.

    Returns:
        The module.

    Raises:
        ConfigError: it cannot be imported, cannot be called with these arguments, or does not make a model of this
            backend.
    """
    seed = int(stream(learner.seed, module_id, "weights").integers(2**31))
    python, numpy = random.getstate(), np.random.get_state()
    try:
        random.seed(seed)
        np.random.seed(seed)
        with learner._seeded_generators(seed) as more:
            return _made(learner, module_id, spec, more)
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _made(
    learner: LearnerInternals, module_id: ModuleID, spec: RLModuleSpec, more: Mapping[str, Any]
) -> RLModule:
    chosen = spec.module_class
    make = resolve_name(chosen, where="module_class") if isinstance(chosen, str) else chosen
    if inspect.isclass(make) and issubclass(make, RLModule):
        built: RLModule = make(**_known_arguments(make, spec))
        return built
    model = make(**_arguments(module_id, make, spec, more))
    if isinstance(model, RLModule):
        return model
    check_here(learner, Capability.USER_MODULES, f"module {module_id!r} is a {type(model).__name__}")
    module: RLModule = learner._wrap_module(module_id=module_id, module=model, module_spec=spec)
    module._made_by = chosen
    return module


def _arguments(
    module_id: ModuleID, make: Callable[..., Any], spec: RLModuleSpec, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Those of `GIVEN`, and of the backend's, that the signature of a model's class names.

    Raises:
        ConfigError: it is not a class or function, or needs another argument.
    """
    if not callable(make) or not (inspect.isclass(make) or inspect.isroutine(make)):
        raise ConfigError(
            f'module {module_id!r}: module_class is a class, or its name "package.module:Name", found '
            f"{type(make).__name__}; a finished model is given to Learner(module=...)",
            module_id=module_id,
        )
    named, given = _parameters(make), {**{name: getattr(spec, name) for name in GIVEN}, **more}
    unknown = [name for name, each in named.items() if each.default is each.empty and name not in given]
    unknown += [
        name for name in given if name in named and named[name].kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    if unknown:
        raise ConfigError(
            f"module {module_id!r}: {_name(make)} needs {', '.join(unknown)}, which is not known here. A model's "
            f"class is called with those of {', '.join(given)} that it names: take {unknown[0]} from "
            "model_config, or give it a default",
            module_id=module_id,
            expected=list(given),
            found=unknown,
        )
    return {name: value for name, value in given.items() if name in named}


def _known_arguments(make: type[RLModule], spec: RLModuleSpec) -> dict[str, Any]:
    """The RLModule constructor arguments that this class takes: its own constructor may leave some out."""
    kinds = {each.kind for each in _signature(make).parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return spec.arguments()
    named = _parameters(make)
    return {name: each for name, each in spec.arguments().items() if name in named}


def _parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The named parameters of a function; none for a class whose signature Python cannot read."""
    try:
        signature = _signature(make)
    except ValueError:
        return {}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: each for name, each in signature.parameters.items() if each.kind not in several}


def _signature(make: Any) -> inspect.Signature:
    """The signature of a function or of a class's constructor, even if its metaclass takes any arguments."""
    is_hidden = inspect.isclass(make) and inspect.isfunction(type(make).__call__)
    return inspect.signature(partial(make.__init__, None) if is_hidden else make)


def _name(make: Any) -> str:
    return str(getattr(make, "__qualname__", make))
