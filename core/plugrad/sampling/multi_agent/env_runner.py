"""The env runner of environments with many agents: steps them with the policies of modules and returns episodes."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.episodes import MultiAgentEpisode
from plugrad.errors import ConfigError
from plugrad.policy.actions import random_action_sampler
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.rng_streams import fresh_seed, stream
from plugrad.sampling.base_env_runner import BaseEnvRunner
from plugrad.sampling.env_calls import EnvCall
from plugrad.sampling.environments import make_multi_agent_env
from plugrad.sampling.info_metrics import warn_of_missing
from plugrad.sampling.multi_agent.acting_modules import ActingModules, InitialState
from plugrad.sampling.multi_agent.agent_track import AgentTrack
from plugrad.sampling.multi_agent.metrics import MultiAgentMetrics
from plugrad.sampling.multi_agent.module_batches import ModuleBatches, MultiAgentPolicyFunction
from plugrad.sampling.multi_agent.module_spaces import action_spaces_of_agents
from plugrad.sampling.multi_agent.replayable_agent_env import ReplayableAgentEnv
from plugrad.sampling.multi_agent.running_episode import (
    RunningMultiAgentEpisode,
    get_running_state,
    set_running_state,
)
from plugrad.sampling.named_envs import env_name
from plugrad.sampling.watched_episodes import EpisodeNotifier, WatchedEpisode
from plugrad.sampling.wrappers import EnvWrappers
from plugrad.types import Array, ModuleID


class RandomPolicies:
    """Draws uniformly random actions for all modules; recurrent states go on as if the modules had acted.

    Args:
        act: the policies of the modules.
        modules: that act, `{module_id: ...}`; later ones may be added to it.
        max_agents: that one module acts for at once.
        seed: of the draws.
        name: of the streams, with the module's id.
    """

    def __init__(
        self,
        act: MultiAgentPolicyFunction,
        modules: Callable[[], Mapping[ModuleID, ModuleBatches]],
        *,
        max_agents: int,
        seed: int,
        name: str,
    ) -> None:
        self._act, self._modules = act, modules
        self._max_agents, self._seed, self._name = max_agents, seed, name
        self._draw: dict[ModuleID, Callable[..., Array]] = {}

    def __call__(
        self, module_id: ModuleID, observations: Array, state: Mapping[str, Array] | None, **mask: Array
    ) -> dict[str, Any]:
        """The columns of one module.

        Args:
            module_id: the module.
            observations: `[N, ...]`.
            state: of a recurrent module, `{name: [N, ...]}`.
            **mask: `action_mask` `[N, choices]` if the agents have masks.

        Returns:
            The actions, and the next state of a recurrent module.
        """
        if module_id not in self._draw:
            rng = stream(self._seed, "random_actions", self._name, module_id)
            space = self._modules()[module_id].action_space
            self._draw[module_id] = random_action_sampler(space, self._max_agents, rng)
        actions = np.asarray(self._draw[module_id](**mask))[: len(observations)]
        if state is None:
            return {Columns.ACTIONS: actions}
        after = self._act(module_id, observations, state, **mask)[Columns.STATE_OUT]
        return {Columns.ACTIONS: actions, Columns.STATE_OUT: after}


class MultiAgentEnvRunner(BaseEnvRunner[MultiAgentEpisode]):
    """Samples episodes from `config.num_envs_per_env_runner` environments with many agents.

    In each step all observations that wait for an action of one module, over all environments and agents, are one
    batch for its policy. Steps are environment steps. Observations and actions are stored as in `EnvRunner`.

    An episode that is still running when `sample()` returns is handed out as a chunk that is not done. An action whose
    outcome its agent has not seen yet is part of the next chunk.

    Args:
        config: the settings.
        act: the policies, `act(module_id, observations, state, **mask)`; see `MultiAgentPolicyFunction`.
        initial_state: `initial_state(module_id)`, see `InitialState`. None: no module is recurrent.
        seed: seeds the environments: the same seed and policies give the same episodes. None: from the system.
        normalizers: `{module_id: statistics}` to use in place of new ones.

    Raises:
        ConfigError: the environment cannot be made, or `agent_to_module` does not fit it.
        SpaceMismatchError: the settings have spaces of a module, and those of its agents do not fit them.
        EnvContractError: by `sample()`, if an environment breaks its contract, or gives a NaN or infinite number.
    """

    def __init__(
        self,
        *,
        config: Config,
        act: MultiAgentPolicyFunction,
        initial_state: InitialState | None = None,
        seed: int | None = None,
        normalizers: Mapping[ModuleID, ObservationNormalizer] | None = None,
    ) -> None:
        for name, info in type(config).fields().items():
            value = getattr(config, name)
            if info.with_many_agents and value not in info.off:
                raise ConfigError(
                    f"{name}={value!r} is for environments with one agent, and {env_name(config.env)} has many: "
                    f"{info.with_many_agents}",
                    field=name,
                )
        self._act = act
        self._config = config
        self._envs = self._make_envs()
        self._modules = ActingModules(self._envs[0].agent_env, config, initial_state, normalizers)
        self._metrics = MultiAgentMetrics()
        self._counted = self._metrics.episodes
        self._running: list[RunningMultiAgentEpisode] | None = None
        self._watched: dict[int, WatchedEpisode] | None = None
        self._ended_in_last_sample: Sequence[RunningMultiAgentEpisode] = ()
        self.reset(seed)

    @property
    def config(self) -> Config:
        """The settings; a changed `agent_to_module` holds for agents that arrive from now on.

        If a module is no longer there whose agents are in a running episode, new episodes begin.
        """
        return self._config

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config
        gone = self._modules.set_config(config)
        if self._running is not None and any(episode.module_ids & gone for episode in self._running):
            self._restart_all()
        self._modules.drop(gone)

    @property
    def num_envs(self) -> int:
        """The number of environments that step together."""
        return len(self._envs)

    @property
    def counts_by_name(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """`({name: returns}, {name: steps})` of the agents and modules in the last `sample()`."""
        return self._metrics.by_name_in_last_sample

    def _sample(self, num_steps: int, random_actions: bool) -> list[MultiAgentEpisode]:
        running = self._begin_everywhere() if self._running is None else self._running
        policies = self._random_policies() if random_actions else self._act
        ended = [each for _ in range(num_steps) for each in self._step(policies, running)]
        self._running = running
        return self._make_episodes(ended, running)

    def get_metrics(self) -> dict[str, float]:
        """Counts of the last `sample()`, and means over the last 20 finished episodes.

        Returns:
            As `EnvRunner.get_metrics`, where an episode's return is the sum over its agents. Beside it
            `agent_episode_returns_mean/<agent>`, `module_episode_returns_mean/<module>`,
            `num_agent_steps_sampled/<agent>` and `num_module_steps_sampled/<module>`.
        """
        found = self._metrics.get_metrics()
        warn_of_missing(tuple(self._config.info_metrics), found)
        return found

    def info_metrics_of(self, id_: str) -> dict[str, float]:
        """See `EnvRunner.info_metrics_of`."""
        for episode in [*self._ended_in_last_sample, *(self._running or ())]:
            if episode.id_ == id_:
                parts = [track.info_metrics_of_agent() for track in episode.tracks.values()]
                return {name: value for part in parts for name, value in part.items()}
        return {}

    @property
    def normalizers(self) -> dict[ModuleID, ObservationNormalizer]:
        """The statistics that scale the observations of each module: those given, and of modules that have acted."""
        return self._modules.normalizers

    @normalizers.setter
    def normalizers(self, normalizers: Mapping[ModuleID, ObservationNormalizer]) -> None:
        self._modules.normalizers = dict(normalizers)

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`: counters, metrics, statistics of observations and running episodes.

        Returns:
            A dict of arrays and plain values. Running episodes are saved as seeds and actions under `running`. It is
            None if one has more than `replayable_env.MAX_ACTIONS` steps. Call `truncate()` after saving such a state.
        """
        return {
            **self._metrics.get_state(),
            "normalizers": {module_id: each.get_state() for module_id, each in self.normalizers.items()},
            "running": None
            if self._running is None
            else get_running_state(self._running, self._modules.by_id),
            **({"num_restarts": self._num_restarts} if self._num_restarts else {}),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`, in the middle of the running episodes.

        They are replayed from their seeds and actions, and compared with the saved observations. An environment that
        does not repeat itself begins a new episode, with a warning. If the state holds no running episodes, or those of
        another number of environments, new ones begin everywhere, seeded by the runner's seed and `total_steps`.

        Raises:
            RestoreMismatchError: the state has statistics of observations and this runner does not normalise, or the
                other way round. Nothing was changed.
        """
        self._modules.set_statistics(state["normalizers"])
        self._metrics.set_state(state)
        self._num_restarts = int(state.get("num_restarts", 0))
        self._restart_all()
        running = state["running"]
        if running is not None and len(running["episodes"]) == self.num_envs:
            ids = [each["id"] for each in running["episodes"]]
            episodes = [self._new_episode(index, id_) for index, id_ in enumerate(ids)]
            self._modules.clear()
            self._watched = None if self._watched is None else {}
            set_running_state(running, episodes, self._modules, self._begin)
            self._running = episodes

    def truncate(self) -> None:
        """Drop running episodes that `get_state` cannot hold, as a runner that is restored from that state does.

        So a run that saves and goes on equals one that is resumed from the save.
        """
        if self._running is not None and not all(env.can_replay for env in self._envs):
            self._restart_all()

    @property
    def envs(self) -> Sequence[Any]:
        """See `BaseEnvRunner`."""
        return [each.agent_env.env for each in self._envs]

    def _notify_of_steps(self, notifier: EpisodeNotifier) -> None:
        self._watched = {}

    def _call_envs(self, call: EnvCall) -> list[Any]:
        return [call.run(each.agent_env.env, each.name) for each in self._envs]

    def _make_envs(self) -> list[ReplayableAgentEnv]:
        config = self._config
        envs = [
            make_multi_agent_env(config.env, config.env_config, wrappers=EnvWrappers.of(config))
            for _ in range(config.num_envs_per_env_runner)
        ]
        spaces = action_spaces_of_agents(envs[0], config)
        return [ReplayableAgentEnv(env, spaces) for env in envs]

    def _make_envs_anew(self) -> None:
        self.close()
        self._envs = self._make_envs()

    def close(self) -> None:
        """Close the environments; calling it again does nothing."""
        for env in self._envs:
            env.close()

    # --- stepping -----------------------------------------------------------------------------------------------

    def _schedule_reset(self, entropy: tuple[int, ...]) -> None:
        self._entropy = entropy
        self._running = None

    def _begin_everywhere(self) -> list[RunningMultiAgentEpisode]:
        self._modules.clear()
        seeds: Sequence[int | None] = [None] * self.num_envs
        if self._entropy:
            seeds = np.random.SeedSequence(self._entropy).generate_state(self.num_envs).tolist()
        for env, seed in zip(self._envs, seeds, strict=True):
            env.begin_series(seed)
        running = [self._begin(index) for index in range(self.num_envs)]
        self._modules.encode()
        return running

    def _begin(self, index: int) -> RunningMultiAgentEpisode:
        self._counted.num_episodes_begun += 1
        episode = self._new_episode(index, str(self.num_episodes_begun))
        with self.clock:
            episode.begin()
        if self._watched is not None and self._notifier is not None:
            self._watched[index] = watched = self._newly_watched(index, episode, 0)
            observations, infos = episode.first
            self._notifier.started(watched, deepcopy(dict(observations)), dict(infos))
        return episode

    def _newly_watched(self, index: int, episode: RunningMultiAgentEpisode, t_started: int) -> WatchedEpisode:
        return WatchedEpisode(
            episode.id_,
            self.envs[index],
            index,
            t_started,
            agent_to_module={agent: track.module_id for agent, track in episode.tracks.items()},
        )

    def _say_step(self, index: int, episode: RunningMultiAgentEpisode) -> None:
        """Let listeners hear of the step that an episode has just taken."""
        if self._watched is None or self._notifier is None or episode.outcome is None:
            return
        if index not in self._watched:  # a resumed run replayed it: its past is not known
            self._watched[index] = self._newly_watched(index, episode, episode.progress.step - 1)
        watched, outcome = self._watched[index], episode.outcome
        watched.agent_to_module |= {agent: track.module_id for agent, track in episode.tracks.items()}
        watched.terminated, watched.truncated = episode.terminated, episode.truncated
        observations = deepcopy(dict(outcome.observations))  # the environment may write into them
        rewards, infos = dict(outcome.rewards), dict(outcome.infos)
        self._notifier.stepped(watched, episode.acted, observations, rewards, infos)

    def _new_episode(self, index: int, id_: str) -> RunningMultiAgentEpisode:
        return RunningMultiAgentEpisode(
            self._envs[index], index, id_, self._modules.of_agent, self._config.info_metrics
        )

    def _random_policies(self) -> MultiAgentPolicyFunction:
        # The steps so far name the streams: they need no place in the state.
        return RandomPolicies(
            self._act,
            lambda: self._modules.by_id,
            max_agents=self.num_envs * len(self._envs[0].possible_agents),
            seed=fresh_seed() if self._seed is None else self._seed,
            name=str(self.total_steps),
        )

    def _step(
        self, policies: MultiAgentPolicyFunction, running: list[RunningMultiAgentEpisode]
    ) -> list[RunningMultiAgentEpisode]:
        """Step all environments once; the episodes that ended, in whose places new ones have begun."""
        for module in self._modules.by_id.values():
            module.act(policies)
        ended = []
        for index, episode in enumerate(running):
            with self.clock:
                episode.step()
            if self._watched is not None:
                self._say_step(index, episode)
            if episode.is_done:
                ended.append(episode)
                running[index] = self._begin(index)
        self._modules.encode()
        return ended

    def _make_episodes(
        self, ended: Sequence[RunningMultiAgentEpisode], running: Sequence[RunningMultiAgentEpisode]
    ) -> list[MultiAgentEpisode]:
        self._metrics.begin_sample()
        self._ended_in_last_sample = ended
        for module in self._modules.by_id.values():
            module.join()
        chunks = []
        for episode in [*ended, *running]:
            if episode.num_steps:
                chunks.append(self._chunk(episode))
                self._metrics.add(episode, chunks[-1])
                episode.num_steps = 0
        going_on = _tracks_by_module(running)
        for module_id, module in self._modules.by_id.items():
            module.carry(going_on.get(module_id, ()))
        return chunks

    def _chunk(self, episode: RunningMultiAgentEpisode) -> MultiAgentEpisode:
        tracks = {agent: track for agent, track in episode.tracks.items() if track.rewards}
        parts = {
            agent: self._modules.by_id[track.module_id].episode(track) for agent, track in tracks.items()
        }
        without = {a: track for a, track in episode.tracks.items() if episode.is_done and track.has_no_steps}
        for track in tracks.values():
            track.hand_out()
        return MultiAgentEpisode(
            agent_episodes={agent: part for agent, part in parts.items() if part is not None},
            agent_to_module={agent: track.module_id for agent, track in (tracks | without).items()},
            env_steps=episode.num_steps,
            id_=episode.id_,
            terminated=episode.terminated,
            truncated=episode.truncated,
            rewards_without_steps={agent: track.reward for agent, track in without.items()},
        )


def _tracks_by_module(running: Sequence[RunningMultiAgentEpisode]) -> dict[ModuleID, list[AgentTrack]]:
    """The agents that go on; those that have ended, or have seen nothing yet, have nothing to carry on."""
    found: dict[ModuleID, list[AgentTrack]] = {}
    for track in (track for episode in running for track in episode.tracks.values()):
        if track.is_done or not track.observations:
            track.observations, track.actions, track.rewards = [], [], []
        else:
            found.setdefault(track.module_id, []).append(track)
    return found
