"""Environments with many agents that break their contract: the error names environment, agent, step and what to do."""

import re
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from many_agents import AGENTS, Event, Pair, Scripted, Settings, make_runner

from plugrad.errors import BatchError, ConfigError, EnvContractError
from plugrad.sampling.environments import get_module_spaces

ALL = [dict.fromkeys(AGENTS, Event(True, t)) for t in range(3)]


def broken(change, at=2):
    """A class whose step number `at` has its answer changed by `change(observations, rewards, terminated, ...)`."""

    class Broken(Scripted):
        def __init__(self):
            super().__init__([*ALL, *ALL])

        def step(self, actions):
            answer = super().step(actions)
            changed = change(*answer) if self.t == at else None
            return answer if changed is None else changed

    return Broken


def ends_before(agent):
    """The agent ends in the first step, and something of it comes in the second."""

    class Ends(Scripted):
        def __init__(self):
            first = {**ALL[1], agent: Event(True, 0, "terminated")}
            super().__init__([ALL[0], first, *ALL])

    return Ends


BREAKS = {
    "an agent that is not possible": (
        lambda o, *_: o.update(d=o["a"]),
        "gave agent 'd' something; expected: only agents of possible_agents: 'a', 'b', 'c'",
    ),
    "an observation of another shape": (
        lambda o, *_: o.update(b=np.zeros(3)),
        r"gave agent 'b' as observation an array of shape \(3,\).*; expected: the observation space is Box\(",
    ),
    "an observation of words": (
        lambda o, *_: o.update(b="left"),
        "gave agent 'b' as observation 'left'",
    ),
    "an observation that is not finite": (
        lambda o, *_: o.update(c=np.array([0, np.nan])),
        "gave agent 'c' an observation with NaN or infinity; expected: finite numbers",
    ),
    "a reward that is not finite": (
        lambda o, rewards, *_: rewards.update(b=float("nan")),
        "gave agent 'b' the reward nan; expected: finite rewards",
    ),
    "a reward of two numbers": (
        lambda o, rewards, *_: rewards.update(b=np.ones(2)),
        "gave agent 'b' the reward an array of shape .* a reward is one number",
    ),
    "a truncation without an observation": (
        lambda o, rewards, terminated, truncated, infos: (o.pop("a"), truncated.update(a=True))[2:] or None,
        "gave agent 'a' no observation with its truncation; expected: the last observation of an agent that acted",
    ),
    "terminateds without '__all__'": (
        lambda o, rewards, terminated, *_: (terminated.pop("__all__"), None)[1],
        r"returned terminateds a dict of \[\]; expected: the key '__all__', whether the episode has terminated",
    ),
    "four parts": (
        lambda *answer: answer[:4],
        "step.. returned a tuple of 4; expected: return .observations, rewards",
    ),
    "rewards that are no dict": (
        lambda o, rewards, *rest: (o, 1.0, *rest),
        "step.. returned rewards 1.0 .float.; expected: rewards are a dict by agent",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_step_is_an_error_that_says_where(name):
    change, message = BREAKS[name]
    runner = make_runner(broken(change), count_steps, num_envs_per_env_runner=2)
    with pytest.raises(EnvContractError, match=message) as caught:
        runner.sample(4)
    assert "Broken" in str(caught.value)
    assert caught.value.facts["expected"]
    assert (caught.value.facts["index"], caught.value.facts["step"]) == (0, 2)
    said = [str(caught.value), *getattr(caught.value, "__notes__", ())]
    assert re.search("environment 0 of .*Broken.*: step 2 of its episode", " ".join(said))
    assert runner.total_steps == 0


def test_an_error_of_the_environments_own_code_says_where_it_was():
    runner = make_runner(broken(lambda *answer: 1 / 0), count_steps)
    with pytest.raises(ZeroDivisionError) as caught:
        runner.sample(4)
    assert re.fullmatch("in environment 0 of .*Broken: step 2 of its episode", caught.value.__notes__[0])


def count_steps(module_id, observations, state, **mask):
    return {"actions": observations[:, 1].astype(np.int64)}


PARTS = gym.spaces.Dict(far=gym.spaces.Box(0, 1, (2,)), image=gym.spaces.Box(0, 255, (1,), np.uint8))


class OfSpace(Pair):
    """The agents observe `seen`, of `space`."""

    space, seen = gym.spaces.Box(0, 255, (2,), np.uint8), np.zeros(2)

    def observation_space(self, agent):
        return self.space

    def _all(self, value):
        return super()._all(self.seen if isinstance(value, np.ndarray) else value)


@pytest.mark.parametrize(
    ("space", "seen", "message"),
    [
        (OfSpace.space, np.full(2, 0.5), "as observation an array .*float64.*; expected: .*uint8"),
        (OfSpace.space, np.array([3, 256]), "as observation an array .*int64.*; expected: .*uint8"),
        (
            PARTS,
            {"far": np.zeros(3), "image": np.zeros(1, np.uint8)},
            r"as observation\['far'\] an array of shape \(3,\).*the observation space\['far'\] is Box",
        ),
        (
            PARTS,
            {"far": np.array([0, np.nan]), "image": np.zeros(1, np.uint8)},
            r"observation\['far'\] with NaN",
        ),
        (
            gym.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            np.array([0, 1e39]),
            "an observation with numbers that are too large for float32; expected: finite numbers",
        ),
    ],
)
def test_an_observation_that_its_space_cannot_hold_is_refused(space, seen, message, monkeypatch):
    monkeypatch.setattr(OfSpace, "space", space)
    monkeypatch.setattr(OfSpace, "seen", seen)
    with pytest.raises(EnvContractError, match=message):
        make_runner(OfSpace).sample()


def test_numbers_that_the_dtype_holds_are_cast(monkeypatch):
    monkeypatch.setattr(OfSpace, "seen", np.array([3.0, 255.0]))
    (chunk, *_) = make_runner(OfSpace).sample()
    observations = chunk.agent_episodes["left"].observations
    assert (observations.dtype, observations[0].tolist()) == (np.uint8, [3, 255])


def test_after_an_error_new_episodes_begin():
    class Once(broken(lambda o, rewards, *_: rewards.update(b=float("nan")))):
        def step(self, actions):
            if self.t and made[0] > 2:
                return Scripted.step(self, actions)
            made[0] += 1
            return super().step(actions)

    made = [0]
    runner = make_runner(Once, count_steps)
    with pytest.raises(EnvContractError):
        runner.sample(4)
    made[0] = 9
    (chunk,) = runner.sample(4)
    assert [len(episode) for episode in chunk.agent_episodes.values()] == [4] * 3


@pytest.mark.parametrize("what", ["an observation", "the reward"])
def test_an_agent_that_has_ended_does_not_come_back(what):
    class Back(ends_before("b")):
        def step(self, actions):
            if self.t == 1:
                actions = {**actions, "b": 1}
                self.acting = list(AGENTS)
            observations, rewards, *rest = super().step(actions)
            if self.t == 2:
                observations.pop("b") if what == "the reward" else rewards.pop("b")
                rewards.update(b=2.0) if what == "the reward" else None
            return observations, rewards, *rest

    with pytest.raises(EnvContractError, match=f"agent 'b' {what}.*which has ended before"):
        make_runner(Back, count_steps).sample(3)


class WithoutFlags(Pair):
    """Its truncations do not have the left agent."""

    def step(self, actions):
        *others, truncations, infos = super().step(actions)
        del truncations["left"]
        return *others, truncations, infos


class Vanishing(Pair):
    """The left agent leaves without having ended."""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        return observations, rewards, {**terminations, "left": False}, truncations, infos


class Unseen(Pair):
    """The right agent gets no observation."""

    def step(self, actions):
        observations, *others = super().step(actions)
        del observations["right"]
        return observations, *others


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (WithoutFlags, "truncations without agent 'left'; expected: a flag of each agent that acted"),
        (Vanishing, "'left' acted and has left `agents`, and is neither terminated nor truncated"),
        (Unseen, "observations without agent 'right'; expected: an observation of each agent in `agents`"),
    ],
)
def test_a_parallel_environment_without_parts_of_its_answer(env, message):
    with pytest.raises(EnvContractError, match=message):
        make_runner(env).sample(3)


class NoAgents(Pair):
    possible_agents = ()


class NoSpace(Scripted):
    observation_spaces: ClassVar = {"a": gym.spaces.Box(0, 1)}


class OtherSpaces(Pair):
    def action_space(self, agent):
        return gym.spaces.Discrete(4 if agent == "left" else 5)


class Text(Pair):
    def observation_space(self, agent):
        return gym.spaces.Text(3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": NoAgents}, r"possible_agents is \(\); expected: the names of all agents"),
        ({"env": lambda: NoSpace([])}, "its observation_spaces have no agent 'b'"),
        (
            {"env": OtherSpaces, "policies": ["shared"]},
            "'shared' acts for 'left' and 'right', whose action_spaces differ: .*Discrete.4. and Discrete.5.",
        ),
        ({"env": Text}, "agent 'left': observation_space is a Text space, which is no array of numbers"),
        (
            {"env": Pair, "policies": ["a", "b"]},
            "agent_to_module does not say which of them acts for which agent",
        ),
        (
            {"env": Pair, "policies": ["main"], "agent_to_module": {"left": "main", "right": "mian"}},
            "maps agent 'right' to 'mian'; expected: a module of policies: 'main'. Did you mean 'main'",
        ),
        (
            {"env": Pair, "agent_to_module": {"left": "main"}},
            "agent_to_module has no agent 'right'; it has 'left'",
        ),
        (
            {"env": Pair, "agent_to_module": 3},
            r"agent_to_module must be {agent: module_id}, a function .*; got 3",
        ),
        (
            {"env": dict},
            "is a dict; expected: a pettingzoo.ParallelEnv, a pettingzoo.AECEnv, or a class with RLlib's",
        ),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        get_module_spaces(Settings(**settings))


def test_a_column_without_one_row_per_agent_is_refused():
    def act(module_id, observations, state):
        return {"actions": np.zeros(len(observations), np.int64), "value": np.zeros(1)}

    with pytest.raises(
        BatchError, match=r"module 'default_policy' returned 'value' of shape .1,. for 2 agents"
    ):
        make_runner(Pair, act).sample()


class Masked(Pair):
    """The left agent has masks in its info, as `masks` says."""

    masks: ClassVar = [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1]]

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return observations, self._with_masks(infos)

    def step(self, actions):
        *others, infos = super().step(actions)
        return *others, self._with_masks(infos)

    def _with_masks(self, infos):
        mask = self.masks[min(self.step_number, 2)]
        return {a: {"action_mask": np.array(mask)} if mask and a == "left" else {} for a in infos}


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ([[1, 1], [1, 1]], "its reset gave agent 'left' the action mask .*; expected: 4 booleans"),
        ([[1, 1, 1, 1], None, None], "step 1 of its episode gave agent 'left' no action mask"),
        (
            [[1, 1, 1, 1], [0, 0, 0, 0]],
            "an action mask that forbids everything; expected: at least one allowed",
        ),
        ([None, [1, 1, 1, 1]], "gave agent 'left' an action mask; expected: one with the first observation"),
    ],
)
def test_wrong_masks_are_errors(masks, message, monkeypatch):
    monkeypatch.setattr(Masked, "masks", masks)
    with pytest.raises(EnvContractError, match=message):
        make_runner(Masked, agent_to_module={"left": "a", "right": "b"}).sample()


def test_masks_in_infos_are_columns_of_the_modules_that_have_them():
    (chunk,) = make_runner(Masked, agent_to_module={"left": "a", "right": "b"}).sample(3)
    left, right = (chunk.agent_episodes[agent].extra_model_outputs for agent in ("left", "right"))
    assert left["action_mask"].tolist() == [[True, True, False, False], [True, False, False, False]]
    assert left["new_action_mask"].tolist() == [[True, False, False, False], [True] * 4]
    assert set(right) == {"twice"}
