"""The content of a policy file: the part of a learner that acts. It is read as a small checkpoint of a learner."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.checkpoint import Checkpoint
from plugrad.config.serialize import encode
from plugrad.errors import CheckpointCorruptError, ConfigError, NonFiniteError
from plugrad.learner.acting.acting_network import acting_network
from plugrad.learner.state.checkpoint import ENV_OBSERVATION_SPACE, part_of
from plugrad.model_config import CRITIC_ONLY, UINT8_SCALE
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.observations import is_structured
from plugrad.policy.observations import ObservationEncoder
from plugrad.policy.policy_file import PolicyFile
from plugrad.rl_module import RLModule
from plugrad.types import COMPONENT_RL_MODULE, ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

KIND = "policy"
_WEIGHTS, _COEFFICIENTS, _NORMALIZER = "weights", "coefficients", "normalizer"
_KEYS = {
    "algorithm",
    "backend",
    "plugins",
    "module_id",
    "module_class",
    "observation_space",
    "observations_seen",
    "config",
}


def policy_content(learner: "Learner", module_id: ModuleID, encoder: ObservationEncoder) -> PolicyFile:
    """The current policy of a module.

    Args:
        learner: the learner that has the module.
        module_id: the module's id.
        encoder: the policy's encoder.

    Returns:
        What `write_policy_file` takes.

    Raises:
        ConfigError: a setting or a space cannot be written.
        NonFiniteError: a built-in network has a weight that is NaN or infinite.
    """
    state = learner.get_state([f"{COMPONENT_RL_MODULE}/{module_id}", f"coefficients/{module_id}"])
    weights = state[COMPONENT_RL_MODULE][module_id]
    spec, names = _acting_spec(learner, module_id)
    groups = {
        _WEIGHTS: weights if names is None else {name: weights[name] for name in names},
        _COEFFICIENTS: state["coefficients"][module_id],
        _NORMALIZER: _moments(encoder),
    }
    arrays = {f"{group}/{name}": each for group, named in groups.items() for name, each in named.items()}
    file = PolicyFile(_description(learner, module_id, encoder, spec), arrays)
    if (name := _non_finite(file)) is not None:
        raise NonFiniteError(f"{name} of module {module_id!r} is NaN or infinite: such a policy is not saved")
    return file


def _non_finite(file: PolicyFile) -> str | None:
    """The first array that is not finite, or None. Not checked for a user's module, which may have such buffers."""
    arrays = file.arrays.items() if file.description["module_class"] is None else ()
    return next((name for name, each in arrays if not np.isfinite(each).all()), None)


def _acting_spec(learner: "Learner", module_id: ModuleID) -> tuple[RLModuleSpec, list[str] | None]:
    """The spec of a module without what only training needs, and the remaining parameters; None: all of them."""
    module, network = learner.module[module_id], acting_network(learner, module_id)
    if network is None:
        return RLModuleSpec(model_config={}, inference_only=module.inference_only), None
    spec = RLModuleSpec(model_config=_written_model_config(module), inference_only=True)
    return spec, [each.name for each in network.parameters]


def _written_model_config(module: RLModule) -> Mapping[str, Any]:
    """The settings with the rule of uint8 numbers, which files of older versions lack."""
    rule = None if module.network is None else module.network.uint8_rule
    return module.model_config if rule is None else {**module.model_config, UINT8_SCALE: rule}


def _moments(encoder: ObservationEncoder) -> dict[str, Any]:
    state = {} if encoder.normalizer is None else encoder.normalizer.get_state()
    return {name: state[name] for name in state if name != "count"}


def _description(
    learner: "Learner", module_id: ModuleID, encoder: ObservationEncoder, spec: RLModuleSpec
) -> dict[str, Any]:
    module = learner.module[module_id]
    written = _acting_config(learner, module_id, spec, encoder).to_dict()
    return {
        "algorithm": written["algorithm"],
        "backend": written["backend"],
        "plugins": [each for each in learner._plugin_manifest if each["kind"] != "listener"],
        "module_id": module_id,
        "module_class": _own_class(module),
        "observation_space": encode(encoder.space, "observation_space"),
        "observations_seen": None if encoder.normalizer is None else encoder.normalizer.count,
        "config": written,
    }


def _own_class(module: Any) -> str | None:
    """The name of a user's own class, for the error if a file is opened without it; None for built-in networks."""
    if module.network is not None:
        return None
    made_by = module._made_by or type(getattr(module, "model", module))
    return made_by if isinstance(made_by, str) else f"{made_by.__module__}:{made_by.__qualname__}"


def _acting_config(
    learner: "Learner", module_id: ModuleID, spec: RLModuleSpec, encoder: ObservationEncoder
) -> Any:
    """A config for this module alone: settings that affect acting, and defaults for everything else."""
    config, module = learner.config, learner.module[module_id]
    space = module.observation_space
    if module.network is None and not is_structured(space):
        space = encoder.row_space  # the user's module object may have been made with another one
    own_keys = module.network is None and encoder.unread  # the file has no other settings of a user's module
    fields = config.fields().items()
    kept = [name for name, info in fields if info.section == "training" and not info.importable]
    overrides = config.algorithm_config_overrides_per_module
    return type(config)().changed(
        **{name: getattr(config, name) for name in kept},
        model_config={CRITIC_ONLY: list(encoder.unread)} if own_keys else {},
        backend=config.backend,
        normalize_observations=config.normalize_observations,
        observation_space=space,
        action_space=module.action_space,
        seed=learner.seed,
        rl_module_spec=MultiRLModuleSpec(rl_module_specs={module_id: spec}),
        algorithm_config_overrides_per_module={
            each: settings for each, settings in overrides.items() if each == module_id
        },
    )


def as_checkpoint(file: PolicyFile) -> Checkpoint:
    """A policy file as the checkpoint of a learner that only acts.

    Raises:
        CheckpointCorruptError: its description has other keys, or a number is NaN or infinite.
        CheckpointError: an entry of its description is malformed.
    """
    description = file.description
    if description.keys() != _KEYS or not isinstance(description["module_id"], str):
        raise CheckpointCorruptError(f"{file.path} has a description with the keys {sorted(description)}")
    if (name := _non_finite(file)) is not None:
        raise CheckpointCorruptError(f"{file.path} is damaged: {name} is NaN or infinite")
    module_id = description["module_id"]
    state: dict[str, Any] = {
        COMPONENT_RL_MODULE: {module_id: file.group(_WEIGHTS)},
        "coefficients": {module_id: file.group(_COEFFICIENTS)},
    }
    if description["observations_seen"] is not None:
        state["env_runner"] = {
            "normalizer": {"count": description["observations_seen"], **file.group(_NORMALIZER)}
        }
    metadata = {
        "kind": KIND,
        **{name: description[name] for name in ("algorithm", "backend", "plugins", "config", "module_class")},
        "module_ids": [module_id],
        ENV_OBSERVATION_SPACE: description["observation_space"],
    }
    return part_of(Checkpoint(file.path, metadata, state, file.plugrad_version), kind=KIND)


def refuse_own_module(metadata: Mapping[str, Any], path: Any) -> None:
    """Refuse a policy file of a user's own module if the module is not given.

    Args:
        metadata: the file's metadata.
        path: the file's path, for the message.

    Raises:
        ConfigError: it is such a file; names the class.
    """
    name = metadata.get("module_class")
    if name is not None:
        raise ConfigError(
            f"{path} is the policy of a module of your own class {str(name)[:200]}, and a file imports no code: "
            "plugrad.load_policy(path, module=...) takes the module"
        )
