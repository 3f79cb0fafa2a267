"""An environment that breaks Gymnasium's contract: which one, what was expected, what was found, what to do."""

import re
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from sampling import make_runner

from plugrad.errors import ConfigError, EnvContractError
from plugrad.sampling.native_envs import make_native_vector_env
from plugrad_ppo import PPOConfig


class Good(gym.Env):
    """Keeps the contract; a test replaces what it breaks."""

    observation_space = Box(-1, 1, (3,), np.float32)
    action_space = Discrete(2)
    steps = episodes = 0

    def observe(self):
        return np.zeros(3, np.float32)

    def tick(self):
        self.steps += 1
        return self.steps

    def later(self):
        return self.episodes > 1 and self.steps == 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self.observe(), {}

    def step(self, action):
        return self.observe(), 1.0, self.tick() > 5, False, {}


def breaking(**broken):
    return type("Mine", (Good,), broken)


def step_of(*answer):
    return lambda self, action: (np.zeros(3, np.float32), *answer)


def algorithm_of(env, **settings):
    return (
        PPOConfig()
        .environment(env)
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .env_runners(num_envs_per_env_runner=2, **settings)
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1)
        .debugging(seed=0)
        .build_algo()
    )


ANSWERS = {
    "another shape": (
        {"observe": lambda self: np.zeros(4, np.float32)},
        r"observation an array of shape \(4,\).*observation space is Box\(-1.0, 1.0, \(3,\), float32\)",
    ),
    "another shape later": (
        {"observe": lambda self: np.zeros(4 if self.steps == 3 else 3, np.float32)},
        r"step\(\) returned as observation an array of shape \(4,\)",
    ),
    "terminated None later": (
        {"step": lambda self, action: (self.observe(), 1.0, None if self.tick() > 2 else False, False, {})},
        "terminated=None",
    ),
    "info None later": (
        {"step": lambda self, action: (self.observe(), 1.0, False, False, None if self.tick() > 2 else {})},
        "info None",
    ),
    "no reward later": (
        {"step": lambda self, action: (self.observe(), None if self.tick() > 2 else 1.0, False, False, {})},
        "the reward None.*one number",
    ),
    "a step of four later": (
        {"step": lambda self, action: (self.observe(), 1.0, False, False, {})[: 4 if self.tick() > 2 else 5]},
        "a tuple of 4|got 4",
    ),
    "another shape of a later episode": (
        {"observe": lambda self: np.zeros(4 if self.later() else 3, np.float32)},
        r"observation an array of shape \(4,\)",
    ),
    "a text": ({"observe": lambda self: "left"}, r"as observation 'left' \(str\)"),
    "texts": ({"observe": lambda self: np.array(["a", "b", "c"])}, "dtype <U1"),
    "no observation": ({"observe": lambda self: None}, "as observation None"),
    "a step of older Gym": ({"step": step_of(1.0, False, {})}, "a tuple of 4, as step.. of older Gym|got 4"),
    "a step without answer": ({"step": lambda self, action: None}, "None"),
    "info None": ({"step": step_of(1.0, False, False, None)}, "info.*None"),
    "terminated None": ({"step": step_of(1.0, None, False, {})}, "terminated=None.*True or False"),
    "truncated None": ({"step": step_of(1.0, True, None, {})}, "truncated=None.*True or False"),
    "terminated 2": ({"step": step_of(1.0, 2, False, {})}, r"terminated=2 \(int\)"),
    "no reward": ({"step": step_of(None, True, False, {})}, "the reward None.*one number"),
    "two rewards": ({"step": step_of(np.ones(2), True, False, {})}, r"the reward an array of shape \(2,\)"),
    "a NaN reward": ({"step": step_of(np.nan, True, False, {})}, "rewards hold NaN or infinity: .*nan"),
    "an infinite reward": ({"step": step_of(-np.inf, False, False, {})}, "rewards hold NaN or infinity"),
    "NaN": ({"observe": lambda self: np.full(3, np.nan, np.float32)}, r"observations hold NaN .*\[nan, nan, nan\]"),
    "a last NaN": (
        {"observe": lambda self: np.full(3, np.nan if self.steps > 4 else 0, np.float32)},
        "observations hold NaN",
    ),
    "a reset of older Gym": (
        {"reset": lambda self, seed=None, options=None: self.observe()},
        r"reset\(\) returned an array of shape \(3,\).*return \(observation, info\)|refuses its reset",
    ),
    "a reset of two numbers": (
        {"reset": lambda self, seed=None, options=None: np.zeros(2, np.float32)},
        r"return \(observation, info\)|refuses its reset",
    ),
    "a reset without info": (
        {"reset": lambda self, seed=None, options=None: (self.observe(), None)},
        "info.*None|refuses its reset",
    ),
    "a reset without a seed": (
        {"reset": lambda self: (self.observe(), {})},
        r"refuses its reset\(\): TypeError: .*'seed'.*takes the keywords seed and options",
    ),
    "a Dict without a key": (
        {
            "observation_space": Dict(a=Box(0, 1, (2,)), b=Discrete(2)),
            "observe": lambda self: {"a": np.zeros(2, np.float32)},
        },
        r"reset\(\) returned as observation a dict of \['a'\]; expected: the observation space is Dict\('a'.*'b'",
    ),
    "a number that is too large": (
        {"observation_space": Discrete(3), "observe": lambda self: 7},
        r"reset\(\) returned as observation 7 \(int\); expected: the observation space is Discrete\(3\)",
    ),
    "a negative number": (
        {"observation_space": Discrete(3), "observe": lambda self: -1},
        r"reset\(\) returned as observation -1 \(int\); expected: the observation space is Discrete\(3\)",
    ),
    "a number before the first one later": (
        {"observation_space": Discrete(3, start=2), "observe": lambda self: np.int64(3 - self.steps)},
        r"step\(\) returned as observation .*1.*is Discrete\(3, start=2\)",
    ),
    "a fraction": (
        {"observation_space": Discrete(3), "observe": lambda self: np.array(1.5)},
        r"as observation .*1.5.*is Discrete\(3\)",
    ),
    "a number of many that is too large": (
        {"observation_space": MultiDiscrete([3, 2]), "observe": lambda self: np.array([3, 0])},
        r"as observation an array of shape \(2,\) and dtype int64: \[3, 0\]; .*is MultiDiscrete\(\[3 2\]\)",
    ),
    "a bit of five": (
        {"observation_space": MultiBinary(2), "observe": lambda self: np.array([5, 1], np.int8)},
        r"as observation an array of .*\[5, 1\]; .*is MultiBinary\(2\)",
    ),
    "a part out of range": (
        {
            "observation_space": Dict(far=Box(-1, 1, (2,)), gear=Tuple((Discrete(2), Discrete(3)))),
            "observe": lambda self: {"far": np.zeros(2), "gear": (1, 3 if self.steps > 2 else 2)},
        },
        r"step\(\) returned as observation\['gear'\]\[1\] 3 \(int\); .* space\['gear'\]\[1\] is Discrete\(3\)",
    ),
    "a part of another shape": (
        {
            "observation_space": Dict(position=Box(-1, 1, (4,)), gear=Discrete(3)),
            "observe": lambda self: {"position": np.zeros(5), "gear": 0},
        },
        r"as observation\['position'\] an array of shape \(5,\).*space\['position'\] is Box\(-1.0, 1.0, \(4,\)",
    ),
    "a part with NaN at the end": (
        {
            "observation_space": Dict(position=Box(-1, 1, (4,)), speed=Box(-1, 1, (1,))),
            "observe": lambda self: {
                "position": np.zeros(4),
                "speed": np.full(1, np.nan if self.steps > 4 else 0),
            },
        },
        r"its observations\['speed'\] hold NaN or infinity: \[nan\]; expected: finite numbers",
    ),
    "a number that float32 does not hold": (
        {"observation_space": Box(-np.inf, np.inf, (2,), np.float64), "observe": lambda self: np.array([0, 1e39])},
        r"its observations hold numbers that are too large for float32: \[1e\+39\]; expected: finite numbers",
    ),
    "a part with a number that float32 does not hold": (
        {
            "observation_space": Dict(near=Box(-1, 1, (2,)), far=Box(-np.inf, np.inf, (1,), np.float64)),
            "observe": lambda self: {"near": np.zeros(2), "far": np.full(1, -1e39 if self.steps > 4 else 0)},
        },
        r"its observations\['far'\] hold numbers that are too large for float32: \[-1e\+39\]",
    ),
    "floats in place of bytes": (
        {"observation_space": Box(0, 255, (3,), np.uint8), "observe": lambda self: np.full(3, 0.5)},
        r"dtype float64: .*\(3,\), uint8\), whose dtype does not hold .*: return uint8, or declare another dtype",
    ),
    "whole numbers in place of bytes later": (
        {
            "observation_space": Box(0, 255, (3,), np.uint8),
            "observe": lambda self: np.full(3, 7, np.int64 if self.steps > 2 else np.uint8),
        },
        r"step\(\) returned as observation an array of .*int64.*: return uint8",
    ),
    "a whole number that is too large for the dtype": (
        {"observation_space": Box(-9, 9, (1,), np.int8), "observe": lambda self: np.array([300], np.int16)},
        r"dtype int16: \[300\]; .*whose dtype does not hold these numbers: return int8",
    ),
    "a part with a whole number that is too large for the dtype": (
        {
            "observation_space": Dict(gray=Box(0, 255, (1,), np.uint8)),
            "observe": lambda self: {"gray": np.array([256], np.uint16)},
        },
        r"as observation\['gray'\] .*dtype uint16: \[256\]; .*: return uint8",
    ),
    "a part of lists of different lengths": (
        {
            "observation_space": Dict(position=Box(-1, 1, (2, 2)), gear=Discrete(3)),
            "observe": lambda self: {"position": [[1], [1, 2]], "gear": 0},
        },
        r"as observation\['position'\] a list of 2; .*space\['position'\] is Box",
    ),
    "a part of bytes with fractions": (
        {
            "observation_space": Dict(image=Box(0, 255, (1,), np.uint8), gear=Discrete(3)),
            "observe": lambda self: {"image": np.full(1, 0.5), "gear": 0},
        },
        r"as observation\['image'\] .*: \[0.5\]; .*space\['image'\] is Box.*uint8.*: return uint8",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("what", ANSWERS)
def test_a_broken_contract_is_named_with_the_environment(what, registered):
    broken, words = ANSWERS[what]
    env, name = breaking(**broken), "Mine"
    if registered:  # Gymnasium's own wrappers look first
        env_id = f"plugrad-tests/{what.title().replace(' ', '')}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=env, max_episode_steps=50)
        env = name = env_id
    with pytest.raises(EnvContractError) as caught:
        algorithm_of(env).sample()
    message = str(caught.value)
    assert re.search(rf"^environment [01] of '?{re.escape(name)}'?: ", message), message
    assert re.search(words, message) or (registered and "Gymnasium refuses its" in message), message
    assert "expected:" in message or "returns (observation" in message
    assert caught.value.facts["index"] in (0, 1)


@pytest.mark.parametrize("ends", [False, True])
def test_the_environment_that_broke_it_is_named_not_the_first(ends):
    class Second(Good):
        made = 0

        def __init__(self):
            Second.made += 1
            self.number = Second.made

        def observe(self):
            return np.full(3, np.nan if self.number == 3 and self.steps == 2 else 0, np.float32)

        def step(self, action):
            self.tick()
            return self.observe(), 1.0, ends and self.number == 3 and self.steps == 2, False, {}

    algorithm = algorithm_of(Second)  # the first is made for its spaces
    with pytest.raises(EnvContractError, match=r"environment 1 of .*Second: its observations hold NaN"):
        algorithm.sample()


@pytest.mark.parametrize("method", ["step", "reset"])
def test_an_error_of_the_environments_own_code_stays_what_it_is_and_gets_a_note(method):
    def fails(self, *args, **kwargs):
        return {}["missing"]

    with pytest.raises(KeyError, match="missing") as caught:
        algorithm_of(breaking(**{method: fails})).sample()
    assert caught.value.__notes__ == [f"raised by {method}() of environment 0 of Mine"]


@pytest.mark.parametrize(
    "answer",
    [
        (1, 0, 1, {}),
        (np.float32(1), np.True_, np.False_, {}),
        (np.ones(1), np.zeros(1, bool), np.array(True), {}),
        (True, False, True, {"lives": 3}),
    ],
)
def test_numbers_and_flags_of_any_numeric_type_are_good(answer):
    algorithm = algorithm_of(breaking(step=step_of(*answer), observe=lambda self: [0.0, 0.5, 1.0]))
    for episode in algorithm.sample():
        assert episode.rewards.tolist() == [1.0]
        assert episode.is_done


@pytest.mark.parametrize(
    ("space", "seen", "row"),
    [
        (Discrete(3), np.array(2), [0, 0, 1]),
        (Discrete(3, start=-1), -1, [1, 0, 0]),
        (MultiDiscrete([3, 2]), [2.0, 1.0], [0, 0, 1, 0, 1]),
        (MultiDiscrete([3, 2], start=[1, 5]), np.array([3, 5]), [0, 0, 1, 1, 0]),
        (MultiBinary(2), [True, False], [1, 0]),
        (MultiBinary(2), np.array([1.0, 0.0]), [1, 0]),
        (
            Dict(image=Box(0, 255, (2,), np.uint8), on=Discrete(2)),
            {"image": [7, 255], "on": True},
            [7, 255, 0, 1],
        ),
    ],
)
def test_numbers_of_any_dtype_that_are_of_the_space_are_good(space, seen, row):
    algorithm = algorithm_of(breaking(observation_space=space, observe=lambda self: seen))
    assert algorithm.sample()[0].observations[0].tolist() == row


def test_a_reward_is_looked_at_in_every_step():
    algorithm = algorithm_of(breaking(step=step_of(np.ones(1), False, False, {})))
    assert {reward for episode in algorithm.sample() for reward in episode.rewards.tolist()} == {1.0}

    def later(self, action):
        self.steps += 1
        return self.observation_space.sample(), np.ones(1 + (self.steps > 2)), False, False, {}

    with pytest.raises(EnvContractError, match=r"the reward an array of shape \(2,\).*one number"):
        algorithm_of(breaking(step=later)).sample()


@pytest.mark.parametrize(
    ("spaces", "words"),
    [
        ({"observation_space": Text(5)}, "observation_space is a Text space.*gymnasium.ObservationWrapper"),
        ({"observation_space": Sequence(Discrete(2))}, "observation_space is a Sequence space"),
        ({"observation_space": Graph(Box(0, 1, (2,)), None)}, "observation_space is a Graph space"),
        (
            {"observation_space": Dict(a=Discrete(2), b=Tuple((Discrete(2), Text(3))))},
            r"observation_space\['b'\]\[1\] is a Text space",
        ),
        ({"observation_space": None}, "its observation_space is None; expected: a gymnasium.Space"),
        ({"action_space": None}, "its action_space is None; expected: a gymnasium.Space"),
        ({"action_space": Dict(a=Text(3))}, "action_space\\['a'\\] is a Text space.*gymnasium.ActionWrapper"),
        ({"action_space": Text(3)}, "action_space is a Text space"),
    ],
)
def test_a_space_that_no_array_is_of_is_refused_by_name(spaces, words):
    with pytest.raises(ConfigError, match=rf"environment Mine: {words}"):
        algorithm_of(breaking(**spaces))


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (Dict(pixels=Box(0, 255, (7, 7, 3), np.uint8), speed=Box(-1, 1, (2,))), r"\['pixels'\] \[7, 7, 3\]"),
        (
            Tuple((Box(-1, 1, (2,)), Dict(camera=Box(0, 255, (4, 9, 9), np.uint8)))),
            r"\[1\]\['camera'\] \[4, 9, 9\]",
        ),
    ],
)
def test_an_image_without_convolutions_beside_other_observations_is_refused_by_name(space, path):
    with pytest.raises(ConfigError, match=rf"observations{path} of uint8 are images"):
        algorithm_of(breaking(observation_space=space, observe=lambda self: space.sample()))


class Vectorised(VectorEnv):
    """Its rows are wrong in one way."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    wrong: ClassVar[dict[str, Any]] = {}

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Good.observation_space, Good.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 3), np.float32), {}

    def step(self, actions):
        no = np.zeros(self.num_envs, bool)
        good = {
            "observations": np.zeros((self.num_envs, 3), np.float32),
            "rewards": np.ones(self.num_envs),
            "terminated": no,
            "truncated": no,
        }
        return *(good | self.wrong).values(), {}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"observations": np.zeros((2, 4))}, r"returned observations .*\(2, 4\).*shape \(2, 3\)"),
        ({"observations": np.full((2, 3), np.nan)}, "environment 0 of .*observations hold NaN"),
        ({"rewards": np.zeros((2, 1))}, r"returned rewards .*\(2, 1\).*shape \(2,\)"),
        ({"terminated": None}, "returned terminated None"),
        ({"truncated": np.zeros(3, bool)}, r"returned truncated .*\(3,\)"),
        ({"rewards": np.array([0.0, np.nan])}, "environment 1 of .*rewards hold NaN"),
        ({"terminated": np.array([0, 2])}, r"returned terminated .*\[0, 2\]; expected: True and False"),
        (
            {"terminated": np.array([False, True])},
            "environment 1 of .* ended an episode in the step after an end; .* that step only resets",
        ),
    ],
)
def test_a_vectorised_environment_is_looked_at_too(wrong, words, monkeypatch):
    env_id = "plugrad-tests/Vectorised-v0"
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=Good, vector_entry_point=Vectorised)
    envs = make_native_vector_env(env_id, {}, 2)
    assert envs.reset()[0].shape == (2, 3)
    envs.step(np.zeros(2, np.int64))
    algorithm = algorithm_of(env_id, vectorization_mode="vector_entry_point")
    monkeypatch.setattr(Vectorised, "wrong", wrong)
    with pytest.raises(EnvContractError, match=words):
        algorithm.sample()


class Bytes(Vectorised):
    """Its observations are of uint8."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.single_observation_space = Box(0, 255, (3,), np.uint8)


@pytest.mark.parametrize("value", [7.0, 7.5])
def test_observations_of_a_vectorised_environment_are_cast_if_the_dtype_holds_them(value, monkeypatch):
    monkeypatch.setattr(Bytes, "wrong", {"observations": np.full((2, 3), value)})
    gym.register(f"plugrad-tests/Bytes{value}-v0", entry_point=Good, vector_entry_point=Bytes)
    settings = {"num_envs_per_env_runner": 2, "vectorization_mode": "vector_entry_point"}
    act = {"actions": np.zeros(2, np.int64)}
    runner = make_runner(lambda observations: act, env=f"plugrad-tests/Bytes{value}-v0", **settings)
    if value % 1:
        with pytest.raises(EnvContractError, match=r"returned observations .*float64.*return uint8"):
            runner.sample(1)
    else:
        assert runner.sample(1)[0].observations.tolist() == [[0] * 3, [7] * 3]


class SameStep(Vectorised):
    """Resets in the step in which an episode ends; the mode is named as Gymnasium's functions take it, too."""

    metadata = {"autoreset_mode": "SameStep"}  # noqa: RUF012
    infos: ClassVar[dict[str, Any]] = {}

    def step(self, actions):
        return *super().step(actions)[:-1], self.infos


def of_last(*rows):
    found = np.full(2, None)
    for row in rows:
        found[row] = np.ones(3, np.float32)
    return {"final_obs": found, "_final_obs": np.array([row in rows for row in range(2)])}


@pytest.mark.parametrize("infos", [{}, of_last(0), {"final_obs": of_last(1)["final_obs"]}])
def test_a_vectorised_environment_that_ends_without_a_last_observation_is_refused(infos, monkeypatch):
    runner = vectorised_runner(SameStep, monkeypatch, infos)
    with pytest.raises(
        EnvContractError, match=r"environment 1 of .* ended an episode without infos\['final_obs'\]"
    ):
        runner.sample(2)


def test_flags_of_numbers_and_lists_are_flags(monkeypatch):
    """As bools they can be negated: an episode that was cut off is bootstrapped from its last observation."""
    runner = vectorised_runner(SameStep, monkeypatch, of_last(1))
    cut = {"terminated": np.zeros(2, np.uint8), "truncated": [0.0, 1.0], "rewards": [1, 2]}
    monkeypatch.setattr(SameStep, "wrong", cut)
    (ended,) = [each for each in runner.sample(1) if each.is_done]
    assert ended.truncated
    assert not ended.terminated
    assert ended.rewards.tolist() == [2]
    assert ended.observations.tolist() == [[0] * 3, [1] * 3]


def vectorised_runner(env, monkeypatch, infos):
    env_id = f"plugrad-tests/{env.__name__}-v0"
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=Good, vector_entry_point=env)
    monkeypatch.setattr(env, "wrong", {"terminated": np.array([False, True])})
    monkeypatch.setattr(env, "infos", infos)
    act = {"actions": np.zeros(2, np.int64)}
    settings = {"num_envs_per_env_runner": 2, "vectorization_mode": "vector_entry_point"}
    return make_runner(lambda observations: act, env=env_id, **settings)
