"""CQL and IQL: losses and gradients by the papers, equal on every backend, from recordings, resumed, bad input."""

from copy import deepcopy
from functools import cache

import gymnasium as gym
import needs
import numpy as np
import pytest
from actor_critics import BOX, several_steps, transitions
from learning import OBSERVATIONS, digest, largest_difference
from offline_papers import KINDS, CQLPaper, IQLPaper, tiny

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, SingleAgentEpisode, load_policy
from plugrad.algorithm import Algorithm
from plugrad.errors import BatchError, ConfigError
from plugrad.offline import save_episodes
from plugrad.replay import transitions as transitions_of
from plugrad_offline import CQLConfig, IQLConfig, MARWILConfig

P = DEFAULT_MODULE_ID
ALL = ("torch", "tf2", "jax")
each_kind = pytest.mark.parametrize("kind", KINDS)


def noise_of_next_update(learner, rows: int) -> dict[str, np.ndarray]:
    """What the next update of one minibatch draws: all columns of its rows, one after the other."""
    shapes = learner.get_noise_columns(P)
    sizes = [rows * int(np.prod(shape)) for shape in shapes.values()]
    numbers = deepcopy(learner.stream(P, "noise")).standard_normal(sum(sizes), np.float32)
    parts = np.split(numbers, np.cumsum(sizes)[:-1]) if shapes else []
    return {
        name: part.reshape(rows, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def paper_of(learner, kind: str, rows):
    noise = noise_of_next_update(learner, len(rows[Columns.OBS]))
    weights, target = learner.get_weights()[P], learner.targets[P].get_state()
    return (IQLPaper if kind == "iql" else CQLPaper)(learner.config, weights, target, rows, noise)


def learner_with_a_past(kind: str, backend: str, **training):
    """The target network is behind, the policy is not that of the beginning."""
    learner = tiny(kind, backend, tau=0.5, **training).build_learner()
    rng = np.random.default_rng(3)
    spread = {name: rng.normal(scale=0.4, size=each.shape) for name, each in learner.get_weights()[P].items()}
    learner.set_weights({P: {name: each.astype(np.float32) for name, each in spread.items()}})
    learner.update(transitions("sac", seed=6))
    return learner


# --- the losses ---


@each_kind
@pytest.mark.parametrize("columns", [{}, several_steps()], ids=["plain", "n steps and weights"])
def test_losses_are_those_of_the_papers(kind, columns, backend):
    learner, rows = learner_with_a_past(kind, backend), transitions("sac", **columns)
    paper = paper_of(learner, kind, rows)
    assert largest_difference(paper.target, paper.weights) > 0.001
    expected = paper.losses()
    results = learner.update(rows)[P]
    assert results["total_loss"] == pytest.approx(sum(expected.values()), rel=1e-4)
    assert results["policy_loss"] == pytest.approx(expected["actor"], rel=1e-4)
    if kind == "iql":
        assert results["vf_loss"] == pytest.approx(expected["value"], rel=1e-4)
        assert results["qf_loss"] == pytest.approx(expected["critic"], rel=1e-4)
    else:
        assert results["cql_gap"] == pytest.approx(0.5 * paper.gap(paper.weights), rel=1e-4)
        assert results["alpha_loss"] == pytest.approx(expected["alpha"], rel=1e-4)


@each_kind
def test_each_network_gets_the_gradient_of_its_own_loss_and_of_no_other(kind, backend):
    learner = learner_with_a_past(kind, backend, optimizer={"type": "sgd"})
    for _, optimizer in learner.get_optimizers_for_module(P):
        learner._set_optimizer_lr(optimizer, 1.0)
    rows = transitions("sac", **several_steps())
    paper = paper_of(learner, kind, rows)
    learner.update(rows)
    after = learner.get_weights()[P]
    assert {optimizer for optimizer, _ in learner.get_optimizers_for_module(P)} == set(paper.losses())
    for name, before in paper.weights.items():
        (loss,) = [key for key, prefix in paper.networks.items() if name.startswith(prefix)]
        expected = np.empty(before.shape)
        for place in np.ndindex(before.shape):
            moved = []
            for step in (1e-6, -1e-6):
                changed = before.copy()
                changed[place] += step
                moved.append(paper.losses(**{name: changed})[loss])
            expected[place] = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(before - after[name], expected, rtol=1e-3, atol=1e-4, err_msg=name)


@each_kind
def test_columns_that_would_broadcast_are_refused_and_change_nothing(kind):
    learner = tiny(kind, "numpy").build_learner()
    before = digest(learner.get_state())
    for column in (Columns.REWARDS, Columns.TERMINATEDS, Columns.WEIGHTS, Columns.N_STEP):
        rows = transitions("sac", **several_steps())
        rows[column] = rows[column][:, None]
        with pytest.raises(BatchError, match=rf"'{column}': expected one number per row, shape \[16\]"):
            learner.update(rows)
    assert digest(learner.get_state()) == before


@each_kind
def test_rows_that_do_not_count_change_nothing(kind):
    rows = transitions("sac")
    mask = np.arange(16) < 12
    spoiled = {
        name: np.where(mask.reshape(-1, *[1] * (each.ndim - 1)), each, each[::-1])
        for name, each in rows.items()
    }
    found = []
    for batch in (rows, spoiled):
        learner = learner_with_a_past(kind, "numpy")
        found.append((learner.update({**batch, "loss_mask": mask})[P]["total_loss"], learner.get_weights()))
    assert found[0][0] == found[1][0]
    assert digest(found[0][1]) == digest(found[1][1])


# --- equal numbers ---


@cache
def trained(kind: str, backend: str, activation: str) -> Learner:
    """320 gradient steps of Adam in one update."""
    settings = {"minibatch_size": 16, "num_epochs": 20, "shuffle_batch_per_epoch": True, "lr": 1e-3}
    config = tiny(kind, backend, compile="auto", hiddens=(32, 32), **settings)
    learner = config.rl_module(
        model_config={**config.model_config, "fcnet_activation": activation}
    ).build_learner()
    learner.update(transitions("sac", 256))
    return learner


@pytest.mark.cross_product(part=3)
@needs.backends(*ALL)
@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        ("iql", "relu"),
        ("cql", "relu"),
        # With relu a unit of a critic has a row at its kink: torch differs by 8.6e-3 from torch off by a last digit.
        pytest.param("cql lagrangian", "tanh", marks=pytest.mark.long),
    ],
)
def test_after_320_gradient_steps_backends_agree_within_1e_5(kind, activation):
    one, *others = (trained(kind, backend, activation) for backend in ALL)
    start = tiny(kind, "numpy", hiddens=(32, 32)).build_learner().get_weights()
    assert largest_difference(one.get_weights(), start) > 0.05
    for other in others:
        assert largest_difference(one.get_weights(), other.get_weights()) < 1e-5
        assert largest_difference(one.targets[P].get_state(), other.targets[P].get_state()) < 1e-5


@pytest.mark.cross_product
@each_kind
def test_a_program_and_single_steps_agree(kind, backend):
    found = []
    for compile in ("none", "complete_update"):
        learner = tiny(kind, backend, compile=compile, minibatch_size=8, num_epochs=3).build_learner()
        learner.update(transitions("sac"))
        found.append((learner.get_weights(), learner.targets[P].get_state()))
    assert largest_difference(found[0][0], found[1][0]) < 1e-5
    assert largest_difference(found[0][1], found[1][1]) < 1e-5


# --- recordings ---


def episodes_of(number: int = 6, steps: int = 20, *, space=BOX, seed: int = 0) -> list[SingleAgentEpisode]:
    """Random walks; the reward is the closeness of the first number of the action to that of the observation."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(number):
        obs = rng.uniform(-1.0, 1.0, (steps + 1, 3)).astype(np.float32)
        squashed = rng.uniform(-1.0, 1.0, (steps, 2))
        actions = (space.low + (squashed + 1.0) / 2.0 * (space.high - space.low)).astype(np.float32)
        rewards = 1.0 - np.abs(squashed[:, 0] - obs[:-1, 0])
        found.append(SingleAgentEpisode(observations=obs, actions=actions, rewards=rewards, terminated=True))
    return found


def saved(path, episodes, **spaces) -> str:
    given = {"observation_space": OBSERVATIONS, "action_space": BOX, **spaces}
    return save_episodes(path / "recorded", episodes, **given)


def run(kind: str, backend: str, data: str, **training):
    settings = {"minibatch_size": 16, "train_batch_size": 64, "n_step": 2}
    config = tiny(kind, backend, **{**settings, **training}).offline_data(input_=data)
    return config.environment(observation_space=None, action_space=None).build_algo()


def test_the_rows_are_the_transitions_of_the_episodes(tmp_path):
    episodes = episodes_of()
    algorithm = run("iql", "numpy", saved(tmp_path, episodes), n_step=3)
    (columns,) = algorithm._training._columns.values()
    for name in transitions_of(episodes[0], 3, 0.9):
        expected = np.concatenate([transitions_of(each, 3, 0.9)[name] for each in episodes])
        np.testing.assert_allclose(columns[name], expected, rtol=1e-5, atol=1e-6)


@each_kind
def test_a_resumed_run_equals_one_that_was_never_stopped(kind, backend, tmp_path):
    whole = run(kind, backend, saved(tmp_path, episodes_of()))
    for _ in range(3):
        results = whole.train()
    assert results["num_env_steps_sampled_lifetime"] == 3 * 64
    whole.save_to_path(tmp_path / "checkpoint")
    resumed = Algorithm.from_checkpoint(tmp_path / "checkpoint")
    for algorithm in (whole, resumed):
        for _ in range(2):
            algorithm.train()
    assert digest(resumed._training.get_state()) == digest(whole._training.get_state())
    assert digest(resumed._learner.get_state()) == digest(whole._learner.get_state())
    obs = np.zeros(3, np.float32)
    action = load_policy(tmp_path / "checkpoint").predict(obs)[0]
    assert BOX.contains(action)


@pytest.mark.parametrize("kind", ["iql", "cql"])
def test_better_actions_are_learned_from_random_ones(kind, backend, tmp_path):
    data = saved(tmp_path, episodes_of(40, 25))
    settings = {
        "minibatch_size": 64,
        "train_batch_size": 6400,
        "gamma": 0.0,
        "n_step": 1,
        "lr": 3e-3,
        "tau": 0.05,
    }
    more = {"beta": 10.0, "max_weight": 100.0} if kind == "iql" else {"min_q_weight": 0.5, "actor_lr": 3e-3}
    algorithm = run(kind, backend, data, hiddens=(32, 32), compile="auto", **settings, **more)
    for _ in range(4):
        algorithm.train()
    obs = np.random.default_rng(7).uniform(-0.9, 0.9, (500, 3)).astype(np.float32)
    actions = algorithm._learner.compute_actions(obs, explore=False)[Columns.ACTIONS]
    assert np.abs(actions[:, 0] / 2.0 - obs[:, 0]).mean() < 0.25  # a random action is off by 0.6


# --- what cannot be ---


CLASSES = [IQLConfig, CQLConfig]


@pytest.mark.parametrize("config", CLASSES)
def test_spaces_that_do_not_suit_are_refused(config, tmp_path):
    def build(space, **model):
        chosen = config().framework("numpy").environment(observation_space=OBSERVATIONS, action_space=space)
        chosen.rl_module(model_config={"fcnet_hiddens": [1], **model}).build_learner()

    with pytest.raises(ConfigError, match="finite bounds"):
        build(gym.spaces.Box(-np.inf, np.inf, (2,)))
    for space in (gym.spaces.Discrete(2), gym.spaces.MultiDiscrete([2, 3])):
        with pytest.raises(ConfigError, match="needs a bounded Box action space"):
            build(space)
    with pytest.raises(ConfigError, match="no recurrent networks"):
        build(BOX, use_lstm=True)


@pytest.mark.parametrize("config", [*CLASSES, MARWILConfig])
def test_recordings_that_do_not_suffice_are_refused(config, tmp_path):
    chosen = config().framework("numpy").rl_module(model_config={"fcnet_hiddens": [1]})
    with pytest.raises(ConfigError, match="input_ names no recorded episodes"):
        chosen.build_algo()
    data = saved(tmp_path, episodes_of(2, 5))
    with pytest.raises(ConfigError, match=r"10 recorded steps .* are fewer than minibatch_size=32"):
        chosen.offline_data(input_=data).training(minibatch_size=32).build_algo()
    spoiled = episodes_of(2, 5)
    spoiled[1].rewards[2] = np.nan
    with pytest.raises(BatchError, match=r"rewards.*nan in row 7, step 2 of episode 1"):
        saved(tmp_path, spoiled)


@pytest.mark.parametrize(
    ("config", "settings", "said"),
    [
        (IQLConfig, {"expectile": 0.0}, "expectile"),
        (IQLConfig, {"expectile": 1.5}, "expectile"),
        (IQLConfig, {"beta": 0.0}, "beta"),
        (CQLConfig, {"num_actions": 0}, "num_actions"),
        (CQLConfig, {"temperature": 0.0}, "temperature"),
        (CQLConfig, {"min_q_weight": -1.0}, "min_q_weight"),
        (CQLConfig, {"target_entropy": "automatic"}, '"auto" or None'),
    ],
)
def test_settings_that_cannot_be_are_refused_when_they_are_typed(config, settings, said):
    with pytest.raises(ConfigError, match=said):
        config().training(**settings)
