"""Dict and Tuple observations through every door: training, batches, episodes, acting, users' models, checkpoints."""

from copy import deepcopy
from functools import partial
from inspect import signature
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import structured_models
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from learning import quick_mode

import plugrad
from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec, SingleAgentEpisode, hookimpl
from plugrad.batch import Rows
from plugrad.errors import BatchError
from plugrad.observations import flat_rows
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig, PPOLearner

P = DEFAULT_MODULE_ID
IMAGE = Box(0, 255, (6, 5, 2), np.uint8)
VECTORS = Dict(
    {"speed": Box(-1.0, 1.0, (2,)), "gear": Discrete(3), "sub": Tuple([Box(0, 9, (2, 1), np.uint8)])}
)
CAMERA = Dict({"camera": IMAGE, "gear": Discrete(3), "inner": Tuple([Box(-1.0, 1.0, (2,))])})
ITS_DTYPE: dict[str, Any] = {"dtype": np.uint8} if "dtype" in signature(Discrete).parameters else {}
"""Gymnasium 1.1 has no such argument."""
BYTES = Dict(
    {
        "level": Box(0, 9, (254,), np.uint8),
        "turn": Discrete(3, start=1, **ITS_DTYPE),
        "sub": Tuple([MultiDiscrete([2, 3], np.uint8)]),
    }
)
FILTERS = [[2, 4, 2]]


class Seen(gym.Env):
    """Random observations of a space, in episodes of 5 steps."""

    def __init__(self, space=VECTORS):
        self.observation_space, self.action_space = deepcopy(space), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(action), self.steps == 5, False, {}


def flattened(space):
    return gym.wrappers.FlattenObservation(Seen(space))


def camera():
    return Seen(CAMERA)


def config(env, backend, cls=PPOConfig, **model):
    return (
        cls()
        .environment(env)
        .framework(backend, compile=quick_mode(backend))
        .rl_module(model_config={"fcnet_hiddens": [4], **model})
        .debugging(seed=0)
    )


def ppo(env, backend, **model):
    return config(env, backend, **model).training(train_batch_size=16, minibatch_size=8, num_epochs=2)


def learner_of(backend, space, **settings):
    some = (
        PPOConfig()
        .framework(backend, compile=quick_mode(backend))
        .environment(observation_space=space, action_space=Discrete(2))
    )
    return some.rl_module(**settings).training(minibatch_size=None, num_epochs=1, lr=0.01).debugging(seed=0)


def observations_of(space, number, seed=0):
    """A batch in the structure of CAMERA."""
    space.seed(seed)
    each = [space.sample() for _ in range(number)]
    return {
        "camera": np.stack([one["camera"] for one in each]),
        "gear": np.stack([one["gear"] for one in each]),
        "inner": (np.stack([one["inner"][0] for one in each]),),
    }


def batch_of(obs, rows=8):
    rng = np.random.default_rng(1)
    return {
        Columns.OBS: obs,
        Columns.ACTIONS: rng.integers(0, 2, rows),
        Columns.ACTION_LOGP: np.full(rows, -0.7, np.float32),
        Columns.ACTION_DIST_INPUTS: np.zeros((rows, 2), np.float32),
        Columns.VF_PREDS: np.zeros(rows, np.float32),
        Columns.ADVANTAGES: rng.normal(size=rows).astype(np.float32),
        Columns.VALUE_TARGETS: rng.normal(size=rows).astype(np.float32),
    }


def assert_equal_weights(found, expected, **tolerance):
    assert list(found[P]) == list(expected[P])
    for name, want in expected[P].items():
        if tolerance:
            np.testing.assert_allclose(found[P][name], want, err_msg=name, **tolerance)
        else:
            np.testing.assert_array_equal(found[P][name], want, err_msg=name)


@pytest.mark.parametrize("space", [VECTORS, BYTES, Tuple([MultiDiscrete([3, 2], np.uint8)])])
def test_a_dict_of_vectors_trains_as_the_flattened_environment_to_the_bit(backend, space):
    """By the rule of older checkpoints: a flattened environment no longer says which numbers are bytes."""
    found, expected = (
        ppo(partial(env, space), backend, uint8_scale="row").build_algo() for env in (Seen, flattened)
    )
    found.train()
    expected.train()
    assert found.config.observation_space == space
    assert_equal_weights(found._learner.get_weights(), expected._learner.get_weights())


def test_an_update_is_that_of_finite_differences(backend):
    def updated(name):
        model = {"fcnet_hiddens": [2], "conv_filters": FILTERS, "vf_share_layers": True}
        learner = learner_of(name, CAMERA, model_config=model).build_learner()
        learner.update(batch_of(observations_of(CAMERA, 8)))
        return learner.get_weights()

    assert_equal_weights(updated(backend), updated("numpy"), rtol=1e-4, atol=1e-5)


def test_structured_batches_are_the_same_as_rows(backend):
    obs = observations_of(CAMERA, 8)
    rows = flat_rows(CAMERA, obs).astype(np.float32)
    model = {"fcnet_hiddens": [4], "conv_filters": FILTERS}
    one, other = (learner_of(backend, CAMERA, model_config=model).build_learner() for _ in range(2))
    one.update(batch_of(obs))
    other.update({P: batch_of(rows)})
    assert_equal_weights(one.get_weights(), other.get_weights())
    for column, want in other.compute_actions(rows, explore=False).items():
        np.testing.assert_array_equal(one.compute_actions(obs, explore=False)[column], want)
    np.testing.assert_array_equal(one.compute_values(obs), other.compute_values(rows))


@pytest.mark.parametrize("form", ["arrays", "list"])
def test_structured_episodes_are_the_same_as_rows(backend, form):
    obs = observations_of(CAMERA, 9)
    rows = flat_rows(CAMERA, obs).astype(np.float32)
    listed = [
        {"camera": obs["camera"][n], "gear": obs["gear"][n], "inner": (obs["inner"][0][n],)} for n in range(9)
    ]
    model = {"fcnet_hiddens": [4], "conv_filters": FILTERS}
    one, other = (learner_of(backend, CAMERA, model_config=model).build_learner() for _ in range(2))

    def episode(observations):
        extra = {
            "action_logp": np.full(8, -0.7, np.float32),
            "action_dist_inputs": np.zeros((8, 2), np.float32),
        }
        return SingleAgentEpisode(
            observations=observations,
            actions=np.arange(8) % 2,
            rewards=np.ones(8, np.float32),
            terminated=True,
            extra_model_outputs={**extra, "vf_preds": np.zeros(8, np.float32)},
        )

    given = episode(listed if form == "list" else obs)
    np.testing.assert_array_equal(
        one.compute_values_of_episodes([given]), other.compute_values_of_episodes([episode(rows)])
    )
    one.update(episodes=[given])
    other.update(episodes=[episode(rows)])
    assert_equal_weights(one.get_weights(), other.get_weights())


def test_observations_that_do_not_fit_are_refused_by_module_and_part_and_nothing_changes(backend):
    learner = learner_of(backend, CAMERA, model_config={"conv_filters": FILTERS}).build_learner()
    before = learner.get_weights()
    wrong = {**observations_of(CAMERA, 8), "gear": np.full(8, 3)}
    for act in (learner.compute_actions, learner.compute_values, lambda obs: learner.update(batch_of(obs))):
        with pytest.raises(
            BatchError, match=r"module 'default_policy', column 'obs'.*\['gear'\].*whole numbers"
        ):
            act(wrong)
    with pytest.raises(BatchError, match=r"an episode of 2 actions has 3 observations, found 8"):
        SingleAgentEpisode(observations=wrong, actions=np.zeros(2, int), rewards=np.zeros(2))
    assert_equal_weights(learner.get_weights(), before)


def test_a_users_model_of_a_dict_reads_no_other_columns(backend):
    cls = getattr(structured_models, f"{backend.capitalize()}Structured")
    config = learner_of(backend, CAMERA, rl_module_spec=RLModuleSpec(module_class=cls)).framework(
        backend, compile="none"
    )
    unread = {**batch_of(observations_of(CAMERA, 8)), "unread": np.full(8, np.nan, np.float32)}
    assert np.isfinite(config.build_learner().update(unread)[P]["total_loss"])


@pytest.mark.parametrize("mode", ["none", "forward_train"])
def test_a_users_model_of_a_dict_is_trained(backend, mode):
    cls = getattr(structured_models, f"{backend.capitalize()}Structured")
    config = learner_of(backend, CAMERA, rl_module_spec=RLModuleSpec(module_class=cls))
    learner = config.framework(backend, compile=mode).build_learner()
    batch = batch_of(observations_of(CAMERA, 8))
    losses = [learner.update(batch)[P]["total_loss"] for _ in range(10)]
    assert losses[-1] < losses[0]
    assert learner.update_mode.startswith(mode)


class FirstGear:
    """Reports how many rows of a loss are in the first gear."""

    @hookimpl(wrapper=True)
    def compute_loss_for_module(self, learner, module_id, batch):
        gear = batch[Columns.OBS]["gear"]
        learner.register_metric(module_id, "first_gear", learner.ops.mean(gear[:, 0]))
        return (yield)


def test_the_loss_of_a_users_model_reads_a_dict_by_key(backend):
    cls = getattr(structured_models, f"{backend.capitalize()}Structured")
    config = learner_of(backend, CAMERA, rl_module_spec=RLModuleSpec(module_class=cls))
    learner = PPOLearner(config=config, plugins=[FirstGear()])
    learner.build()
    obs = observations_of(CAMERA, 8)
    found = learner.update(batch_of(obs))[P]["first_gear"]
    assert found == pytest.approx((obs["gear"] == 0).mean())
    assert 0.0 < found < 1.0


def test_rows_with_other_columns_take_the_rest_when_it_is_read():
    taken = []
    rows = Rows(P, {"obs": 1, "state_in/h": 2, "unread": 3}, lambda value: taken.append(value) or 10 * value)
    changed = rows.with_columns({"obs": 5, "noise": 7})
    assert (changed["obs"], changed["noise"], changed["state_in"]) == (5, 7, {"h": 20})
    assert taken == [2]
    assert set(changed) == {"obs", "state_in/h", "unread", "noise"}


def test_a_users_model_reads_observations_in_the_structure_of_the_space(backend):
    cls = getattr(structured_models, f"{backend.capitalize()}Structured")
    spec = RLModuleSpec(module_class=cls)
    learner = learner_of(backend, CAMERA, rl_module_spec=spec).build_learner()
    obs = observations_of(CAMERA, 8)
    losses = [learner.update(batch_of(obs))[P]["total_loss"] for _ in range(20)]
    assert losses[-1] < losses[0]
    assert learner.compute_actions(obs)["actions"].shape == (8,)
    shifted = {**obs, "gear": (obs["gear"] + 1) % 3}
    assert (learner.compute_values(obs) != learner.compute_values(shifted)).all()
    trained = ppo(camera, backend).rl_module(model_config={}, rl_module_spec=spec).build_algo()
    trained.train()
    assert trained.get_policy().predict(CAMERA.sample())[0] in (0, 1)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_loaded_policy_acts_equally(backend, tmp_path, normalize):
    some = ppo(camera, backend, conv_filters=FILTERS).env_runners(normalize_observations=normalize)
    algorithm = some.build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    policy, loaded = algorithm.get_policy(), plugrad.load_policy(tmp_path)
    obs = observations_of(CAMERA, 20)
    np.testing.assert_array_equal(policy.predict(obs)[0], loaded.predict(obs)[0])
    assert loaded.observation_space == CAMERA
    assert loaded.predict(CAMERA.sample())[0] in (0, 1)
    resumed = type(algorithm).from_checkpoint(tmp_path, env=camera)
    assert resumed.train()["training_iteration"] == 2


def test_a_replay_of_structured_observations_goes_on_where_it_was(backend, tmp_path):
    some = config(camera, backend, DQNConfig, conv_filters=FILTERS).training(
        minibatch_size=4, train_batch_size=8, num_steps_sampled_before_learning_starts=8
    )
    algorithm = some.env_runners(rollout_fragment_length=8).build_algo()
    for _ in range(2):
        algorithm.train()
    algorithm.save_to_path(tmp_path)
    again = type(algorithm).from_checkpoint(tmp_path, env=camera)
    algorithm.train()
    again.train()
    assert_equal_weights(again._learner.get_weights(), algorithm._learner.get_weights())


@pytest.mark.parametrize("normalize", [False, True])
def test_a_checkpoint_of_flat_rows_opens_and_takes_observations_as_they_are(backend, tmp_path, normalize):
    flat = plugrad.observations.row_space(VECTORS)
    flat = plugrad.observations.stored_space(flat, normalized=normalize)
    older = ppo(Seen, backend).environment(Seen, observation_space=flat, action_space=Discrete(2))
    algorithm = older.env_runners(normalize_observations=normalize).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    if normalize:
        assert algorithm.env_runner.normalizer.mean.shape == flat.shape
    policy, loaded = algorithm.get_policy(), plugrad.load_policy(tmp_path)
    VECTORS.seed(0)
    for _ in range(5):
        one = VECTORS.sample()
        assert policy.predict(one, deterministic=True)[0] == loaded.predict(one, deterministic=True)[0]
    resumed = type(algorithm).from_checkpoint(tmp_path, env=Seen)
    assert resumed.config.observation_space == flat
    algorithm.train()
    resumed.train()
    assert_equal_weights(resumed._learner.get_weights(), algorithm._learner.get_weights())
