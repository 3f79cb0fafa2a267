"""The policy of a module: from an observation of the environment to an action for `env.step`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.columns import Columns
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.learner.acting.acting_network import ActingState
from plugrad.learner.acting.held_noise import HeldNoise
from plugrad.learner.acting.onnx import record_actions
from plugrad.learner.acting.policy_content import policy_content
from plugrad.learner.update.connectors import initial_state
from plugrad.model_config import CRITIC_ONLY, MODEL_SETTINGS
from plugrad.observations import is_structured, model_space, row_parts, row_shape, row_space
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.observations import ObservationEncoder
from plugrad.policy.policy import Policy, State
from plugrad.rl_module import MultiRLModule
from plugrad.rng_streams import stream
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


def make_policy(
    present: Callable[[], Any],
    module_id: ModuleID,
    *,
    env_observation_space: gym.Space[Any] | None = None,
    rows: gym.Space[Any] | None = None,
    normalizer: ObservationNormalizer | None = None,
) -> Policy:
    """The policy of one module; `predict` uses the weights at the time of the call.

    Args:
        present: returns the current learner.
        module_id: the module; `DEFAULT_MODULE_ID` also finds a single module that has another id.
        env_observation_space: the environment's observation space, if the module reads the environment's observations;
            None: the policy takes those of the module's space.
        rows: with `env_observation_space`, what env runners make of the observations, whatever space the module object
            was made with; None: `model_space` of it.
        normalizer: normalises the environment's observations.

    Returns:
        The policy.

    Raises:
        UnknownModuleError: there is no such module.
        ConfigError: the module has no spaces, or observations of its space have another shape than the rows.
    """
    learner = present()
    module_id = only_module_id(learner.module, module_id)
    module = learner.module[module_id]
    if module.observation_space is None or module.action_space is None:
        raise ConfigError(
            f"module {module_id!r} has no observation_space or no action_space, and a policy needs both: give them "
            "when the module is made"
        )
    space, normalized = env_observation_space, learner.config.normalize_observations
    if space is None:
        space, rows, normalizer = module.observation_space, module.observation_space, None
    elif rows is None:
        rows = model_space(space, normalized=normalized)
    if row_shape(rows) != row_shape(module.observation_space):
        raise ConfigError(
            f"module {module_id!r} was made with observation_space={module.observation_space}, and it gets "
            f"observations of {space} as rows of {rows}: make it with observation_space={rows}",
            module_id=module_id,
        )
    unread = critic_only_of(module, learner.config)
    rows = row_space(rows) if is_structured(rows) else rows
    encoder = ObservationEncoder(space, rows, normalizer, unread=unread)
    if unread and module.network is None:
        _check_unread(learner, module_id, encoder)
    # Its own stream and noise: predicting changes nothing that training draws.
    rng, noise = stream(learner.seed, module_id, "predict"), HeldNoise({}, {})
    acting = ActingState(learner, module_id)

    def act(
        rows: Array, *, explore: bool, state: State | None, action_mask: Any = None
    ) -> tuple[Array, State | None]:
        if state is not None:
            state = acting.with_the_rest(state, present().module[module_id], len(rows))
        actions, after = present()._choose_actions(rows, module_id, explore, rng, state, action_mask, noise)
        return actions, None if after is None else acting.of(after)

    return Policy(
        act=act,
        encoder=encoder,
        action_space=module.action_space,
        begin=partial(noise.begin, module_id),
        initial_state=lambda: acting.of(initial_state(present().module[module_id])),
        content=lambda: policy_content(present(), module_id, encoder),
        record=lambda graph, batch: record_actions(present(), module_id, graph, batch),
    )


def critic_only_of(module: Any, config: Any) -> tuple[str, ...]:
    """The keys of an observation that a module does not read to act.

    Args:
        module: the RLModule; that of a user's own is believed in, or, where it was made without settings, the config.
        config: an `AlgorithmConfig`.

    Returns:
        The keys; none without the setting.

    Raises:
        ConfigError: the setting is no list of keys.
    """
    if module.network is not None:
        return tuple(module.network.critic_only)
    keys = module.model_config.get(CRITIC_ONLY, config.model_config.get(CRITIC_ONLY, ()))
    MODEL_SETTINGS[CRITIC_ONLY].check(CRITIC_ONLY, keys)
    return tuple(keys)


def _check_unread(learner: LearnerProtocol, module_id: ModuleID, encoder: ObservationEncoder) -> None:
    """Refuse a user's own module whose policy reads what the setting says that only its critics read."""
    parts = row_parts(encoder.space)
    rows = np.random.default_rng(0).integers(0, 2, (8, parts[-1].stop)).astype(encoder.row_space.dtype)
    changed = rows.copy()
    for part in parts:
        if part.is_of(encoder.unread):
            rows[:, part.start : part.stop], changed[:, part.start : part.stop] = 0, 1
    acted, other = (
        learner.compute_actions(each, module_id=module_id, explore=False) for each in (rows, changed)
    )
    column = Columns.ACTION_DIST_INPUTS if Columns.ACTION_DIST_INPUTS in acted else Columns.ACTIONS
    if not np.allclose(acted[column], other[column], rtol=1e-5, atol=1e-6):
        raise ConfigError(
            f"module {module_id!r} ({learner.module[module_id].class_name}): its {column} change with "
            f"{', '.join(map(repr, encoder.unread))}, which {CRITIC_ONLY} says that only critics read: a policy would "
            "act with zeros in their place. Leave them out of what computes the policy, or out of the setting",
            module_id=module_id,
        )


def reads_environment(config: Any, space: Any, env_observation_space: gym.Space[Any]) -> bool:
    """Whether a module that does not act in an environment with one agent could: its space is that of the rows.

    Args:
        config: an `AlgorithmConfig` with spaces.
        space: the module's observation space.
        env_observation_space: the environment's observation space.
    """
    rows = model_space(env_observation_space, normalized=config.normalize_observations)
    return bool(space == config.observation_space or space == rows)


def only_module_id(modules: Mapping[ModuleID, Any], module_id: ModuleID = DEFAULT_MODULE_ID) -> ModuleID:
    """Resolve a module id: the default id also finds a single module that has another id.

    Args:
        modules: by id.
        module_id: the id that was given.

    Returns:
        `module_id`, or the id of the only module.
    """
    if module_id == DEFAULT_MODULE_ID and module_id not in modules and len(modules) == 1:
        return next(iter(modules))
    return module_id


def env_module_id(modules: MultiRLModule) -> ModuleID:
    """The id of the module that acts in an environment with one agent: the default one, or the only one.

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
    """With `normalize_observations`, warn that a learner's policy has no statistics and takes normalised input."""
    if config.normalize_observations:
        warn_at_users_line(
            "normalize_observations=True: the statistics are the env runners', and a learner has none, so this policy "
            "takes observations that are normalised already. For those of the environment take "
            "Algorithm.get_policy() or plugrad.load_policy(path) with a checkpoint of an Algorithm"
        )
