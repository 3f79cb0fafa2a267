"""What a policy file holds: the part of a learner that acts. It is read as a small checkpoint of a learner."""

from collections.abc import Mapping
from typing import Any

from plugrad.checkpoint import Checkpoint
from plugrad.config.serialize import encode
from plugrad.errors import CheckpointCorruptError, ConfigError
from plugrad.learner import checkpointing
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.policy.observations import ObservationEncoder
from plugrad.policy.policy_file import PolicyFile
from plugrad.types import COMPONENT_RL_MODULE, ModuleID

KIND = "policy"
_WEIGHTS, _COEFFICIENTS, _NORMALIZER = "weights", "coefficients", "normalizer"
_KEYS = {
    "algorithm",
    "backend",
    "plugins",
    "module_id",
    "module_class",
    "observation_space",
    "action_space",
    "config",
}


def policy_content(learner: Any, module_id: ModuleID, encoder: ObservationEncoder) -> PolicyFile:
    """The present policy of a module.

    Args:
        learner: whose module.
        module_id: its id.
        encoder: of the policy.

    Returns:
        What `write_policy_file` takes.

    Raises:
        ConfigError: a setting or a space cannot be written.
    """
    state = learner.get_state([f"{COMPONENT_RL_MODULE}/{module_id}", f"coefficients/{module_id}"])
    groups = {
        _WEIGHTS: state[COMPONENT_RL_MODULE][module_id],
        _COEFFICIENTS: state["coefficients"][module_id],
        _NORMALIZER: _moments(encoder),
    }
    arrays = {f"{group}/{name}": each for group, named in groups.items() for name, each in named.items()}
    return PolicyFile(_description(learner, module_id, encoder), arrays)


def _moments(encoder: ObservationEncoder) -> dict[str, Any]:
    state = {} if encoder.normalizer is None else encoder.normalizer.get_state()
    return {name: state[name] for name in state if name != "count"}


def _description(learner: Any, module_id: ModuleID, encoder: ObservationEncoder) -> dict[str, Any]:
    module = learner.module[module_id]
    written = _acting_config(learner, module_id).to_dict()
    return {
        "algorithm": written["algorithm"],
        "backend": written["backend"],
        "plugins": [
            each for each in checkpointing.plugin_manifest(learner.plugins) if each["kind"] != "listener"
        ],
        "module_id": module_id,
        "module_class": _own_class(module),
        "observation_space": encode(encoder.space, "observation_space"),
        "action_space": encode(module.action_space, "action_space"),
        "observations_seen": None if encoder.normalizer is None else encoder.normalizer.count,
        "config": written,
    }


def _own_class(module: Any) -> str | None:
    """The name of a user's own class, for the error of a file that is opened without it; None of built-in networks."""
    if module.network is not None:
        return None
    made_by = type(module) if module._made_by is None else module._made_by
    return f"{made_by.__module__}.{made_by.__qualname__}"


def _acting_config(learner: Any, module_id: ModuleID) -> Any:
    """A config of this module alone: what decides how it acts, and defaults for everything else."""
    config, module = learner.config, learner.module[module_id]
    kept = [
        name for name, info in config.fields().items() if info.section == "training" and not info.importable
    ]
    spec = RLModuleSpec(
        observation_space=module.observation_space,
        action_space=module.action_space,
        model_config={} if module.network is None else module.model_config,
        inference_only=module.inference_only,
    )
    overrides = config.algorithm_config_overrides_per_module
    return type(config)().changed(
        **{name: getattr(config, name) for name in kept},
        backend=config.backend,
        normalize_observations=config.normalize_observations,
        observation_space=module.observation_space,
        action_space=module.action_space,
        seed=learner.seed,
        rl_module_spec=MultiRLModuleSpec(rl_module_specs={module_id: spec}),
        algorithm_config_overrides_per_module={
            each: settings for each, settings in overrides.items() if each == module_id
        },
    )


def as_checkpoint(file: PolicyFile) -> Checkpoint:
    """A policy file as the checkpoint of a learner that has only what acts.

    Raises:
        CheckpointCorruptError: its description is not complete.
    """
    description = file.description
    if description.keys() != {*_KEYS, "observations_seen"} or not isinstance(description["module_id"], str):
        raise CheckpointCorruptError(f"{file.path} has a description with the keys {sorted(description)}")
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
        **{name: description[name] for name in ("plugins", "config", "module_class")},
        checkpointing.ENV_OBSERVATION_SPACE: description["observation_space"],
    }
    return Checkpoint(file.path, metadata, state, file.plugrad_version)


def refuse_own_module(metadata: Mapping[str, Any], path: Any) -> None:
    """Refuse a policy file of a user's own module that is opened without it.

    Raises:
        ConfigError: names the class.
    """
    name = metadata.get("module_class")
    if name is not None:
        raise ConfigError(
            f"{path} is the policy of a module of your own class {str(name)[:200]}, and a file imports no code: "
            "plugrad.load_policy(path, module=...) takes the module"
        )
