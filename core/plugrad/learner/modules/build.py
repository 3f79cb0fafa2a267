"""Building a learner: specs of modules with their spaces, modules (including users' own), device, connectors."""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import gymnasium as gym
import numpy as np

from plugrad import numpy_ops
from plugrad.config import RAY, Config
from plugrad.distributions import Beta, StateDependentGaussian
from plugrad.errors import ConfigError, PluginError, did_you_mean
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.hooks.manager import HookManager, Plugin, hook_methods
from plugrad.learner.modules.users_classes import build_own_module, wrapped_model
from plugrad.learner.update.connectors import Piece, make_pipeline
from plugrad.model_config import ACTION_DISTRIBUTION, BETA, CRITIC_OBS, CRITIC_ONLY, GSDE, USE_PREV
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec, names_modules, spaces_of, specs_of
from plugrad.networks import Network
from plugrad.networks.inputs import uint8_rule
from plugrad.observations import is_structured, model_space, stored_space
from plugrad.rl_module import MultiRLModule, RLModule, check_same_arrays
from plugrad.sampling.atari import FILTERS as ATARI_FILTERS
from plugrad.sampling.environments import get_module_spaces, is_multi_agent
from plugrad.sampling.multi_agent.critic_obs import with_critic_obs, with_critic_state
from plugrad.sampling.multi_agent.env_faces import as_agent_env, has_many_agents
from plugrad.sampling.multi_agent.module_spaces import spaces_of_modules
from plugrad.sampling.previous_steps import PreviousParts, with_previous_steps
from plugrad.sampling.vectorization import get_env_spaces
from plugrad.sampling.wrappers import EnvWrappers, stacked_space
from plugrad.spaces.kinds import named_parts
from plugrad.spaces.layout import in_arrays
from plugrad.types import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, Array, ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

log = logging.getLogger("plugrad")

ConfigT = TypeVar("ConfigT", bound=Config)
Spaces = Mapping[ModuleID, tuple[gym.Space[Any], gym.Space[Any]]]


def warn_of_unknown_modules(config: Config, modules: Collection[ModuleID]) -> None:
    """Log settings for modules that the learner does not have: these are added later, or misspelled.

    Args:
        config: the learner's.
        modules: ids of the learner's modules.
    """
    named = {
        "algorithm_config_overrides_per_module": config.algorithm_config_overrides_per_module,
        "policies_to_train": config.policies_to_train or (),
    }
    for setting, module_ids in named.items():
        for module_id in sorted(set(module_ids) - set(modules)):
            log.warning(
                "%s names %r, which is no module of this learner (%s): it counts once add_module adds it.%s",
                setting,
                module_id,
                ", ".join(modules),
                did_you_mean(module_id, modules),
            )


def check_providers(learner: "Learner", base: type[Any], hooks: HookManager) -> None:
    """Refuse a learner with a hook that has no answer. An override in the learner's class counts as an answer.

    Args:
        learner: before it is built.
        base: the class Learner.
        hooks: of its plugins.

    Raises:
        PluginError: a hook has no answer; names the hook and who should answer it.
    """
    cls = type(learner)
    overridden = {
        hook for name, hook in hook_methods(base).items() if getattr(cls, name) is not getattr(base, name)
    }
    for hook in hook_methods(base).values():
        if hooks.has_provider(hook) or hook in overridden:
            continue
        if hook == "compute_loss_for_module":
            if not overridden & {"compute_losses", "update"}:
                if algorithm := next((each for each in learner.plugins if each.tier == "algorithm"), None):
                    raise no_loss_error(algorithm)
                raise PluginError(
                    f"{type(learner).__name__} has no loss: {type(learner.config).__name__} belongs to no algorithm; "
                    "use an algorithm's config (plugrad.get_algorithm('ppo')) or override compute_loss_for_module",
                    hook=hook,
                )
        else:
            raise PluginError(
                f"backend {learner.config.backend!r} does not answer the hook {hook!r}", hook=hook
            )


def no_loss_error(algorithm: Plugin) -> PluginError:
    """The error for an algorithm that says nowhere how its loss is computed.

    Args:
        algorithm: the plugin.

    Returns:
        The error, to be raised.
    """
    return PluginError(
        f"{algorithm} has no loss: it does not answer the hook 'compute_loss_for_module', and the Learner class of its "
        "config does not override it",
        hook="compute_loss_for_module",
    )


def choose_device(config: Config, info: BackendInfo) -> str:
    """The device that `config.device` means.

    Args:
        config: the learner's; `"auto"` is the first device that the backend names.
        info: the backend's.

    Returns:
        The backend's name of the device; with `sharding` that of its group of devices.

    Raises:
        ConfigError: the backend does not have it, or cannot shard there.
    """
    name = info.devices[0] if config.device == "auto" else config.device
    device = info.device_aliases.get(name, name)
    if device not in info.devices:
        raise ConfigError(f"device {config.device!r}: backend {info.name!r} sees {', '.join(info.devices)}")
    return str(device) if config.sharding is None else _group_of(str(device), config, info)


def _group_of(device: str, config: Config, info: BackendInfo) -> str:
    without = "leave .learners(sharding=...) out"

    def refusal(why: str) -> ConfigError:
        return ConfigError(f"sharding={config.sharding!r}: backend {info.name!r} {why}", field="sharding")

    if config.launcher != RAY:
        if info.divide is None:
            raise refusal(
                f"does not shard a learner over the processes of launcher={config.launcher!r}: type .framework(...) "
                f"with one that does (docs/many-learners.md, sharding), or {without}"
            )
        return device
    if info.device_groups is None and info.divide is not None:
        raise refusal(
            "shards a learner over several processes, and this one is alone: type "
            f'.learners(launcher="env") and start the program with torchrun (docs/your-cluster.md), or {without}'
        )
    if info.device_groups is None:
        raise refusal(
            "does not shard a learner: type .framework(...) with one that does (docs/many-learners.md, one learner on "
            f"several devices), or {without}"
        )
    if device not in info.device_groups:
        raise refusal(
            f"sees one device of this kind, {device}, and there is nothing to share: {without}. For a trial on the CPU "
            "let the framework see several (docs/many-learners.md)"
        )
    return info.device_groups[device]


def make_connectors(learner: "Learner") -> list[Piece]:
    """The learner connector pipeline: the user's pieces, the default ones, the algorithm's."""
    module = learner.module.get(DEFAULT_MODULE_ID) or next(iter(learner.module.values()))
    pieces = learner._provide("get_learner_connectors", config=learner.config)
    return make_pipeline(learner.config, pieces, (module.observation_space, module.action_space))


def make_modules(
    learner: "Learner", spec: RLModuleSpec | MultiRLModuleSpec | None, module: Any
) -> MultiRLModule:
    """A learner's modules: finished ones; else from the given spec, the config's spec, or the algorithm's.

    Args:
        learner: before it has modules.
        spec: as given to the learner, or None.
        module: as given to the learner, or None.

    Returns:
        The modules, which now belong to the learner.

    Raises:
        ConfigError: a module cannot be built, or there would be none.
    """
    if isinstance(module, MultiRLModule):
        return module.of_learner()
    if module is not None:
        by_id = module if type(module) is dict else {DEFAULT_MODULE_ID: module}
        modules = {module_id: _wrapped(learner, module_id, each) for module_id, each in by_id.items()}
        return MultiRLModule(modules).of_learner()
    specs = _specs(learner, spec)
    if not specs:
        raise ConfigError("a learner has at least one module: policies or rl_module_spec names none")
    return MultiRLModule(
        {module_id: build_module(learner, module_id, each) for module_id, each in specs.items()}
    ).of_learner()


def _wrapped(learner: "Learner", module_id: ModuleID, module: Any) -> RLModule:
    """A given module; a model that is no RLModule is wrapped."""
    if isinstance(module, RLModule):
        return module
    if isinstance(module, type):
        raise ConfigError(
            f"module {module_id!r}: expected an object, found the class {module.__qualname__}: pass "
            f"{module.__name__}(...), or the class by RLModuleSpec(module_class=...)"
        )
    config = learner.config.get_config_for_module(module_id)
    spec = RLModuleSpec(observation_space=config.observation_space, action_space=config.action_space)
    spec.check_spaces(module_id)
    return wrapped_model(learner, module_id, module, spec)


def _specs(
    learner: "Learner", given: RLModuleSpec | MultiRLModuleSpec | None
) -> dict[ModuleID, RLModuleSpec]:
    """Complete specs by id: those given to the learner, else those that its config names."""
    named: Mapping[ModuleID, RLModuleSpec | None]
    if isinstance(given, MultiRLModuleSpec):
        named = given.rl_module_specs
    else:
        named = specs_of(learner.config)
        named = named if given is None else dict.fromkeys(named, given)
    if (expected := _EXPECTED.get()) is not None:
        missing = {each: _Shape((), "weights") for each in named if each not in expected}
        check_same_arrays(missing, {}, where="the settings")
    return {module_id: fill_spec(learner, module_id, each) for module_id, each in named.items()}


def fill_spec(learner: "Learner", module_id: ModuleID, given: RLModuleSpec | None) -> RLModuleSpec:
    """Complete a spec with the algorithm's default and the module's config.

    Args:
        learner: whose algorithm and config.
        module_id: of the module.
        given: the spec; None: all is the default.

    Returns:
        A spec with a model_config and, where the config has them, spaces.

    Raises:
        ConfigError: `given` is not a spec.
    """
    if not isinstance(given, RLModuleSpec | None):
        raise ConfigError(
            f"module {module_id!r}: an RLModuleSpec is expected, not {str(given)[:100]!r}. In Python: "
            "RLModuleSpec(module_class=Net). On the command line: "
            """{__spec__ = "RLModuleSpec", module_class = "mymodule:Net"}"""
        )
    config = learner.config.get_config_for_module(module_id)
    default: RLModuleSpec = learner._provide("get_default_rl_module_spec", config=config)
    spec = default if given is None else given
    if spec.module_class is None:
        spec = replace(spec, module_class=default.module_class)
    if not spec.model_config:
        spec = replace(spec, model_config=default.model_config)
    spec = spec.complete(config.observation_space, config.action_space)
    if config.critic_obs and CRITIC_OBS in named_parts(spec.observation_space):
        spec = replace(spec, model_config={CRITIC_ONLY: [CRITIC_OBS], **spec.model_config})
    return spec


def build_module(learner: "Learner", module_id: ModuleID, spec: RLModuleSpec) -> RLModule:
    """Build one module: of the user's class, or the backend's module around the algorithm's network.

    Args:
        learner: whose backend and algorithm build it.
        module_id: its id, which also names the random stream of its initial weights.
        spec: complete.

    Returns:
        The module.

    Raises:
        ConfigError: the spec has no spaces, or settings that cannot work.
    """
    spec.check_spaces(module_id)
    for name in USE_PREV:
        key = name.removeprefix("use_")
        if spec.model_config.get(name) and key not in named_parts(spec.observation_space):
            raise ConfigError(
                f"{name}=True: observations of module {module_id!r} have no key {key!r}: {spec.observation_space}. "
                "Leave observation_space out, so that the environment says it, or give the space of these observations",
                module_id=module_id,
                expected=key,
                found=spec.observation_space,
            )
    if spec.module_class is not None:
        return build_own_module(learner, module_id, spec)
    config = learner.config.get_config_for_module(module_id)
    network = learner._build_network(module_id=module_id, config=config, module_spec=spec)
    network.action_space = spec.action_space
    network.uint8_rule = uint8_rule(spec.observation_space, spec.model_config)
    _check_reads_settings(module_id, spec, network)
    expected = _expected_weights(module_id, network)
    weights = expected or network.initial_weights(learner.stream(module_id, "weights"))
    built: RLModule = learner._build_module(
        module_id=module_id, module_spec=spec, network=network, weights=weights
    )
    return built


def _check_reads_settings(module_id: ModuleID, spec: RLModuleSpec, network: Network) -> None:
    """Refuse settings that a network of this algorithm does not follow."""
    if (keys := spec.model_config.get(CRITIC_ONLY)) and not network.critic_only:
        raise ConfigError(
            f"{CRITIC_ONLY}={list(keys)}: {type(network).__name__} of module {module_id!r} has no policy beside its "
            "critics that could act without these observations, as networks of PPO, SAC and TD3 have",
            module_id=module_id,
        )
    assert spec.action_space is not None
    asked = spec.model_config.get(ACTION_DISTRIBUTION)
    wanted = {BETA: Beta, GSDE: StateDependentGaussian}.get(str(asked))
    if wanted is not None and not issubclass(
        network.distribution_class(spec.action_space, numpy_ops), wanted
    ):
        raise ConfigError(
            f"{ACTION_DISTRIBUTION}={asked!r}: {type(network).__name__} of module {module_id!r} has a distribution of "
            f"its own, or none; leave {ACTION_DISTRIBUTION} out. PPO, IMPALA, APPO, MARWIL and BC have both, SAC gsde",
            module_id=module_id,
        )


# --- the expected weights of a saved learner, compared before anything is built ---

_EXPECTED: Final[ContextVar[Any]] = ContextVar("plugrad_expected_weights", default=None)


@dataclass(frozen=True)
class _Shape:
    """The shape of an array that is not made yet."""

    shape: tuple[int, ...]
    dtype: Any


@contextmanager
def expect_weights(state: Mapping[str, Any]) -> Iterator[None]:
    """A block that builds learners for a saved state: settings whose weights do not fit are refused before building.

    Args:
        state: from `Learner.get_state`, with the component "rl_module"; other components are ignored.
    """
    weights = state.get(COMPONENT_RL_MODULE) if isinstance(state, Mapping) else None
    token = _EXPECTED.set(weights if isinstance(weights, Mapping) else {})
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def _expected_weights(module_id: ModuleID, network: Network) -> dict[str, Array] | None:
    """A copy of a module's expected weights, in the order of the network's parameters.

    Args:
        module_id: the module's id.
        network: its network.

    Returns:
        `{name: float32 array}`; None if no weights are expected: the module then draws its own.

    Raises:
        RestoreMismatchError: the network's parameters have other names or shapes; lists all differences.
    """
    expected = _EXPECTED.get()
    if expected is None:
        return None
    found = expected.get(module_id)
    wanted = {}
    for each in network.parameters:
        saved = found.get(each.name) if isinstance(found, Mapping) else None
        dtype = getattr(saved, "dtype", None)
        # Backends may save another precision than float32.
        is_float = dtype is not None and dtype.kind == "f"
        wanted[each.name] = _Shape(each.shape, dtype if is_float else np.dtype(np.float32))
    check_same_arrays({module_id: wanted}, {module_id: found}, where="the settings")
    return {each.name: np.array(found[each.name], np.float32) for each in network.parameters}


def check_expected_weights(config: Config) -> None:
    """Compare the networks of a config with the expected weights, if there are any, without building them.

    Args:
        config: with spaces.

    Raises:
        RestoreMismatchError: the config does not describe these weights.
    """
    if _EXPECTED.get() is None:
        return
    learner = config.get_learner_class()(config=config.learners(num_learners=0).plugins())
    learner._load_plugins()
    for module_id, spec in _specs(learner, config.rl_module_spec).items():
        if spec.module_class is None:
            own = config.get_config_for_module(module_id)
            _expected_weights(
                module_id, learner._build_network(module_id=module_id, config=own, module_spec=spec)
            )


# --- spaces ---


def with_spaces(config: ConfigT, env: Any = None, spaces: Spaces | None = None) -> ConfigT:
    """The config with spaces written into it.

    Args:
        config: an `AlgorithmConfig`.
        env: an environment that has the spaces; None: `config.env` where the config has no spaces.
        spaces: `{module_id: (observation_space, action_space)}` instead.

    Returns:
        The config, changed if need be.

    Raises:
        ConfigError: neither the arguments nor the config have spaces or an environment.
    """
    if spaces is not None:
        return _with_specs(config, spaces)
    if env is None and (config.env is None or _has_spaces(config)):
        return config
    found = _spaces_of(config, env)
    first = next(iter(found.values()))
    if any(each != first for each in found.values()):
        return _with_specs(config, found)
    config = config.environment(config.env, observation_space=first[0], action_space=first[1])
    if config.atari is not True or "conv_filters" in config.model_config:
        return config
    return config.rl_module(model_config={**config.model_config, "conv_filters": ATARI_FILTERS})


def _has_spaces(config: Config) -> bool:
    """Whether the config, or each of its modules, has spaces; and no module acts in a single-agent environment."""
    if config.observation_space is not None:
        return True
    named = specs_of(config)
    return DEFAULT_MODULE_ID not in named and all(None not in spaces_of(config, each) for each in named)


def _with_specs(config: ConfigT, spaces: Spaces) -> ConfigT:
    """The config with the specs that it names and these spaces in them, all in `rl_module_spec`."""
    named = specs_of(config) if names_modules(config) else {}
    for module_id in spaces if named else ():
        if module_id not in named:
            raise ConfigError(
                f"spaces of {module_id!r}, which is no module of the config's: {', '.join(named)}."
                f"{did_you_mean(str(module_id), named)}",
                module_id=module_id,
            )
    common = config.rl_module_spec if isinstance(config.rl_module_spec, RLModuleSpec) else None
    specs = {
        module_id: replace(
            named.get(module_id) or common or RLModuleSpec(),
            observation_space=observation,
            action_space=action,
        )
        for module_id, (observation, action) in spaces.items()
    }
    others = {
        module_id: spec or RLModuleSpec() for module_id, spec in named.items() if module_id not in specs
    }
    config = config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={**others, **specs}))
    if isinstance(config.policies, Mapping):
        config = config.multi_agent(policies=dict.fromkeys(config.policies))
    return config


def _spaces_of(config: Config, env: Any) -> Spaces:
    """The spaces of the modules that act in an environment: one that is given, or the config's."""
    if has_many_agents(env) and not isinstance(env, type):
        agents = as_agent_env(env, type(env).__name__)
        agents = with_previous_steps(with_critic_obs(agents, config.critic_obs), PreviousParts.of(config))
        return spaces_of_modules(agents, config)
    if isinstance(env, gym.Env):
        env = with_critic_state(env, config.critic_obs, type(env).__name__)
    observation = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
    action = getattr(env, "single_action_space", getattr(env, "action_space", None))
    if isinstance(observation, gym.Space) and isinstance(action, gym.Space):
        wrappers = EnvWrappers.of(config)
        stacked = stacked_space(wrappers.previous.space(observation, action), wrappers.num_frames)
        return {
            DEFAULT_MODULE_ID: (
                in_arrays(stacked) if is_structured(stacked) else stored_space(stacked),
                action,
            )
        }
    config = config if env is None else config.environment(env)
    if is_multi_agent(config):
        return get_module_spaces(config)
    spaces = get_env_spaces(config)
    normalized = model_space(spaces.observations, normalized=config.normalize_observations)
    return {DEFAULT_MODULE_ID: (normalized, spaces.actions)}
