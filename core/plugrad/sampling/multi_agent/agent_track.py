"""`AgentTrack`: the steps of one agent of a running episode, as indices of rows in its module's arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plugrad.sampling.info_metrics import InfoMetrics
from plugrad.types import AgentID, Array, ModuleID

CARRIED = -1
"""In place of the row of an action whose columns are not in its module's arrays, but in `AgentTrack.carried`."""


@dataclass(slots=True, eq=False)
class EnvProgress:
    """Where the running episode of an environment stands.

    Args:
        env: the name of the environment.
        index: its place among the environments of an env runner.
        step: steps of the episode so far.
        actions: what its agents have chosen for the next step.
    """

    env: str
    index: int
    step: int = 0
    actions: dict[AgentID, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        when = f"step {self.step} of its episode" if self.step else "its reset"
        return f"environment {self.index} of {self.env}: {when}"

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of an error."""
        return {"env": self.env, "index": self.index, "step": self.step}


@dataclass(slots=True, eq=False)
class AgentTrack:
    """The steps of one agent since the last chunk, and what it carries from step to step.

    Args:
        agent: its name.
        id_: of its episode.
        module_id: the module that acts for it.
        progress: of its environment.

    Attributes:
        observations: rows of its observations; one more than there are rewards.
        actions: rows of its actions; one more than there are rewards if an action waits for its outcome. The first is
            `CARRIED` if it waited when the last chunk ended.
        carried: the columns of that action, `{column: array}`.
        rewards: of the steps whose outcome is known.
        reward: what came since the last observation.
        terminated: whether it ended in a terminal state.
        truncated: whether a limit ended it.
        state: recurrent state, `{name: array}`.
        episode_return: all rewards since the beginning of the episode.
        t_started: steps of the episode in earlier chunks; None: an older checkpoint did not say.
        info_metrics: makes metrics of numbers in its infos; None: there are none.
    """

    agent: AgentID
    id_: str
    module_id: ModuleID
    progress: EnvProgress
    observations: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    carried: Mapping[str, Array] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    state: dict[str, Array] = field(default_factory=dict)
    episode_return: float = 0.0
    t_started: int | None = 0
    info_metrics: InfoMetrics | None = None

    @property
    def is_done(self) -> bool:
        """Whether the agent has ended."""
        return self.terminated or self.truncated

    @property
    def waits_for_outcome(self) -> bool:
        """Whether the agent has acted, and not seen what its action led to."""
        return len(self.actions) > len(self.rewards)

    @property
    def has_no_steps(self) -> bool:
        """Whether there is no step whose outcome is known, neither now nor in earlier chunks."""
        return not self.rewards and not self.t_started

    @property
    def acts_next(self) -> bool:
        """Whether the agent has an observation that it has not acted on."""
        return bool(self.observations) and not self.is_done and not self.waits_for_outcome

    def add_reward(self, reward: float) -> None:
        """Add a reward to the step that waits for its outcome, or to the first step before there is one."""
        self.reward += reward
        self.episode_return += reward

    def add_observation(self, row: int) -> None:
        """Add an observation, which is the outcome of the action before it.

        Args:
            row: its index in the module's arrays.
        """
        rewards = self.rewards
        if len(self.actions) > len(rewards):
            rewards.append(self.reward)
            self.reward = 0.0
            self.observations.append(row)
        else:
            self.observations = [row]

    def info_metrics_of_agent(self) -> dict[str, float]:
        """Those of its episode so far, `{"info/<name>/<agent>": number}`."""
        if self.info_metrics is None:
            return {}
        return {f"{name}/{self.agent}": value for name, value in self.info_metrics.of(0).items()}

    def hand_out(self) -> None:
        """Count the steps whose outcome is known as handed out in a chunk."""
        if self.t_started is not None:
            self.t_started += len(self.rewards)

    def end(self, *, terminated: bool, truncated: bool) -> None:
        """End the agent; an action that still waits for its outcome gets the last observation once more.

        Args:
            terminated: whether it ended in a terminal state.
            truncated: whether a limit ended it.
        """
        self.terminated, self.truncated = terminated, truncated
        if self.waits_for_outcome:
            self.add_observation(self.observations[-1])
