"""Modules of users' own classes, called with the spaces and settings that their signatures name."""

import inspect
import random
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box

from plugrad import numpy_ops
from plugrad.distributions import BoundedDistribution, Distribution
from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import Capability
from plugrad.importing.names import resolve_name
from plugrad.learner.modules.capabilities import check_here
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import ActorCritic
from plugrad.ops import Ops
from plugrad.rl_module import RLModule
from plugrad.rng_streams import stream
from plugrad.spaces.kinds import array_space
from plugrad.types import ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

GIVEN = ("observation_space", "action_space", "model_config")
"""Arguments that the class of a model may have."""


def build_own_module(learner: "Learner", module_id: ModuleID, spec: RLModuleSpec) -> RLModule:
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


def _made(learner: "Learner", module_id: ModuleID, spec: RLModuleSpec, more: Mapping[str, Any]) -> RLModule:
    chosen = spec.module_class
    make = resolve_name(chosen, where="module_class") if isinstance(chosen, str) else chosen
    if inspect.isclass(make) and issubclass(make, RLModule):
        built: RLModule = make(**_known_arguments(make, spec))
        return built
    model = make(**_arguments(module_id, make, spec, more))
    if isinstance(model, RLModule):
        return model
    module = wrapped_model(learner, module_id, model, spec)
    module._made_by = chosen
    return module


def wrapped_model(learner: "Learner", module_id: ModuleID, model: Any, spec: RLModuleSpec) -> RLModule:
    """A module of a user's plain model: of its parts if the algorithm asks for parts, else around the whole model.

    Args:
        learner: whose backend and algorithm.
        module_id: the module's id.
        model: the model.
        spec: has spaces.

    Returns:
        The module.

    Raises:
        ConfigError: the backend takes no models, or the model is not of its framework or lacks a part.
    """
    check_here(learner, Capability.USER_MODULES, f"module {module_id!r} is a {type(model).__name__}")
    config = learner.config.get_config_for_module(module_id)
    base = learner.backend_info.module_class
    if config.model_class is not None and base is not None:
        module: RLModule = config.model_class.of(module_id, model, spec, config, base, learner.device)
        return module
    return learner._wrap_module(module_id=module_id, module=model, module_spec=spec)


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


# --- the class of a module's action distributions, and whether it suits the bounds of the actions ---

NARROW, WIDE = 0.1, 10.0
"""Half-widths of bounds for which a Gaussian with a standard deviation of about 1 is far too wide, or too narrow."""


def action_distribution_class(module: Any, ops: Ops, *, explore: bool) -> type[Distribution]:
    """The class of a module's action distributions.

    Args:
        module: the module that acts.
        ops: the tensor functions that the class computes with.
        explore: True for the class for exploring, False for the one for inference.

    Returns:
        The class.

    Raises:
        ConfigError: the module has no such class.
    """
    method = "get_exploration_action_dist_cls" if explore else "get_inference_action_dist_cls"
    found = getattr(module, method)()
    if not (isinstance(found, type) and issubclass(found, Distribution)):
        raise ConfigError(
            f"{type(module).__name__}.{method}() returned {found!r}: it must return a subclass of "
            "plugrad.distributions.Distribution, such as distribution_class(self.action_space, self.ops)"
        )
    return found.bind(ops)


def warn_of_far_bounds(module: Any) -> None:
    """Warn if a built-in policy is a Gaussian that hardly reaches the bounds of the actions.

    Args:
        module: one that acts in an environment.

    Warns:
        UserWarning: a finite interval of its float Box does not meet [-1, 1], or is far wider or narrower.
    """
    space = array_space(module.action_space)
    if (
        not isinstance(module.network, ActorCritic)
        or not isinstance(space, Box)
        or space.low.dtype.kind != "f"
    ):
        return
    if issubclass(action_distribution_class(module, numpy_ops, explore=True), BoundedDistribution):
        return
    finite = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = space.low[finite].astype(np.float64), space.high[finite].astype(np.float64)
    half = (high - low) / 2
    if ((low > 1.0) | (high < -1.0) | (half > WIDE) | (half < NARROW)).any():
        warnings.warn(
            f"the actions are {space}, and the policy is a Gaussian that begins near mean 0 and standard deviation 1: "
            "it hardly reaches these bounds and may never learn. Let it act in [-1, 1]: .env_runners(env_wrappers="
            '[("gymnasium.wrappers:RescaleAction", {"min_action": -1.0, "max_action": 1.0})])',
            UserWarning,
            stacklevel=4,
        )
