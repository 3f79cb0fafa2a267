"""`plugrad.load_policy`: the policy of a run, a checkpoint or a policy file. Built-in networks need no framework."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import gymnasium as gym

from plugrad.checkpoint import Checkpoint, load_checkpoint
from plugrad.checkpoint.runs import checkpoint_of
from plugrad.config import Config
from plugrad.config.from_files import num_values, written_boxes
from plugrad.config.serialize import decode
from plugrad.errors import BackendNotFoundError, ConfigError, UnknownModuleError, did_you_mean
from plugrad.learner.acting.module_policy import (
    make_policy,
    only_module_id,
    reads_environment,
    warn_without_statistics,
)
from plugrad.learner.acting.policy_content import KIND, as_checkpoint, refuse_own_module
from plugrad.learner.learner import Learner
from plugrad.learner.modules.build import expect_weights
from plugrad.learner.state.checkpoint import (
    ENV_OBSERVATION_SPACE,
    ENV_OBSERVATION_SPACES,
    as_checkpoint_error,
    part_of,
)
from plugrad.learner.state.untrusted import config_of, refuse_own_modules
from plugrad.module_spec import MultiRLModuleSpec, spaces_of
from plugrad.observations import is_structured, model_space, row_parts, row_shape
from plugrad.policy import Policy
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.policy.policy_file import read_policy_file
from plugrad.rl_module import MultiRLModule
from plugrad.types import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, ModuleID, StrPath

_NUMPY = "numpy"
_WITHOUT_CODE = {name: info.make_default() for name, info in Config.fields().items() if info.names_code}
"""The settings that may name code, which acting does not need."""
_OF_ENVIRONMENTS = ("algorithm", KIND)
"""The kinds of checkpoints that know how their environment's observations become rows."""


def load_policy(
    path: StrPath,
    *,
    module_id: ModuleID = DEFAULT_MODULE_ID,
    module: Any = None,
    backend: str | None = None,
) -> Policy:
    """Load the policy of a run, of a checkpoint or of a file from `Policy.save`.

    It takes observations as the environment gives them, and normalises them with the statistics in the checkpoint if
    `normalize_observations` was set. A checkpoint of a Learner or LearnerGroup has no statistics: its policy takes
    observations as the learner got them, and a warning says so if they were normalised.

    Args:
        path: a run directory, whose best (else last) checkpoint is loaded; a checkpoint directory; one of its saves; or
            a policy file. Code that it names is never run.
        module_id: the module. The default id also finds a single module that has another id.
        module: your own module (an RLModule, a torch.nn.Module, a Keras model), which the checkpoint cannot make. An
            RLModule may be made with the environment's space or with the one that it had in training, which it gets.
        backend: the backend that computes; None: numpy for a built-in network without convolutions, else the backend
            that saved it, or numpy if that is not installed.

    Returns:
        The policy; `policy.predict(observation)` acts.

    Raises:
        CheckpointError: there is no checkpoint, or it cannot be read.
        ConfigError: the module has your own class, and `module` is not given; or `module` was made with an observation
            space of another shape.
        UnknownModuleError: there is no such module.
        RestoreMismatchError: the weights do not fit the module; lists the differences.
    """
    whole, saved = _read(Path(path))
    with as_checkpoint_error(whole):
        learner = acting_learner(saved, module_id, module, backend)
        module_id = only_module_id(learner.module, module_id)
        if whole.metadata.get("kind") not in _OF_ENVIRONMENTS:
            warn_without_statistics(learner.config)
            return make_policy(lambda: learner, module_id)
        rows = _space_of_rows(whole, learner.config, module_id)
        space = _env_observation_space(whole, module_id, rows)
        if space is None or not _reads_environment(whole, saved, learner.config, module_id, space):
            return make_policy(lambda: learner, module_id)
        if space != rows:  # as env runners make them; those of older checkpoints are equal, of another space
            rows = model_space(space, normalized=learner.config.normalize_observations)
        own = learner.module[module_id]
        if own.observation_space == space:  # it reads rows, as in training
            own.observation_space = rows
        return make_policy(
            lambda: learner,
            module_id,
            env_observation_space=space,
            rows=rows,
            normalizer=_normalizer(whole, learner.config, module_id, rows if is_structured(space) else space),
        )


def _read(path: Path) -> tuple[Checkpoint, Checkpoint]:
    """A checkpoint or a policy file, and the part of it that a learner saved."""
    if path.is_dir() or not path.exists():
        whole = load_checkpoint(checkpoint_of(path))
        return whole, part_of(whole, kind="learner")
    policy = as_checkpoint(read_policy_file(path))
    return policy, policy


class _Acting(Learner):
    """A learner of any algorithm that only acts: without loss, optimizers and target networks."""

    def compute_losses(self, *, fwd_out: Any, batch: Any) -> Any:
        raise NotImplementedError("a loaded policy does not learn: open the checkpoint in a Learner")

    def configure_optimizers(self) -> None:
        pass

    def get_target_parameters(self, module_id: ModuleID, config: Any = None) -> tuple[str, ...]:
        return ()

    def get_noise_columns(self, module_id: ModuleID, config: Any = None) -> dict[str, Any]:
        return {}


def acting_learner(
    saved: Checkpoint, module_id: ModuleID, module: Any = None, backend: str | None = None
) -> Learner:
    """A learner that only acts, with one module of a checkpoint.

    Args:
        saved: the part of a checkpoint that a learner saved.
        module_id: the module; see `load_policy`, also for the other arguments and the errors.
        module: a user's own.
        backend: that computes.

    Returns:
        The learner, built, with the module's weights.

    Raises:
        Exception: see `load_policy`.
    """
    if module is not None or backend is not None:
        return _build_learner(saved, module_id, module, backend)
    learner = _build_learner(saved, module_id, None, _NUMPY)
    network = learner.module[only_module_id(learner.module, module_id)].network
    if network is None or network.acts_in_numpy:
        return learner
    try:
        return _build_learner(saved, module_id, None, None)
    except BackendNotFoundError:  # numpy computes convolutions too, several times slower
        network.acts_in_numpy = True
        return learner


def _build_learner(saved: Checkpoint, module_id: ModuleID, module: Any, backend: str | None) -> Learner:
    """A learner with one module of a checkpoint, so that the other modules need not be built."""
    module_id = only_module_id(saved.state.get(COMPONENT_RL_MODULE, {}), module_id)
    given = (*_WITHOUT_CODE, "rl_module_spec")
    config = config_of(saved, backend=backend, given=given, to_act=True)
    config = config.changed(**_WITHOUT_CODE, num_learners=0, device="auto", compile="none")
    config = _keep_one_module(saved, config, module_id)
    if module is None:
        refuse_own_module(saved.metadata, saved.path)
        refuse_own_modules(config)
    elif not isinstance(module, MultiRLModule | dict):
        module = {module_id: module}
    learner = _Acting(config=config, module=module)
    with expect_weights(saved.state):  # shapes that do not fit are refused before anything is built
        learner.build()
    learner.set_state(_acting_state(saved, module_id))
    return learner


def _keep_one_module(saved: Checkpoint, config: Any, module_id: ModuleID) -> Any:
    known = list(saved.state.get(COMPONENT_RL_MODULE, {}))
    if module_id not in known:
        hint = did_you_mean(str(module_id), known)
        raise UnknownModuleError(
            f"{saved.path}: no module {module_id!r}; there are: {', '.join(known) or 'none'}.{hint}",
            module_id=module_id,
            known=known,
        )
    spec, policies = config.rl_module_spec, config.policies
    if isinstance(spec, MultiRLModuleSpec):
        spec = MultiRLModuleSpec(rl_module_specs={module_id: spec.rl_module_specs[module_id]})
    if policies is not None:
        policies = {module_id: policies[module_id]} if isinstance(policies, Mapping) else [module_id]
    return config.changed(rl_module_spec=spec, policies=policies, policies_to_train=())


def _acting_state(saved: Checkpoint, module_id: ModuleID) -> dict[str, Any]:
    """The weights of one module, and the coefficients that it explores with."""
    state = {COMPONENT_RL_MODULE: {module_id: saved.state[COMPONENT_RL_MODULE][module_id]}}
    coefficients = saved.state.get("coefficients", {})
    return state | (
        {"coefficients": {module_id: coefficients[module_id]}} if module_id in coefficients else {}
    )


def _reads_environment(
    whole: Checkpoint, saved: Checkpoint, config: Any, module_id: ModuleID, space: gym.Space[Any]
) -> bool:
    """Whether a module reads its environment's observations. Its object does not matter: the user may have made it."""
    if whole.metadata["kind"] == KIND or ENV_OBSERVATION_SPACES in whole.metadata:
        return True
    if only_module_id(saved.state[COMPONENT_RL_MODULE]) == module_id:  # the one that acts
        return True
    return reads_environment(config, spaces_of(config, module_id)[0], space)


def _normalizer(
    whole: Checkpoint, config: Any, module_id: ModuleID, space: Any
) -> ObservationNormalizer | None:
    if not config.normalize_observations:
        return None
    runner = whole.state.get("env_runner")
    if runner is None:
        warn_without_statistics(config)
        return None
    if "normalizers" in runner and module_id not in runner["normalizers"]:
        return None  # it has not acted yet
    normalizer = ObservationNormalizer.of_space(space, frozen=True)
    normalizer.set_state(
        runner["normalizers"][module_id] if "normalizers" in runner else runner["normalizer"]
    )
    return normalizer


def _env_observation_space(whole: Checkpoint, module_id: ModuleID, own: Any) -> gym.Space[Any] | None:
    """The environment's observation space; for older checkpoints `own`, the space of rows."""
    what, written = _written_space(whole, module_id)
    if written is None or own is None:
        return own  # type: ignore[no-any-return]
    length = prod(row_shape(own))
    found = sum(map(num_values, written_boxes(written)))
    if found > length:  # checked before it is made: a few bytes can describe any size
        raise ConfigError(f"{what} has {found} numbers, a row of the module {length}")
    space = decode(written)
    if not isinstance(space, gym.Space):
        raise ConfigError(f"{what} is {type(space).__name__}, not a space")
    if space != own and row_parts(space)[-1].stop != length:
        raise ConfigError(f"{what} has {row_parts(space)[-1].stop} numbers, a row of the module {length}")
    return space


def _space_of_rows(whole: Checkpoint, config: Any, module_id: ModuleID) -> Any:
    """The space of the rows that a module reads: the config's, or the module's own where modules differ."""
    own, common = spaces_of(config, module_id)[0], config.observation_space
    return own if common is None or ENV_OBSERVATION_SPACES in whole.metadata else common


def _written_space(whole: Checkpoint, module_id: ModuleID) -> tuple[str, Any]:
    """Where the space of a module's observations is written, for errors, and what is written there."""
    one, several = ENV_OBSERVATION_SPACE, ENV_OBSERVATION_SPACES
    if several not in whole.metadata:
        return f"{whole.path}: {one}", whole.metadata.get(one)
    spaces = whole.metadata[several]
    return f"{whole.path}: {several}[{module_id!r}]", spaces.get(module_id) if isinstance(
        spaces, dict
    ) else None
