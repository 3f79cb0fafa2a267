"""Policies of a learner's modules. Knows learners and the parts of a policy, no framework."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from plugrad.errors import ConfigError
from plugrad.learner.connectors import initial_state
from plugrad.policy import Policy
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder
from plugrad.policy.policy import State
from plugrad.rl_module import MultiRLModule
from plugrad.rng_streams import stream
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


def make_policy(
    present: Callable[[], Any],
    module_id: ModuleID,
    *,
    env_observation_space: gym.Space[Any] | None = None,
    normalizer: ObservationNormalizer | None = None,
) -> Policy:
    """The policy of one module, with the weights that it has whenever `predict` is called.

    Args:
        present: gives the learner to act with now.
        module_id: whose policy; `DEFAULT_MODULE_ID` also means the only module.
        env_observation_space: of one observation of the environment, where the module reads those of the environment.
        normalizer: scales them.

    Raises:
        UnknownModuleError: there is no such module.
        ConfigError: the module has no spaces.
    """
    learner = present()
    module_id = only_module_id(learner.module, module_id)
    module = learner.module[module_id]
    if module.observation_space is None or module.action_space is None:
        raise ConfigError(
            f"module {module_id!r} has no observation_space or no action_space, and a policy needs both: give them "
            "when the module is made"
        )
    reads_env = (
        env_observation_space is not None and module.observation_space == learner.config.observation_space
    )
    encoder = ObservationEncoder(
        env_observation_space
        if reads_env and env_observation_space is not None
        else module.observation_space,
        module.observation_space,
        normalizer if reads_env else None,
    )
    rng = stream(
        learner.seed, module_id, "predict"
    )  # of its own: predicting changes nothing that training draws

    def act(rows: Array, *, explore: bool, state: State | None) -> dict[str, Any]:
        columns: dict[str, Any] = present().compute_actions(
            rows, module_id=module_id, explore=explore, state=state, rng=rng
        )
        return columns

    return Policy(
        act=act, encoder=encoder, action_space=module.action_space, initial_state=initial_state(module)
    )


def only_module_id(modules: Mapping[ModuleID, Any], module_id: ModuleID = DEFAULT_MODULE_ID) -> ModuleID:
    """`module_id`; the id of the only module where the default one is meant and not there."""
    if module_id == DEFAULT_MODULE_ID and module_id not in modules and len(modules) == 1:
        return next(iter(modules))
    return module_id


def env_module_id(modules: MultiRLModule) -> ModuleID:
    """The module that acts in an environment with one agent: the default one, or the only one.

    Raises:
        ConfigError: there are several modules, and none has the default id.
    """
    if DEFAULT_MODULE_ID in modules or len(modules) == 1:
        return only_module_id(modules)
    raise ConfigError(
        f"an environment with one agent, and the modules {', '.join(modules)}: which acts in it? Name it "
        f"{DEFAULT_MODULE_ID!r}"
    )


def warn_without_statistics(config: Any) -> None:
    """Say that a policy takes normalised observations, where env runners normalise and their statistics are missing."""
    if config.normalize_observations:
        warnings.warn(
            "normalize_observations=True: the statistics are the env runners', and a learner has none, so this policy "
            "takes observations that are normalised already. For those of the environment take "
            "Algorithm.get_policy() or plugrad.load_policy(path) with a checkpoint of an Algorithm",
            stacklevel=3,
        )
