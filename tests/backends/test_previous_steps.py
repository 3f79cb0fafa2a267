"""The settings `use_prev_action` and `use_prev_reward`: acting sees what training sees, in all kinds of policies."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from learning import quick_mode
from many_agents_world import Turns

import plugrad
from plugrad import DEFAULT_MODULE_ID, numpy_ops
from plugrad.algorithm import Algorithm
from plugrad.errors import ConfigError
from plugrad.sampling.environments import make_multi_agent_env
from plugrad.sampling.previous_steps import PreviousParts, PreviousSteps
from plugrad.sampling.wrappers import EnvWrappers
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig


class Paid(gym.Env):
    """Episodes of four steps; a reward is 1 + the sum of the numbers of the action."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, action_space=None):
        self.action_space = action_space or Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        self.steps += 1
        seen = np.full(2, self.steps / 4, np.float32)
        return seen, 1.0 + float(np.sum(action)), self.steps == 4, False, {}


BOTH = {"use_prev_action": True, "use_prev_reward": True}


def config(algorithm=PPOConfig, backend="numpy", env=Paid, frames=1, actions=None, **model):
    sizes = {"train_batch_size": 12, "minibatch_size": 6}
    return (
        algorithm()
        .framework(backend, compile=quick_mode(backend))
        .environment(env, env_config={} if actions is None else {"action_space": actions})
        .env_runners(num_envs_per_env_runner=2, frame_stack=frames)
        .rl_module(model_config={"fcnet_hiddens": [4], "ortho_init": False, **BOTH, **model})
        .training(**sizes)
        .debugging(seed=0)
    )


@pytest.mark.parametrize(
    "memory", [{}, {"use_lstm": True, "lstm_cell_size": 3, "max_seq_len": 4}], ids=["", "lstm"]
)
def test_acting_saw_what_training_sees(backend, memory, tmp_path):
    algorithm = config(backend=backend, **memory).training(num_epochs=1).build_algo()
    algorithm.train()  # the next batch begins amid episodes
    learner, chunks = algorithm._learner, algorithm.sample()
    weights = learner.get_weights()[DEFAULT_MODULE_ID]
    network = learner.module[DEFAULT_MODULE_ID].network
    for chunk in chunks:
        rows, first = chunk.observations, int(chunk.t_started == 0)
        if first:
            np.testing.assert_array_equal(rows[0, 2:], np.zeros(4))
        np.testing.assert_array_equal(rows[1:, 2:5], np.eye(3)[chunk.actions])
        np.testing.assert_array_equal(rows[1:, 5], 1.0 + chunk.actions + 5)
        outputs = chunk.extra_model_outputs
        batch = {"obs": rows[:-1]}
        if memory:
            state = {name: outputs[f"state_in/{name}"][None, 0] for name in network.initial_state()}
            batch = {"obs": rows[None, :-1], "state_in": state}
        expected = network.forward(numpy_ops, weights, batch, value=True)
        found = learner.compute_values_of_episodes([chunk])[:-1], outputs["action_dist_inputs"]
        for one, name in zip(found, ("vf_preds", "action_dist_inputs"), strict=True):
            wanted = expected[name][0] if memory else expected[name]
            np.testing.assert_allclose(one, wanted, atol=1e-5)
        batch["obs"] = np.where(np.arange(6) < 2, batch["obs"], 0.0).astype(np.float32)
        blind = network.forward(numpy_ops, weights, batch, value=True)
        assert np.abs(blind["vf_preds"] - expected["vf_preds"]).max() > 1e-3
    assert any(chunk.t_started == 0 for chunk in chunks)
    assert np.isfinite(algorithm.evaluate(1)["episode_return_mean"])
    algorithm.save_to_path(tmp_path)
    policy, loaded = algorithm.get_policy(), plugrad.load_policy(tmp_path)
    observation = PreviousSteps(Paid()).reset(seed=0)[0]
    assert policy.predict(observation)[0] == loaded.predict(observation)[0]
    algorithm.stop()
    resumed = Algorithm.from_checkpoint(tmp_path, env=Paid)
    assert resumed.sample()[0].observations.shape[1] == 6
    resumed.stop()


@pytest.mark.parametrize("algorithm", [SACConfig, DQNConfig])
def test_replay_algorithms_have_the_same_observations(algorithm):
    sizes = {"train_batch_size": 2, "minibatch_size": 2}
    made = (
        config(algorithm, fcnet_hiddens=[1])
        .training(replay_buffer_config={"capacity": 100}, **sizes)
        .build_algo()
    )
    assert list(made.get_policy().observation_space) == ["obs", "prev_action", "prev_reward"]
    made.train()
    made.stop()


ACTIONS = {
    "choices": (MultiDiscrete([2, 3]), [1, 2], [0, 1, 0, 0, 1]),
    "bounds": (Box(np.float32([-1, 0]), np.float32([3, 10])), [3.0, 2.5], [1.0, -0.5]),
    "the widest bounds": (Box(-3e38, 3e38, (2,)), [1.5e38, -3e38], [0.5, -1.0]),
    "no bounds": (Box(-np.inf, np.inf, (2,)), [7.0, -2.0], [7.0, -2.0]),
    "parts": (
        Dict(arm=Box(-2.0, 2.0, (1,)), grip=Discrete(2)),
        {"arm": [1.0], "grip": 1},
        {"arm": [0.5], "grip": [0, 1]},
    ),
    "a tuple": (Tuple((Discrete(2), Discrete(3))), (0, 2), ([1, 0], [0, 0, 1])),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_kind_of_action_is_seen(kind):
    space, action, expected = ACTIONS[kind]
    env = PreviousSteps(_Still(space))
    assert not np.any(gym.spaces.flatten(env.observation_space, env.reset(seed=0)[0]))
    observation = env.step(action)[0]
    assert env.observation_space.contains(
        {**observation, "prev_reward": np.float32(observation["prev_reward"])}
    )
    assert observation["prev_reward"].tolist() == [2.0]
    found = gym.spaces.flatten(env.observation_space["prev_action"], observation["prev_action"])
    np.testing.assert_allclose(found, gym.spaces.flatten(env.observation_space["prev_action"], expected))


class _Still(Paid):
    """Each reward is 2."""

    def step(self, action):
        return np.zeros(2, np.float32), 2.0, False, False, {}


def test_stacked_frames_are_a_window_of_the_last_steps():
    algorithm = config(frames=2).build_algo()
    (chunk, *_) = algorithm.sample()
    actions = chunk.observations[:, 4:10].reshape(-1, 2, 3)
    np.testing.assert_array_equal(actions[1:, 1], np.eye(3)[chunk.actions])
    np.testing.assert_array_equal(actions[1:, 0], actions[:-1, 1])
    algorithm.stop()


def test_an_agent_among_many_sees_its_own_last_step_and_all_rewards_since():
    env = make_multi_agent_env(Turns, wrappers=EnvWrappers(previous=PreviousParts(True, True)))
    observations, _ = env.reset(0)
    seen = []
    for _ in range(4):
        for agent, each in observations.items():
            assert env.observation_space(agent).contains(each)
            seen.append((agent, each["prev_action"].tolist(), each["prev_reward"].tolist()))
        observations = env.step(dict.fromkeys(observations, 1)).observations
    assert seen == [
        ("a", [0, 0], [0]),
        ("b", [0, 0], [0]),
        ("a", [0, 1], [3]),
        ("b", [0, 1], [3]),
    ]


def test_what_cannot_be_is_said_with_what_to_type():
    spaces = {"observation_space": Paid.observation_space, "action_space": Discrete(3)}
    with pytest.raises(ConfigError, match=r"have no key 'prev_action'.*Leave observation_space out"):
        config().environment(None, **spaces).build_learner()
    with pytest.raises(ConfigError, match="use_prev_action=True needs vectorization_mode"):
        config(env="CartPole-v1").env_runners(vectorization_mode="vector_entry_point").build_algo()
    with pytest.raises(ConfigError, match=r"the environment has it already.*leave use_prev_action out"):
        PreviousSteps(PreviousSteps(Paid()))
    with pytest.raises(ConfigError, match="leave use_prev_reward out"):
        config(DQNConfig, frames=None).training(hindsight="future").validate()


def test_a_model_for_a_runtime_has_an_input_for_each_key(tmp_path):
    needs.extra("onnx")
    runtime = needs.extra("onnxruntime")
    learner = config().build_learner()
    policy = learner.get_policy()
    policy.export_onnx(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    assert [each.name for each in session.get_inputs()] == ["obs.obs", "prev_action", "prev_reward"]
    env = PreviousSteps(Paid())
    env.reset(seed=0)
    observation = {name: np.float32(value)[None] for name, value in env.step(6)[0].items()}
    given = {"obs.obs" if name == "obs" else name: value for name, value in observation.items()}
    np.testing.assert_array_equal(session.run(None, given)[0], policy.predict(observation)[0])
