"""Observation preprocessors, simple connectors, grouped agents and small functions of RLlib after `plugrad migrate`."""

from types import SimpleNamespace

import gymnasium as gym
import needs
import numpy as np
import pytest
from test_migrate import rewritten
from test_migrate_callbacks import algorithm_of, program_of

from plugrad.errors import ConfigError
from plugrad_rllib.agent_groups import GroupAgentsWrapper
from plugrad_rllib.arrays import normc_initializer

needs.extra("libcst")

SINGLE = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.env_to_module import FlattenObservations, PrevActionsPrevRewards
from ray.rllib.connectors.env_to_module.mean_std_filter import MeanStdFilter
from ray.rllib.connectors.env_to_module.observation_preprocessor import SingleAgentObservationPreprocessor
from ray.rllib.env.single_agent_episode import SingleAgentEpisode


class Line(gym.Env):
    observation_space = gym.spaces.Box(0, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(3, start=1)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(2, self.t, np.float32), float(self.t), self.t == 4, False, {}


class First(SingleAgentObservationPreprocessor):
    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return gym.spaces.Box(-9.0, 9.0, (input_observation_space.shape[0] - 1,), np.float32)

    def preprocess(self, observation, episode: SingleAgentEpisode):
        assert len(episode) == episode.t == observation[0]
        return observation[:1]


class Negated(ConnectorV2):
    def __init__(self, *args, factor, **kwargs):
        super().__init__(*args, **kwargs)
        self.factor = factor

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            changed = self.factor * episode.get_observations(-1)
            episode.set_observations(new_data=changed, at_indices=-1)
        return batch


config = (
    PPOConfig()
    .environment(Line)
    .env_runners(num_envs_per_env_runner=2, env_to_module_connector=lambda env, spaces, device: PIECES)
    .training(train_batch_size=20, minibatch_size=10, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .debugging(seed=1)
)
"""


def observations_of(program, number=4):
    """The first observations of a run, as its module sees them."""
    algorithm = algorithm_of(program.config)
    episodes = algorithm.sample(number)
    algorithm.train()
    algorithm.stop()
    return episodes[0]


def test_a_preprocessor_is_a_wrapper_with_its_space(tmp_path, monkeypatch):
    program, lines = program_of(
        tmp_path, monkeypatch, SINGLE.replace("PIECES", "[First(), Negated(factor=-2)]")
    )
    assert lines == []
    assert (
        ".env_runners(num_envs_per_env_runner=2, env_wrappers=[First, [Negated, {"
        in (tmp_path / "mine.py").read_text()
    )
    assert observations_of(program).observations.ravel().tolist() == [0, -2, -4, -6, -8]


def test_previous_actions_and_rewards_are_parts_of_observations(tmp_path, monkeypatch):
    pieces = "[PrevActionsPrevRewards(n_prev_actions=2, n_prev_rewards=3), FlattenObservations()]"
    program, lines = program_of(tmp_path, monkeypatch, SINGLE.replace("PIECES", pieces))
    assert lines == []
    episode = observations_of(program)
    first, rewards = episode.observations[:, 2:8].reshape(5, 2, 3), episode.observations[:, 8:]
    chosen = np.eye(3)[np.asarray(episode.actions)]
    assert np.array_equal(first[0], np.zeros((2, 3)))
    assert np.array_equal(first[1], [np.zeros(3), chosen[0]])
    assert np.array_equal(first[4], chosen[2:])
    assert rewards.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert episode.observations[:, 0].tolist() == [0, 1, 2, 3, 4]  # the original observation


def test_a_piece_after_a_setting_is_named_since_wrappers_come_first(tmp_path):
    text, lines = rewritten(tmp_path, SINGLE.replace("PIECES", "[MeanStdFilter(), First()]"))
    assert "env_wrappers=[First], normalize_observations=True" in text
    assert len(lines) == 1
    assert "First() comes before normalize_observations here" in lines[0]


@pytest.mark.parametrize("given", ["[First(spaces)]", "[unknown()]", "[First(3)]"])
def test_pieces_that_cannot_be_wrappers_are_named(tmp_path, given):
    text, lines = rewritten(tmp_path, SINGLE.replace("PIECES", given))
    assert "env_wrappers" not in text
    assert len(lines) == 1
    assert "env_to_module_connector" in lines[0]


def test_a_connector_that_returns_a_batch_is_refused(tmp_path, monkeypatch):
    text = SINGLE.replace("PIECES", "[Negated(factor=1)]").replace("return batch", 'return {"obs": [1]}')
    program, _ = program_of(tmp_path, monkeypatch, text)
    with pytest.raises(ConfigError, match="One that makes a batch is a learner connector"):
        algorithm_of(program.config).train()


AGENTS = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module.observation_preprocessor import MultiAgentObservationPreprocessor
from ray.rllib.env.multi_agent_env import MultiAgentEnv


class Two(MultiAgentEnv):
    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["a", "b"]
        self.observation_spaces = {each: gym.spaces.Box(0, 9, (1,), np.float32) for each in self.agents}
        self.action_spaces = {each: gym.spaces.Discrete(2) for each in self.agents}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._seen(), {}

    def step(self, actions):
        self.t += 1
        self.taken = actions
        flags = {"__all__": self.t == 3}
        return self._seen(), {"a": 1.0, "b": 2.0}, flags, {"__all__": False}, {"a": {"t": self.t}, "b": {}}

    def _seen(self):
        return {"a": np.full(1, self.t, np.float32), "b": np.full(1, self.t + 5, np.float32)}


class SeesTheOther(MultiAgentObservationPreprocessor):
    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        assert list(input_action_space.spaces) == ["a", "b"]
        box = gym.spaces.Box(0, 9, (2,), np.float32)
        return gym.spaces.Dict({"a": box, "b": input_observation_space["b"]})

    def preprocess(self, observations, episode):
        return {"a": np.concatenate([observations["a"], observations["b"]])}


config = (
    PPOConfig()
    .environment(Two)
    .env_runners(env_to_module_connector=lambda env, spaces, device: SeesTheOther())
    .multi_agent(policies={"p", "q"}, policy_mapping_fn=lambda agent, *a, **kw: "p" if agent == "a" else "q")
    .training(train_batch_size=12, minibatch_size=6, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .debugging(seed=1)
)
"""


def others(lines):
    """The lines that were named but for the base class of environments."""
    return [line for line in lines if "MultiAgentEnv: delete the base class" not in line]


def test_a_preprocessor_of_many_agents_wraps_their_environment(tmp_path, monkeypatch):
    program, lines = program_of(tmp_path, monkeypatch, AGENTS)
    assert others(lines) == []
    parts = observations_of(program, 3).agent_episodes
    assert parts["a"].observations.tolist() == [[0, 5], [1, 6], [2, 7], [3, 8]]
    assert parts["b"].observations.tolist() == [[5], [6], [7], [8]]


GROUPED = (
    AGENTS[: AGENTS.index("class SeesTheOther")]
    + """
class OfGroups(MultiAgentEnv):
    def __init__(self, config=None):
        self._agent_ids = {"team"}
        super().__init__()
        self.env = Two().with_agent_groups(groups={"team": ["a", "b"]})
        self.observation_space = gym.spaces.Dict({"team": self.env.observation_spaces["team"]})
        self.action_space = gym.spaces.Dict({"team": self.env.action_spaces["team"]})

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)

    def step(self, actions):
        return self.env.step(actions)


config = (
    PPOConfig()
    .environment(OfGroups)
    .multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, *a, **kw: "p")
    .training(train_batch_size=12, minibatch_size=6, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [4]})
    .debugging(seed=1)
)
"""
)


def test_who_takes_an_agent_out_of_those_alive_leaves_those_that_there_can_be():
    spaces = {agent: gym.spaces.Discrete(2) for agent in ("a", "b", "c")}
    env = SimpleNamespace(possible_agents=[*spaces], observation_spaces=spaces, action_spaces=spaces)
    grouped = GroupAgentsWrapper(env, {"team": ["a", "b"]})
    assert grouped.agents == ["team", "c"]
    grouped.agents.remove("c")
    assert grouped.possible_agents == ["team", "c"]


def test_agents_of_a_group_act_as_one(tmp_path, monkeypatch):
    program, lines = program_of(tmp_path, monkeypatch, GROUPED)
    assert others(lines) == []
    part = observations_of(program, 3).agent_episodes["team"]
    assert part.observations.tolist() == [[0, 5], [1, 6], [2, 7], [3, 8]]
    assert part.rewards.tolist() == [3.0, 3.0, 3.0]
    env = program.OfGroups()
    env.reset()
    observations, rewards, terminated, _, infos = env.step({"team": (1, 0)})
    assert env.env.env.taken == {"a": 1, "b": 0}
    assert (rewards, terminated) == ({"team": 3.0}, {"__all__": False})
    assert infos["team"] == {"_group_info": [{"t": 1}, {}], "_group_rewards": [1.0, 2.0]}
    assert [each.tolist() for each in observations["team"]] == [[1], [6]]


HEURISTIC = (
    AGENTS[: AGENTS.index("class SeesTheOther")]
    .replace("gym.spaces.Box(0, 9, (1,), np.float32)", "gym.spaces.Discrete(9)")
    .replace("np.full(1, self.t, np.float32)", "self.t")
    .replace("np.full(1, self.t + 5, np.float32)", "self.t + 5")
    + """
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.policy.sample_batch import SampleBatch
from ray.rllib.utils.spaces.space_utils import batch as batch_func

SEEN = []


class Heuristic(RLModule):
    def _forward(self, batch, **kwargs):
        SEEN.extend(batch[Columns.OBS].tolist())
        actions = batch_func([self.action_space.sample() for _ in batch[SampleBatch.OBS]])
        return {SampleBatch.ACTIONS: actions}

    def _forward_train(self, batch, **kwargs):
        raise NotImplementedError


config = (
    PPOConfig()
    .environment(Two)
    .multi_agent(
        policies={"p", "q"},
        policy_mapping_fn=lambda agent, *a, **kw: "p" if agent == "a" else "q",
        policies_to_train=["p"],
    )
    .training(train_batch_size=12, minibatch_size=6, num_epochs=1)
    .rl_module(
        rl_module_spec=MultiRLModuleSpec(
            rl_module_specs={
                "p": RLModuleSpec(model_config={"fcnet_hiddens": [4]}),
                "q": RLModuleSpec(
                    module_class=Heuristic,
                    observation_space=gym.spaces.Discrete(9),
                    action_space=gym.spaces.Discrete(2),
                ),
            }
        )
    )
    .debugging(seed=1)
)
"""
)


def test_a_module_with_a_discrete_space_of_its_own_reads_the_choices(tmp_path, monkeypatch):
    program, lines = program_of(tmp_path, monkeypatch, HEURISTIC)
    assert others(lines) == []
    algorithm = algorithm_of(program.config)
    algorithm.sample(4)
    algorithm.train()
    algorithm.stop()
    assert program.SEEN[:4] == [5, 6, 7, 5]


def test_batches_of_structures_and_functions_of_numbers():
    from plugrad_rllib.arrays import (
        batch,
        one_hot,
        resize,
        same_padding,
        sigmoid,
        softmax,
        unbatch,
        valid_padding,
    )

    items = [{"a": n, "b": (np.full(2, n), 1.0)} for n in range(3)]
    joined = batch(items)
    assert joined["a"].tolist() == [0, 1, 2]
    assert joined["b"][0].shape == (3, 2)
    again = unbatch(joined)
    assert [each["b"][0].tolist() for each in again] == [[0, 0], [1, 1], [2, 2]]
    assert batch([np.ones((2, 3)), np.ones((1, 3))], individual_items_already_have_batch_dim=True).shape == (
        3,
        3,
    )
    with pytest.raises(ValueError, match="at least one item"):
        batch([])
    with pytest.raises(ValueError, match="the keys a, b"):
        batch([items[0], {"a": 1}])
    np.testing.assert_allclose(softmax([0.0, np.log(3.0)]), [0.25, 0.75])
    assert np.isfinite(softmax([0.0, 1e4])).all()
    np.testing.assert_allclose(sigmoid(0.0), 0.5)
    assert one_hot([1, 0], depth=3).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert one_hot([1, 0]).dtype == np.float32
    # kernel 4, stride 2 and "same" of 42x42: TensorFlow pads one pixel on each side
    assert same_padding([42, 42], 4, [2, 2]) == ((1, 1, 1, 1), (21, 21))
    assert same_padding((5, 6), (2, 3), 1) == ((1, 1, 0, 1), (5, 6))
    assert valid_padding([11, 12], 11, 1) == (1, 2)
    needs.extra("cv2")
    assert resize(np.zeros((400, 600, 3), np.uint8), 64, 96).shape == (64, 96, 3)


def test_structures_of_tensors_are_compared_and_become_arrays_and_tensors():
    torch = needs.backend("torch")
    from plugrad_rllib.structures import check, convert_to_numpy, convert_to_torch_tensor, flatten_space

    given = {"a": (np.arange(2), 0.5), "b": [np.ones(2), None, "text"]}
    tensors = convert_to_torch_tensor(given)
    assert tensors["b"][0].dtype == torch.float32
    assert tensors["b"][1:] == [None, "text"]
    arrays = convert_to_numpy(tensors)
    assert (arrays["a"][0].dtype, arrays["a"][1]) == (np.int32, 0.5)
    check(tensors, given)
    check(given, tensors, rtol=0.0)
    check({"a": 1.0}, {"a": 1.1}, false=True)
    check(1.0, 1.1, atol=0.2)
    for one, other in [({"a": 1}, {"b": 1}), ([1], [1, 2]), (np.ones(2), np.zeros(2)), ("a", "b"), (None, 1)]:
        with pytest.raises(AssertionError, match="check: "):
            check(one, other)
    with pytest.raises(AssertionError, match="the same as"):
        check(given["a"], tensors["a"], false=True)
    parts = [gym.spaces.Discrete(2), gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(3)]
    nested = gym.spaces.Tuple([gym.spaces.Dict({"b": parts[1], "a": parts[0]}), parts[2]])
    assert flatten_space(nested) == parts


def test_first_weights_of_rllibs_initializer_are_rows_of_one_length():
    torch = needs.backend("torch")
    weight = torch.empty(3, 5)
    normc_initializer(0.5)(weight)
    np.testing.assert_allclose(np.linalg.norm(weight.numpy(), axis=1), 0.5, rtol=1e-5)


def test_games_are_wrapped_as_rllib_does():
    from plugrad_rllib.atari import wrap_atari_for_new_api_stack

    needs.extra("ale_py")
    env = wrap_atari_for_new_api_stack(gym.make("ale_py:ALE/Pong-v5", frameskip=1), dim=42, framestack=4)
    assert env.observation_space == gym.spaces.Box(-1.0, 1.0, (42, 42, 4), np.float32)
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape == (42, 42, 4)
    assert observation.dtype == np.float32
    assert -1 <= observation.min() < observation.max() <= 1
    following, *_ = env.step(0)
    assert np.array_equal(following[..., 2], observation[..., 3])  # the newest frame is last
    env.close()
