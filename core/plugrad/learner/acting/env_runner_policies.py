"""`ModulePolicies`: a learner's modules as the policies of an env runner, for one agent or many."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from gymnasium.spaces import Box

from plugrad.config.sampling_settings import tensors_refused
from plugrad.learner.acting.module_policy import env_module_id
from plugrad.learner.acting.tensors import NoiseAhead, why_not_in_tensors
from plugrad.learner.learner import Learner
from plugrad.learner.peers import ACTIONS
from plugrad.learner.update.connectors import check_connects_steps, connect_steps, initial_state
from plugrad.learner.update.on_device import on_device
from plugrad.module_spec import spaces_of
from plugrad.observations import choices_of_rows
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.rl_module import MultiRLModule
from plugrad.rng_streams import stream
from plugrad.sampling import make_env_runner
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.environments import get_env_observation_spaces, is_multi_agent
from plugrad.sampling.multi_agent.env_runner import MultiAgentEnvRunner
from plugrad.sampling.tensor_env_runner import TensorEnvRunner
from plugrad.sampling.tensor_envs import Tensors
from plugrad.sampling.vectorization import get_env_spaces, make_vector_envs
from plugrad.sampling.watched_episodes import ENDED, SAMPLED, STARTED, STEPPED, EpisodeNotifier
from plugrad.spaces.kinds import is_array, is_one_hot, number_of_choices
from plugrad.types import Array, ModuleID, Tensor

AnyEnvRunner: TypeAlias = EnvRunner | MultiAgentEnvRunner
Normalizers: TypeAlias = Mapping[ModuleID, ObservationNormalizer]
NormalizerT = TypeVar("NormalizerT", bound=ObservationNormalizer)


def acting_module_ids(config: Any, modules: MultiRLModule) -> list[ModuleID]:
    """The modules that may act in the environment of a config.

    Args:
        config: an `AlgorithmConfig` with an environment.
        modules: a learner's modules.

    Returns:
        All modules with many agents, else one.

    Raises:
        ConfigError: there is one agent, and there are several modules, none with the default id.
    """
    return list(modules) if is_multi_agent(config) else [env_module_id(modules)]


def observation_normalizers(
    config: Any, module_ids: Iterable[ModuleID], kind: type[NormalizerT]
) -> dict[ModuleID, NormalizerT]:
    """New statistics of the observations that modules read in the environment of a config.

    Args:
        config: an `AlgorithmConfig` with an environment and spaces.
        module_ids: of `acting_module_ids`.
        kind: the class of the statistics.

    Returns:
        `{module_id: statistics}`; empty without `normalize_observations`.
    """
    if not config.normalize_observations:
        return {}
    # The module's own space: a module of an older checkpoint reads rows that are normalised as a whole.
    spaces = {module_id: spaces_of(config, module_id)[0] for module_id in module_ids}
    if any(_may_be_one_hot(space) for space in spaces.values()):  # only the environment knows
        spaces |= {
            module_id: space
            for module_id, space in _env_observation_spaces(config, spaces).items()
            if module_id in spaces and is_array(space) and number_of_choices(space) is not None
        }
    return {module_id: kind.of_space(space) for module_id, space in spaces.items()}


def _may_be_one_hot(space: Any) -> bool:
    """Whether rows of a space may be those of a discrete one."""
    return isinstance(space, Box) and bool((space.low == 0).all() and (space.high == 1).all())


def _env_observation_spaces(config: Any, module_ids: Iterable[ModuleID]) -> Mapping[ModuleID, Any]:
    if is_multi_agent(config):
        return get_env_observation_spaces(config)
    return dict.fromkeys(module_ids, get_env_spaces(config).observations)


class ModulePolicies:
    """Acts in environments with the modules of a learner.

    Args:
        present: returns the current learner.
        explore: whether to sample actions from the distributions; may be changed. Modules such as `RandomRLModule` draw
            also without.
        seed: seed of separate action streams; None: the learner's streams.
        normalizers: `{module_id: statistics}`, with which observations are normalised for a module.
    """

    def __init__(
        self,
        present: Callable[[], Learner],
        *,
        explore: bool = True,
        seed: int | None = None,
        normalizers: Normalizers | None = None,
    ) -> None:
        self._present = present
        self.explore = explore
        self._seed = seed
        self._normalizers = normalizers or {}
        self._streams: dict[ModuleID, Any] = {}

    def reseed(self, seed: int) -> None:
        """Draw all further actions from new streams of this seed."""
        self._seed = seed
        self._streams = {}

    def make_env_runner(
        self, config: Any, *, seed: int | None = None, normalizers: Normalizers | None = None
    ) -> AnyEnvRunner:
        """Make a single-agent or multi-agent env runner in which these modules act.

        Args:
            config: an `AlgorithmConfig` with an environment.
            seed: seed of the environments; None: random.
            normalizers: `{module_id: statistics}` instead of new ones.

        Returns:
            The env runner.

        Raises:
            ConfigError: the environment cannot be made, or has one agent for which several modules could act.
        """
        given = normalizers or {}
        if is_multi_agent(config):
            return MultiAgentEnvRunner(
                config=config, act=self, initial_state=self._initial_state, seed=seed, normalizers=given
            )
        module_id = env_module_id(self._present().module)
        return make_env_runner(
            config=config,
            act=partial(self, module_id),
            initial_state=partial(self._initial_state, module_id),
            seed=seed,
            normalizer=given.get(module_id),
            module_id=module_id,
            make_envs=partial(make_vector_envs, tensors=self._tensors(module_id)),
            begin=partial(self._begin, module_id),
        )

    def make_tensor_env_runner(
        self, config: Any, *, seed: int | None = None, normalizers: Normalizers | None = None
    ) -> TensorEnvRunner:
        """Make an env runner of environments of tensors, in which these modules act.

        Args:
            config: an `AlgorithmConfig` with `vectorization_mode="tensors"`.
            seed: seed of the environments; None: random.
            normalizers: `{module_id: statistics}` instead of new ones.

        Returns:
            The env runner.

        Raises:
            ConfigError: see `TensorEnvRunner`; or the module, or a connector piece, computes in numpy.
        """
        learner = self._present()
        module_id = env_module_id(learner.module)
        check_connects_steps(learner)
        if why := why_not_in_tensors(learner, module_id, explore=True):
            raise tensors_refused(why)

        def policy_of_sample(num_steps: int) -> Callable[[Tensor], dict[str, Tensor]]:
            learner = self._present()
            return partial(
                learner._compute_tensors,
                module_id=module_id,
                explore=True,
                rng=NoiseAhead(learner.stream(module_id, *ACTIONS), num_steps),
                values=False,
            )

        return TensorEnvRunner(
            config=config,
            policy_of_sample=policy_of_sample,
            connect=lambda steps: connect_steps(self._present(), steps),
            tensors=self._tensors(module_id),
            seed=seed,
            normalizer=(normalizers or {}).get(module_id),
            module_id=module_id,
        )

    def _tensors(self, module_id: ModuleID) -> Tensors:
        learner = self._present()

        def free_memory() -> int | None:
            found = learner.backend_info.free_memory
            return None if found is None else found(str(learner.device))

        return Tensors(
            learner.ops,
            lambda name, values: (
                learner._convert_batch_type({name: values})[name]
                if isinstance(values, np.ndarray)
                else on_device(learner, module_id, values, name)
            ),
            learner._convert_to_numpy,
            learner._computing_there,
            learner._as_program,
            learner.backend_info.write_rows,
            free_memory,
        )

    def tell_listeners(self, runner: AnyEnvRunner | TensorEnvRunner) -> None:
        """Let the learner's listeners hear of an env runner and, if they have hooks for them, of its episodes.

        Args:
            runner: one that has just been made.

        Raises:
            ConfigError: a listener would hear of steps, and the environments step elsewhere.
        """

        def notify(hook: str, **arguments: Any) -> None:
            self._present().notify(hook, env_runner=runner, **arguments)

        hooks = self._present()._listened_to((STARTED, STEPPED, ENDED, SAMPLED))
        if hooks:
            runner.notify_of_episodes(EpisodeNotifier(notify, hooks))
        notify("env_runner_built")

    def __call__(
        self, module_id: ModuleID, observations: Array, state: Any = None, **mask: Array
    ) -> Mapping[str, Any]:
        """Compute the actions of one module.

        Args:
            module_id: the module.
            observations: `[N, ...]`.
            state: for a recurrent module, `{name: [N, ...]}`.
            **mask: `action_mask` `[N, choices]` if the environment has masks.

        Returns:
            The columns of `Learner.compute_actions`, without values.
        """
        if module_id in self._normalizers:
            observations = self._normalizers[module_id].normalize(observations)
        learner = self._present()
        space = learner.module[module_id].observation_space
        # A module that was given choices as its space reads them, not an env runner's one-hot rows.
        if not isinstance(space, Box | None) and is_one_hot(space):
            observations = choices_of_rows(space, observations)
        return learner.compute_actions(
            observations,
            module_id=module_id,
            explore=self.explore,
            state=state,
            rng=self._rng(module_id),
            values=False,
            as_tensors=False,
            **mask,
        )

    def _begin(self, module_id: ModuleID, rows: Array | None) -> None:
        self._present()._begin_noise(module_id, rows)

    def _initial_state(self, module_id: ModuleID) -> Mapping[str, Array]:
        return initial_state(self._present().module[module_id])

    def _rng(self, module_id: ModuleID) -> Any:
        if self._seed is None:
            return None
        if module_id not in self._streams:
            self._streams[module_id] = stream(self._seed, "actions", module_id)
        return self._streams[module_id]
