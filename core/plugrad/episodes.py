"""Episodes: what an env runner, or your own simulator, gives to a learner."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np

from plugrad.batch.forms import flatten_states
from plugrad.columns import Columns
from plugrad.errors import BatchError
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleAgentEpisode:
    """The T steps of one agent, or a chunk of a longer episode: then it is neither terminated nor truncated.

    ```python
    episode = SingleAgentEpisode(
        observations=np.zeros((4, 2), np.float32),  # one more than there are actions
        actions=np.array([0, 1, 0]),
        rewards=np.ones(3, np.float32),
        terminated=True,
        extra_model_outputs={"action_logp": np.full(3, -0.7, np.float32)},
    )
    learner.update(episodes=[episode])
    ```

    Args:
        observations: `[T + 1, ...]`: the T that were acted on, then the one that the last action led to, even where
            the episode ended (never the first observation of the next episode). Those of a Dict or Tuple space may be
            a dict or tuple of arrays `[T + 1, ...]`, or a list of dicts or tuples; the learner makes rows of them.
        actions: `[T, ...]`.
        rewards: `[T]`.
        terminated: whether the environment reached a terminal state, whose value is 0.
        truncated: whether a limit ended the episode; the value of its last observation is bootstrapped.
        extra_model_outputs: further columns of the steps, `{column: [T, ...]}`, such as `action_logp`. A stateful
            module needs `state_in`, `{name: [T, ...]}`, the state in which each step was taken, or `state_out`, the
            state after it. A later chunk with `state_out` alone needs the chunk before it in the same update. They are
            kept as columns `state_in/<name>`. Action masks are here too: `action_mask` and
            `new_action_mask`, bool [T, choices].
        id_: the same for all chunks of one episode.
        t_started: how many steps of the episode came before this chunk. Chunks that do not follow each other are not
            joined. None: nobody said.
        module_id: the module that acted and that learns from the steps.

    Array-likes are converted to arrays; arrays are kept without a copy.

    Raises:
        BatchError: the lengths do not match.
    """

    observations: Array
    actions: Array
    rewards: Array
    terminated: bool = False
    truncated: bool = False
    extra_model_outputs: Mapping[str, Array] = field(default_factory=dict)
    id_: str | None = None
    t_started: int | None = None
    module_id: ModuleID = DEFAULT_MODULE_ID

    def __post_init__(self) -> None:
        for name in ("actions", "rewards"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        object.__setattr__(self, "observations", _observations(self.observations, _lengths(self.actions)[0]))
        columns = flatten_states(self.extra_model_outputs or {})
        extra = {column: np.asarray(values) for column, values in columns.items()}
        object.__setattr__(self, "extra_model_outputs", extra)
        object.__setattr__(self, "terminated", bool(self.terminated))
        object.__setattr__(self, "truncated", bool(self.truncated))
        self._check_lengths()

    def _check_lengths(self) -> None:
        steps = _lengths(self.actions)[0]
        columns = {"observations": self.observations, "rewards": self.rewards, **self.extra_model_outputs}
        for name, values in columns.items():
            expected = steps + 1 if name == "observations" else steps
            for found in _lengths(values):
                if found != expected:
                    raise BatchError(
                        f"an episode of {steps} actions has {expected} {name}, found {found}"
                        + (" (the last is what the last action led to)" if name == "observations" else ""),
                        column=name,
                        expected=expected,
                        found=found,
                    )

    def __len__(self) -> int:
        """The number of steps, T."""
        return len(self.actions)

    @property
    def is_terminated(self) -> bool:
        """`terminated`, by RLlib's name."""
        return self.terminated

    @property
    def is_truncated(self) -> bool:
        """`truncated`, by RLlib's name."""
        return self.truncated

    @property
    def is_done(self) -> bool:
        """Whether the episode ended; if not, this is a chunk of a longer one."""
        return self.terminated or self.truncated

    def get_return(self) -> float:
        """The sum of the rewards, undiscounted."""
        return float(np.add.reduce(self.rewards, axis=None, dtype=np.float64))

    def get_state(self) -> dict[str, Any]:
        """The episode as nested dicts of arrays and plain values, for `episode_from_state`."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**state, "extra_model_outputs": dict(self.extra_model_outputs)}


def unchecked_episode(**parts: Any) -> SingleAgentEpisode:
    """An episode without checks, from parts that are known to be right: for code that makes thousands per rollout.

    Args:
        **parts: all arguments of `SingleAgentEpisode`, in the form of its attributes: arrays, bools, flat columns.
    """
    episode = object.__new__(SingleAgentEpisode)
    episode.__dict__.update(parts)
    return episode


def _observations(given: Any, steps: int) -> Any:
    """An array, or the dict or tuple of arrays that is given. A list of tuples with arrays is one of observations."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, list) and given and _has_parts(given[0]):
        one_by_one = np.empty(len(given), object)
        for step, each in enumerate(given):
            one_by_one[step] = each
        return one_by_one
    if not isinstance(given, tuple):
        return np.asarray(given)
    try:
        array = np.asarray(given)
    except ValueError:  # arrays of different shapes: the parts of a Tuple
        return given
    return array if _lengths(array) == [steps + 1] else given


def _has_parts(observation: Any) -> bool:
    return isinstance(observation, tuple) and any(
        isinstance(each, np.ndarray | Mapping) for each in observation
    )


def _lengths(values: Any) -> list[int]:
    """The number of rows of an array, or of each array within dicts and tuples."""
    if isinstance(values, Mapping | tuple):
        inner = values.values() if isinstance(values, Mapping) else values
        return [length for each in inner for length in _lengths(each)]
    return [len(values) if np.ndim(values) else 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiAgentEpisode:
    """The episodes of the agents of one environment.

    ```python
    episode = MultiAgentEpisode(
        agent_episodes={"left": left, "right": right},  # SingleAgentEpisodes
        agent_to_module={"left": "p0", "right": "p1"},
    )
    ```

    Args:
        agent_episodes: `{agent_id: episode}`; agents may have acted in different numbers of steps.
        agent_to_module: `{agent_id: module_id}`, or a function of the agent id. An agent that is not in the mapping
            keeps its episode's `module_id`.
        env_steps: the number of environment steps; None: the length of the longest agent episode, which is right where
            all agents act at once.
        id_: the same for all chunks of one episode.
        terminated: whether the environment reached a terminal state.
        truncated: whether a limit ended the episode.
        rewards_without_steps: `{agent_id: sum of rewards}` of agents that took part in the episode and never acted; in
            its last chunk. No learner sees them.
    """

    agent_episodes: Mapping[str, SingleAgentEpisode]
    agent_to_module: Mapping[str, ModuleID] | Callable[[str], ModuleID] = field(default_factory=dict)
    env_steps: int | None = None
    id_: str | None = None
    terminated: bool = False
    truncated: bool = False
    rewards_without_steps: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.env_steps is None:
            longest = max((len(episode) for episode in self.agent_episodes.values()), default=0)
            object.__setattr__(self, "env_steps", longest)

    def __len__(self) -> int:
        """The number of environment steps."""
        return self.env_steps or 0

    @property
    def is_done(self) -> bool:
        """Whether the episode ended; if not, this is a chunk of a longer one, or nobody said."""
        return self.terminated or self.truncated

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """The ids of the agents, in the order of `agent_episodes`."""
        return tuple(self.agent_episodes)

    def module_for(self, agent_id: str) -> ModuleID:
        """The id of the module that acted for an agent and that learns from its steps."""
        if callable(self.agent_to_module):
            return self.agent_to_module(agent_id)
        found = self.agent_to_module.get(agent_id)
        return self.agent_episodes[agent_id].module_id if found is None else found

    def get_return(self) -> float:
        """The sum of the rewards of all agents, undiscounted."""
        return sum(self.get_returns().values())

    def get_returns(self) -> dict[str, float]:
        """The sums of the rewards of each agent, undiscounted; also of those that never acted."""
        returns = {agent: episode.get_return() for agent, episode in self.agent_episodes.items()}
        return {**returns, **self.rewards_without_steps}

    def get_state(self) -> dict[str, Any]:
        """The episode as nested dicts of arrays and plain values, for `episode_from_state`."""
        # Pairs, because an agent id may not be a valid key in a checkpoint.
        return {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "agent_episodes": [[agent, each.get_state()] for agent, each in self.agent_episodes.items()],
            "agent_to_module": [[agent, self.module_for(agent)] for agent in self.get_returns()],
            "rewards_without_steps": [[agent, each] for agent, each in self.rewards_without_steps.items()],
        }


Episode: TypeAlias = SingleAgentEpisode | MultiAgentEpisode


def episode_from_state(state: Mapping[str, Any]) -> Episode:
    """The episode whose `get_state` returned this state."""
    if "agent_episodes" not in state:
        return SingleAgentEpisode(**state)
    agents = {agent: SingleAgentEpisode(**each) for agent, each in state["agent_episodes"]}
    modules = dict(state["agent_to_module"])
    others = dict(state.get("rewards_without_steps", ()))  # older checkpoints have none
    changes = {"agent_episodes": agents, "agent_to_module": modules, "rewards_without_steps": others}
    return MultiAgentEpisode(**{**state, **changes})


def episodes_by_module(episodes: Iterable[Episode]) -> dict[ModuleID, list[SingleAgentEpisode]]:
    """The single-agent episodes that each module learns from, in the order of the rows of its batch.

    Every connector piece that pairs rows with episodes relies on this order.
    """
    found: dict[ModuleID, list[SingleAgentEpisode]] = {}
    for episode in episodes:
        if isinstance(episode, SingleAgentEpisode):
            found.setdefault(episode.module_id, []).append(episode)
            continue
        for agent_id, agent_episode in episode.agent_episodes.items():
            found.setdefault(episode.module_for(agent_id), []).append(agent_episode)
    return found


def num_env_steps(episodes: Iterable[Episode]) -> int:
    """Count the environment steps of episodes that include `MultiAgentEpisode`s.

    Args:
        episodes: single-agent or multi-agent episodes.

    Returns:
        The sum of the lengths; 0 if all are `SingleAgentEpisode`s, because several may cover the same steps.
    """
    lengths = {True: 0, False: 0}
    for episode in episodes:
        lengths[isinstance(episode, MultiAgentEpisode)] += len(episode)
    return sum(lengths.values()) if lengths[True] else 0


MASKS = (Columns.ACTION_MASK, Columns.NEXT_ACTION_MASK)
"""The columns of action masks, which come from the environment."""


def masks_of(episode: SingleAgentEpisode) -> dict[str, Array]:
    """The action masks among an episode's `extra_model_outputs`, `{column: bool [T, choices]}`; empty without any."""
    extra = episode.extra_model_outputs
    return {column: extra[column] for column in MASKS if column in extra}


OWN = (Columns.ENV_REWARDS, Columns.LIFE_LOST)
"""The columns from which `own_episode` restores what the environment gave; no learner reads them."""


def own_episode(episode: SingleAgentEpisode) -> SingleAgentEpisode:
    """An episode as its environment gave it: with the original rewards, and not ended where only a life was lost."""
    extra = episode.extra_model_outputs
    if Columns.ENV_REWARDS not in extra and Columns.LIFE_LOST not in extra:
        return episode
    goes_on = Columns.LIFE_LOST in extra and bool(extra[Columns.LIFE_LOST][-1])
    return replace(
        episode,
        rewards=extra.get(Columns.ENV_REWARDS, episode.rewards),
        terminated=episode.terminated and not goes_on,
        extra_model_outputs={column: values for column, values in extra.items() if column not in OWN},
    )


def concat_chunks(chunks: Sequence[SingleAgentEpisode]) -> SingleAgentEpisode:
    """Join consecutive chunks to one episode: each begins with the observation that ended the chunk before it."""
    return replace(
        chunks[-1],
        observations=np.concatenate(
            [chunks[0].observations[:1], *[each.observations[1:] for each in chunks]]
        ),
        actions=np.concatenate([each.actions for each in chunks]),
        rewards=np.concatenate([each.rewards for each in chunks]),
        extra_model_outputs={
            column: np.concatenate([each.extra_model_outputs[column] for each in chunks])
            for column in chunks[-1].extra_model_outputs
        },
        t_started=chunks[0].t_started,
    )


def concat_multi_agent_chunks(chunks: Sequence[MultiAgentEpisode]) -> MultiAgentEpisode:
    """Join consecutive chunks to one episode; each agent's episode is joined from the chunks that have it."""
    parts: dict[str, list[SingleAgentEpisode]] = {}
    for chunk in chunks:
        for agent, part in chunk.agent_episodes.items():
            parts.setdefault(agent, []).append(part)
    return replace(
        chunks[-1],
        agent_episodes={agent: concat_chunks(each) for agent, each in parts.items()},
        agent_to_module={agent: chunk.module_for(agent) for chunk in chunks for agent in chunk.get_returns()},
        env_steps=sum(map(len, chunks)),
    )
