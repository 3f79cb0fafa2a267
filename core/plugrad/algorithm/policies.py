"""What an Algorithm does with its policies: sample, evaluate, record."""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import gymnasium as gym

from plugrad.checkpoint import Checkpoint
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.env_runners.remote_env_runners import RemoteEnvRunners
from plugrad.episodes import Episode, SingleAgentEpisode, episodes_by_module
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.group.acting_learner import ActingLearner
from plugrad.learner import Learner
from plugrad.learner.acting.env_runner_policies import (
    AnyEnvRunner,
    ModulePolicies,
    acting_module_ids,
    observation_normalizers,
)
from plugrad.learner.acting.module_policy import env_module_id, make_policy, only_module_id, reads_environment
from plugrad.learner.modules.build import with_spaces
from plugrad.learner.state.checkpoint import as_checkpoint_error, check_spaces
from plugrad.module_spec import spaces_of
from plugrad.observations import model_space
from plugrad.offline import EpisodeData
from plugrad.policy import Policy
from plugrad.policy.normalization import ObservationNormalizer, RunningMoments
from plugrad.rng_streams import stream
from plugrad.sampling.env_calls import CallsEnvs
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.environments import (
    get_env_observation_spaces,
    is_multi_agent,
)
from plugrad.sampling.evaluation import evaluate, evaluation_settings, sample_episodes
from plugrad.sampling.logged_metrics import add_logged
from plugrad.sampling.named_envs import env_name, reward_threshold
from plugrad.sampling.tensor_env_runner import TensorEnvRunner
from plugrad.sampling.vectorization import get_env_spaces
from plugrad.sampling.wrappers import is_registered_without_limit
from plugrad.types import DEFAULT_MODULE_ID, ModuleID

_log = logging.getLogger("plugrad")

RunnerT = TypeVar("RunnerT", bound=AnyEnvRunner | TensorEnvRunner)


class ActingAlgorithm:
    """The part of an `Algorithm` that acts in environments.

    Attributes:
        config: the settings in use, with the seed.
        env_runner: samples `config.env`; None if the config `is_offline`.
    """

    config: Any
    env_runner: AnyEnvRunner | TensorEnvRunner | RemoteEnvRunners | None
    _acting: ActingLearner
    _evaluator: AnyEnvRunner | None
    _has_warned = False
    _recorded_normalizers: Mapping[ModuleID, ObservationNormalizer] = MappingProxyType({})

    @property
    def _learner(self) -> Learner:
        return self._acting.learner

    def _make_training_env_runner(self) -> AnyEnvRunner | TensorEnvRunner | RemoteEnvRunners:
        if not self.config.num_env_runners:
            policies = ModulePolicies(self._acting.get_synced)
            if self.config.gives_tensors:
                normalizers = self._make_normalizers(self.config)
                return self._heard(
                    policies,
                    policies.make_tensor_env_runner(
                        self.config, seed=self.config.seed, normalizers=normalizers
                    ),
                )
            return self._make_heard_env_runner(policies, self.config, seed=self.config.seed)
        acting = self._acting
        return RemoteEnvRunners(
            self.config,
            lambda: acting.get_weights(*self._acting_module_ids),
            lambda: acting.version,
            self._make_normalizers(self.config),
        )

    def _make_heard_env_runner(
        self, policies: ModulePolicies, config: Any, *, seed: int | None = None, in_evaluation: bool = False
    ) -> AnyEnvRunner:
        """An env runner in this process of which listeners hear."""
        runner = policies.make_env_runner(config, seed=seed, normalizers=self._make_normalizers(config))
        runner.in_evaluation = in_evaluation
        return self._heard(policies, runner)

    def _heard(self, policies: ModulePolicies, runner: RunnerT) -> RunnerT:
        with ExitStack() as made:
            made.callback(runner.close)
            policies.tell_listeners(runner)
            made.pop_all()
        return runner

    @property
    def env_runners(self) -> CallsEnvs:
        """Calls the environments that training samples: `env_runners.call("set_level", 3)`, `get_attr`, `set_attr`.

        Raises:
            ConfigError: the config `is_offline`.
        """
        if self.env_runner is None:
            raise ConfigError(f"{type(self.config).__name__} is offline: it has no environments to call")
        return self.env_runner

    @cached_property
    def _is_multi_agent(self) -> bool:
        return is_multi_agent(self.config)

    @property
    def _acting_module_ids(self) -> list[ModuleID]:
        """The modules that may act in the environment."""
        return acting_module_ids(self.config, self._learner.module)

    def _env_observation_space(self, module_id: ModuleID) -> gym.Space[Any] | None:
        """The space of the environment's observations that a module reads; None if it reads none."""
        spaces = self._env_observation_spaces
        if self._is_multi_agent or module_id in spaces or not spaces:
            return spaces.get(module_id)
        space = next(iter(spaces.values()))
        own = self._learner.module[module_id].observation_space
        return space if reads_environment(self.config, own, space) else None

    @cached_property
    def _env_observation_spaces(self) -> Mapping[ModuleID, gym.Space[Any]]:
        config = self.config
        if config.env is None:
            return {}
        if self._is_multi_agent:
            return get_env_observation_spaces(config)
        if isinstance(self.env_runner, EnvRunner | TensorEnvRunner):
            space = self.env_runner.env_observation_space
        else:
            space = get_env_spaces(config).observations
        return dict.fromkeys(self._acting_module_ids, space)

    @property
    def _normalizers(self) -> Mapping[ModuleID, ObservationNormalizer]:
        return self._recorded_normalizers if self.env_runner is None else self.env_runner.normalizers

    def normalize_recorded(self, episodes: Sequence[SingleAgentEpisode]) -> list[SingleAgentEpisode]:
        """Recorded episodes as modules see them with `normalize_observations`, for an offline algorithm.

        Statistics are those of all these observations, unless there are some: of a checkpoint whose weights know them.

        Args:
            episodes: with observations of the environment.

        Returns:
            Those of modules that act, with normalised observations.
        """
        own = [each for each in episodes if each.module_id in self._acting_module_ids]
        if not self._recorded_normalizers:
            self._recorded_normalizers = self._make_normalizers(self.config)
            for each in own:
                self._recorded_normalizers[each.module_id].update(each.observations)
        normalizers = self._recorded_normalizers
        return [
            replace(each, observations=normalizers[each.module_id].normalize(each.observations))
            for each in own
        ]

    def get_statistics(self) -> dict[str, Any]:
        """The statistics by which env runners scale what modules see: weights alone act otherwise without them.

        Returns:
            `{"observations": {module_id: state}, "rewards": state}`, for `set_statistics`: those of
            `normalize_observations` by module, empty without it, and of `normalize_rewards`, None without it. A state
            is `{"count": int, "mean": float64 [...], "m2": float64 [...]}`.
        """
        rewards = getattr(self.env_runner, "reward_normalizer", None)
        return {
            "observations": {module_id: each.get_state() for module_id, each in self._normalizers.items()},
            "rewards": None if rewards is None else rewards.get_state(),
        }

    def set_statistics(self, statistics: Mapping[str, Any]) -> None:
        """Replace the statistics of `normalize_observations` and `normalize_rewards`, beside `set_weights`.

            other.learner_group.set_weights(algorithm.learner_group.get_weights())
            other.set_statistics(algorithm.get_statistics())

        Args:
            statistics: of `get_statistics`, or a part of it: modules that are missing keep theirs.

        Raises:
            RestoreMismatchError: this algorithm does not normalise what there are statistics of, or they do not fit.
                Nothing was changed.
        """
        for state, normalizer in self._check_statistics(statistics):
            normalizer.set_state(state)

    def _check_statistics(self, statistics: Mapping[str, Any]) -> list[tuple[Any, RunningMoments]]:
        """The states with what they are of; an error if one does not fit."""
        rewards = getattr(self.env_runner, "reward_normalizer", None)
        pairs: list[tuple[Any, RunningMoments | None, str, str]] = [
            (each, self._normalizers.get(name), "normalize_observations", f"observations/{name}")
            for name, each in statistics.get("observations", {}).items()
        ]
        if statistics.get("rewards") is not None:
            pairs.append((statistics["rewards"], rewards, "normalize_rewards", "rewards"))
        checked: list[tuple[Any, RunningMoments]] = []
        for state, normalizer, setting, name in pairs:
            if normalizer is None:
                known = ", ".join(self._normalizers) or "no module"
                raise RestoreMismatchError(
                    f"there are statistics of {name}, and nothing here that has them: {setting}="
                    f"{getattr(self.config, setting)}, observations of {known} are normalised. Nothing was changed",
                    unexpected=[name],
                )
            deepcopy(normalizer).set_state(state)
            checked.append((state, normalizer))
        return checked

    def _statistics_in(
        self, whole: Checkpoint, checkpoint: Checkpoint, loaded: Collection[ModuleID]
    ) -> dict[str, Any]:
        """The statistics that go with the weights of some modules, for `set_statistics`.

        Args:
            whole: a checkpoint of an Algorithm or a learner.
            checkpoint: its part that is of a learner.
            loaded: the modules whose weights will be loaded.

        Raises:
            RestoreMismatchError: the weights saw normalised observations and this run has others, or the other way
                round; or the statistics do not fit.
            SpaceMismatchError: it was trained in other spaces.
        """
        runner = whole.state.get("env_runner")
        saved = runner if isinstance(runner, Mapping) else {}
        several, one, rewards = (
            saved.get(each) for each in ("normalizers", "normalizer", "reward_normalizer")
        )
        _check_normalizes(checkpoint, self.config, has_statistics=bool(several or one))
        if self.env_runner is None and not self._normalizers:
            return {}
        modules = [each for each in self._acting_module_ids if each in loaded]
        spaces = {each: space for each, space in self._env_observation_spaces.items() if each in loaded}
        with as_checkpoint_error(checkpoint):
            allowed = self.config.allow_other_bounds
            check_spaces(self.config, checkpoint, spaces, module_ids=modules, allow_other_bounds=allowed)
        states = several or ({} if one is None else dict.fromkeys(modules, one))
        states = {each: state for each, state in states.items() if each in modules}
        missing = [each for each in modules if each in self._normalizers and each not in states]
        lacking = [f"normalize_observations of {', '.join(missing)}"] if missing else []
        if not modules or not self.config.normalize_rewards:
            rewards = None
        if modules and checkpoint.metadata["config"].get("normalize_rewards", False):
            if not self.config.normalize_rewards:
                warn_at_users_line(
                    f"{checkpoint.path} is of a run with normalize_rewards, and this one is without it: the weights "
                    "are loaded, and the values that they predict are of rewards on another scale. To keep that scale, "
                    "build with .env_runners(normalize_rewards=True)"
                )
            elif rewards is None:
                lacking.append("normalize_rewards")
        if lacking:
            warn_at_users_line(
                f"{checkpoint.path} has no statistics of {' and of '.join(lacking)}: the weights are loaded and the "
                "statistics stay as they are, so these modules see other numbers than in training. Load the checkpoint "
                "of an Algorithm, or call set_statistics"
            )
        statistics = {"observations": states, "rewards": rewards}
        with as_checkpoint_error(checkpoint):
            self._check_statistics(statistics)
        return statistics

    def _make_normalizers(self, config: Any) -> dict[ModuleID, ObservationNormalizer]:
        return observation_normalizers(config, self._acting_module_ids, ObservationNormalizer)

    def get_policy(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> Policy:
        """The policy of a module: it maps observations of the environment to actions for `env.step`.

        `predict` uses the current weights and the current statistics of `normalize_observations`.
        `plugrad.load_policy` gives the policy of a checkpoint.

        Args:
            module_id: the module. The default id also finds a single module that has another id.

        Raises:
            UnknownModuleError: there is no such module.
        """
        module_id = only_module_id(self._learner.module, module_id)
        normalizers = (
            self._normalizers
            if self._is_multi_agent
            else dict.fromkeys([module_id], next(iter(self._normalizers.values()), None))
        )
        return make_policy(
            self._acting.get_synced,
            module_id,
            env_observation_space=self._env_observation_space(module_id),
            normalizer=normalizers.get(module_id),
        )

    @property
    def env_spec_reward_threshold(self) -> float | None:
        """The mean return at which the environment counts as solved, from its Gymnasium registration; or None."""
        return reward_threshold(self.config.env)

    @cached_property
    def _evaluation_policies(self) -> ModulePolicies:
        return ModulePolicies(self._acting.get_synced)

    def evaluate(
        self, num_episodes: int | None = None, seed: int | None = None, *, explore: bool | None = None
    ) -> dict[str, Any]:
        """Play whole episodes with the policy in `config.evaluation_env`, or in the environment of training.

        Evaluation has its own random stream, so these are not episodes that training plays. An episode that does not
        end is cut at `config.evaluation_max_episode_steps`, with a line in the log.

        Args:
            num_episodes: episodes; None: `config.evaluation_num_episodes`.
            seed: the same seed and policy give the same episodes. None: the config's seed.
            explore: act with exploration, as in training; None: `config.evaluation_explore`.

        Returns:
            `episode_return_mean`, `episode_return_min`, `episode_return_max`, `episode_len_mean` (in steps) and
            `num_episodes`. With many agents a return is the sum over all agents, and there are also
            `agent_episode_returns_mean/<agent>` and `module_episode_returns_mean/<module>`, means over the episodes in
            which the agent or module took part. With `info_metrics` there are their means, `info/<name>`.

        Raises:
            ConfigError: the config names no environment.
        """
        if self._evaluator is None:
            self._warn_of_no_time_limit()
            self._evaluator = self._make_heard_env_runner(
                self._evaluation_policies, self._evaluation_config, in_evaluation=True
            )
        self._learner.notify("evaluation_begun", algorithm=self)
        self._evaluator.logged.take_new()
        if not isinstance(self._evaluator, EnvRunner):  # modules and their agents may have changed
            self._evaluator.config = self._evaluation_config
        if self._normalizers:
            self._evaluator.normalizers = {
                module_id: each.frozen_copy() for module_id, each in self._normalizers.items()
            }
        number = num_episodes or self.config.evaluation_num_episodes
        env_seed = self._env_seed("evaluation", seed)
        self._evaluation_policies.reseed(env_seed)
        self._evaluation_policies.explore = self.config.evaluation_explore if explore is None else explore
        limit = self.config.evaluation_max_episode_steps
        found = evaluate(self._evaluator, num_episodes=number, seed=env_seed, max_steps=limit)
        results = {
            "episode_return_mean": sum(found.returns) / number,
            "episode_return_min": min(found.returns),
            "episode_return_max": max(found.returns),
            "episode_len_mean": sum(found.lengths) / number,
            "num_episodes": number,
            **{name: sum(each) / len(each) for name, each in found.returns_by_name.items()},
        }
        add_logged(results, self._evaluator.logged.take(only_new=True))
        self._learner.notify("evaluation_ended", algorithm=self, results=results)
        return results

    @property
    def _evaluation_config(self) -> Any:
        """The settings for evaluations: with their environment, and rewards and episodes as this has them."""
        config = self.config
        changes = evaluation_settings(config)
        if config.evaluation_env is not None:
            changes |= {"env": config.evaluation_env, "env_config": {}}
        if config.evaluation_env_config is not None:
            changes |= {"env_config": config.evaluation_env_config}
        return config.changed(**changes)

    def _warn_of_no_time_limit(self) -> None:
        """Say once that episodes of an evaluation may have no end."""
        config = self._evaluation_config
        if self._has_warned or not is_registered_without_limit(config):
            return
        self._has_warned = True
        limit = self.config.evaluation_max_episode_steps
        end = "never ends" if limit is None else f"is cut at evaluation_max_episode_steps={limit}"
        _log.warning(
            "%s is registered without a limit of steps: if it counts none itself, an episode in which a policy without "
            "exploration goes on for ever %s; env_runners(time_limit=...) sets a limit for training too",
            env_name(config.env),
            end,
        )

    def record(
        self,
        num_episodes: int,
        *,
        seed: int | None = None,
        explore: bool = False,
        module_id: ModuleID = DEFAULT_MODULE_ID,
    ) -> EpisodeData:
        """Record whole episodes of a policy, for `plugrad.offline.save_episodes`.

        Observations are recorded as the environment gives them, even if the policy sees them normalised. Recording has
        its own random stream, as evaluation has.

        Args:
            num_episodes: episodes of the environment, >= 1.
            seed: the same seed and policy give the same episodes. None: the config's seed.
            explore: act with exploration, as in training.
            module_id: with many agents, the module whose agents' episodes are recorded, one for each agent. The default
                id also finds a single module that has another id.

        Returns:
            The episodes and the spaces of the environment.

        Raises:
            ConfigError: the config names no environment, or the module did not act in any of the episodes.
            UnknownModuleError: there is no such module.
        """
        module_id = only_module_id(self._learner.module, module_id)
        _ = self._learner.module[module_id]
        runner, episodes = self._play(num_episodes, seed=seed, explore=explore)
        own = episodes_by_module(episodes).get(module_id)
        if not own:
            raise ConfigError(
                f"no agent of module {module_id!r} played in {num_episodes} episodes: name a module that "
                f"agent_to_module chooses, of {', '.join(self._learner.module)}",
                module_id=module_id,
            )
        spaces: dict[str, Any] = {"action_space": self._learner.module[module_id].action_space}
        if isinstance(runner, EnvRunner):
            spaces = {"observation_space": runner.observation_space, "action_space": runner.action_space}
        else:
            spaces["observation_space"] = model_space(self._env_observation_spaces[module_id])
        return EpisodeData(episodes=own, **spaces)

    def play(self, num_episodes: int, *, seed: int | None = None, explore: bool = False) -> list[Episode]:
        """Play whole episodes, as `record` does.

        Args:
            num_episodes: episodes of the environment, >= 1.
            seed: as in `record`.
            explore: as in `record`.

        Returns:
            The episodes; with many agents, `MultiAgentEpisode`s.

        Raises:
            ConfigError: the config names no environment.
        """
        return self._play(num_episodes, seed=seed, explore=explore)[1]

    def _play(
        self, num_episodes: int, *, seed: int | None, explore: bool
    ) -> tuple[AnyEnvRunner, list[Episode]]:
        env_seed = self._env_seed("recording", seed)
        # Actions have their own streams: recording changes nothing that training draws.
        policies = ModulePolicies(
            self._acting.get_synced, explore=explore, seed=env_seed, normalizers=self._normalizers
        )
        config = self.config.changed(**evaluation_settings(self.config), normalize_observations=False)
        if self.config.normalize_observations:  # the config's spaces are those of normalised observations
            seen = {each: model_space(space) for each, space in self._env_observation_spaces.items()}
            if self._is_multi_agent:
                config = with_spaces(
                    config, spaces={each: (space, spaces_of(config, each)[1]) for each, space in seen.items()}
                )
            else:
                config = config.changed(observation_space=seen[env_module_id(self._learner.module)])
        with closing(policies.make_env_runner(config)) as runner:
            limit = self.config.evaluation_max_episode_steps
            return runner, sample_episodes(runner, num_episodes=num_episodes, seed=env_seed, max_steps=limit)

    def _env_seed(self, purpose: str, seed: int | None) -> int:
        """The seed of the environments for one purpose, derived from the given seed or the config's."""
        chosen = self.config.seed if seed is None else seed
        return int(stream(chosen, "environments", purpose).integers(2**63))


def _check_normalizes(checkpoint: Checkpoint, config: Any, *, has_statistics: bool) -> None:
    """Refuse weights that saw normalised observations where this run has others, and the other way round."""
    here = bool(config.normalize_observations)
    if checkpoint.metadata["config"].get("normalize_observations", has_statistics) != here:
        then, now = ("without", "with") if here else ("with", "without")
        raise RestoreMismatchError(
            f"{checkpoint.path} is of a run {then} normalize_observations, and this one is {now} it: its weights would "
            f"see other numbers than in training; set .env_runners(normalize_observations={not here}). Nothing was "
            "changed",
            **{"missing" if here else "unexpected": ["normalizer"]},
        )
