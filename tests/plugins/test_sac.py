"""SAC and TD3: losses and gradients by the papers, equal on every backend, acting, replay, resuming, bad input."""

from copy import deepcopy
from functools import cache
from itertools import pairwise

import gymnasium as gym
import needs
import numpy as np
import pytest
from actor_critics import BOX, KINDS, Paper, scaled, several_steps, tiny, transitions
from learning import digest, largest_difference, quick_mode, with_modules
from threads import on_all

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, RLModuleSpec, load_policy
from plugrad.algorithm import Algorithm
from plugrad.errors import BatchError, ConfigError
from plugrad_sac import SACConfig, TD3Config, sac, td3

P = DEFAULT_MODULE_ID
ALL = ("torch", "tf2", "jax")
NETWORKS = {"actor": "pi", "critic": "qf", "alpha": "log_alpha"}
SETTINGS = {
    "sac": {"gamma": 0.9},
    "sac discrete": {"gamma": 0.9},
    "td3": {"gamma": 0.9, "target_policy_noise": 0.3, "target_noise_clip": 0.4, "policy_delay": 1},
}
each_kind = pytest.mark.parametrize("kind", SETTINGS)


def noise_of_next_update(learner, rows: int) -> dict[str, np.ndarray]:
    """What the next update of one minibatch draws: all columns of its rows, one after the other."""
    shapes = learner.get_noise_columns(P)
    numbers = deepcopy(learner.stream(P, "noise")).standard_normal(rows * 2 * len(shapes), np.float32)
    parts = np.split(numbers, len(shapes)) if shapes else []
    return {name: part.reshape(rows, 2) for name, part in zip(shapes, parts, strict=True)}


def paper_of(learner, kind: str, rows) -> Paper:
    noise = noise_of_next_update(learner, len(rows[Columns.OBS]))
    return Paper(kind, learner.get_weights()[P], learner.targets[P].get_state(), rows, noise)


def learner_with_a_past(kind: str, backend: str, **training):
    """The target network is behind, the policy is not that of the beginning."""
    learner = tiny(kind, backend, **SETTINGS[kind], **training).build_learner()
    rng = np.random.default_rng(3)
    spread = {name: rng.normal(scale=0.4, size=each.shape) for name, each in learner.get_weights()[P].items()}
    learner.set_weights({P: {name: each.astype(np.float32) for name, each in spread.items()}})
    learner.update(transitions(kind, seed=6))
    return learner


# --- the losses ---


@each_kind
@pytest.mark.parametrize("columns", [{}, several_steps()], ids=["plain", "n steps and weights"])
def test_losses_are_those_of_the_papers(kind, columns, backend):
    learner, rows = learner_with_a_past(kind, backend, tau=0.5), transitions(kind, **columns)
    paper = paper_of(learner, kind, rows)
    assert largest_difference(paper.target, paper.weights) > 0.001
    expected, errors = paper.losses(), paper.td_errors(paper.weights)
    taken = paper.q_of(paper.weights, rows[Columns.OBS], rows[Columns.ACTIONS])
    results = learner.update(rows)[P]
    assert results["total_loss"] == pytest.approx(sum(expected.values()), rel=1e-4)
    assert results["qf_loss"] == pytest.approx(expected["critic"] * (1 if kind == "td3" else 2), rel=1e-4)
    assert results["policy_loss"] == pytest.approx(expected["actor"], rel=1e-4)
    assert results["td_error_mean"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    found = [results[name] for name in ("qf_mean", "qf_min", "qf_max")]
    assert found == pytest.approx([taken.mean(), taken.min(), taken.max()], rel=1e-4, abs=1e-5)
    if kind != "td3":
        names = ("alpha_loss", "alpha_value", "log_alpha_value", "entropy", "target_entropy")
        alpha = paper.weights["log_alpha"]
        wanted = [expected["alpha"], np.exp(alpha), alpha, paper.entropy, paper.target_entropy]
        assert [results[name] for name in names] == pytest.approx(wanted, rel=1e-4, abs=1e-6)


@each_kind
def test_each_network_gets_the_gradient_of_its_own_loss_and_of_no_other(kind, backend):
    learner = learner_with_a_past(kind, backend, optimizer={"type": "sgd"}, tau=0.5)
    for _, optimizer in learner.get_optimizers_for_module(P):
        learner._set_optimizer_lr(optimizer, 1.0)
    rows = transitions(kind, **several_steps())
    paper = paper_of(learner, kind, rows)
    learner.update(rows)
    after = learner.get_weights()[P]
    assert {optimizer for optimizer, _ in learner.get_optimizers_for_module(P)} == set(paper.losses())
    for name, before in paper.weights.items():
        (loss,) = [key for key, prefix in NETWORKS.items() if name.startswith(prefix)]
        expected = np.empty(before.shape)
        for place in np.ndindex(before.shape):
            moved = []
            for step in (1e-6, -1e-6):
                changed = np.array(before)
                changed[place] += step
                moved.append(paper.losses(**{name: changed})[loss])
            expected[place] = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(before - after[name], expected, rtol=1e-3, atol=2e-5, err_msg=name)


@each_kind
def test_rows_that_do_not_count_change_nothing(kind):
    rows = transitions(kind)
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


@each_kind
def test_columns_that_would_broadcast_are_refused_and_change_nothing(kind):
    learner = tiny(kind, "numpy").build_learner()
    before = digest(learner.get_state())
    for column in (Columns.REWARDS, Columns.TERMINATEDS, Columns.WEIGHTS, Columns.N_STEP):
        rows = transitions(kind, **several_steps())
        rows[column] = rows[column][:, None]
        with pytest.raises(BatchError, match=rf"'{column}': expected one number per row, shape \[16\]"):
            learner.update(rows)
    rows = transitions(kind)
    rows[Columns.REWARDS][3] = np.nan
    with pytest.raises(BatchError, match="rewards"):
        learner.update(rows)
    assert digest(learner.get_state()) == before


def test_a_constant_temperature_stays(backend):
    learner = tiny("sac", backend, target_entropy=None, initial_alpha=0.2).build_learner()
    results = learner.update(transitions("sac"))[P]
    assert results["alpha_value"] == pytest.approx(0.2)
    assert "alpha_loss" not in results
    assert learner.get_weights()[P]["log_alpha"] == pytest.approx(np.log(0.2))


def test_each_network_has_a_learning_rate(backend):
    settings = {"actor_lr": 0.03, "critic_lr": [[0, 0.02], [100, 0.01]]}
    learner = tiny("sac", backend, lr=0.01, **settings).build_learner()
    results = learner.update(transitions("sac"), timesteps={"num_env_steps_sampled_lifetime": 50})[P]
    rates = [results[f"{name}_learning_rate"] for name in NETWORKS]
    assert rates == pytest.approx([0.03, 0.015, 0.01])


# --- delayed policy and target networks of TD3 ---


def test_the_policy_and_all_targets_move_in_each_second_gradient_step(backend):
    learner = tiny("td3", backend).build_learner()
    seen = []
    for n in range(4):
        learner.update(transitions("td3", seed=n))
        target = learner.targets[P].get_state()
        weights = learner.get_weights()[P]
        state = weights | {f"target {name}": target[name] for name in weights}
        seen.append({name: np.array(each) for name, each in state.items()})
    moved = [
        {name.split(".")[0] for name in before if not np.array_equal(before[name], after[name])}
        for before, after in pairwise(seen)
    ]
    assert moved == [{"pi", "qf", "target pi", "target qf"}, {"qf"}, {"pi", "qf", "target pi", "target qf"}]


# --- equal numbers ---


@cache
def trained(kind: str, backend: str) -> Learner:
    """320 gradient steps of Adam in one update."""
    settings = {"minibatch_size": 16, "num_epochs": 20, "shuffle_batch_per_epoch": True, "lr": 1e-3}
    learner = tiny(kind, backend, compile="auto", hiddens=(32, 32), **settings).build_learner()
    learner.update(transitions(kind, 256))
    return learner


@pytest.mark.cross_product(part=3)
@needs.backends(*ALL)
@each_kind
def test_after_320_gradient_steps_backends_agree_within_1e_5(kind):
    one, *others = (trained(kind, backend) for backend in ALL)
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
        settings = {"minibatch_size": 8, "num_epochs": 3}
        learner = tiny(kind, backend, compile=compile, **settings).build_learner()
        learner.update(transitions(kind))
        learner.update(transitions(kind, seed=7))
        found.append((learner.get_weights(), learner.targets[P].get_state()))
    assert largest_difference(found[0][0], found[1][0]) < 1e-5
    assert largest_difference(found[0][1], found[1][1]) < 1e-5


@each_kind
def test_two_modules_learn_beside_each_other_as_alone(kind, backend):
    pair = with_modules(tiny(kind, backend), "a", "b").build_learner()
    alone = with_modules(tiny(kind, backend), "b").build_learner()
    pair.update({"a": transitions(kind, seed=1), "b": transitions(kind, 24, seed=2)})
    alone.update({"b": transitions(kind, 24, seed=2)})
    assert largest_difference(pair.get_weights()["b"], alone.get_weights()["b"]) < 1e-6


@needs.backends("torch")
@each_kind
def test_two_learners_are_one_after_50_updates(kind):
    """Each draws the whole noise and takes its share of the rows; Adam, a delayed policy, targets that move.

    Learners in threads, which TensorFlow may not have enough of; tests/group has remote ones on every backend.
    """
    settings = {"minibatch_size": 7, "shuffle_batch_per_epoch": True, "lr": 1e-3}
    one, *two = (tiny(kind, "torch", **settings).build_learner() for _ in range(3))
    batches = [transitions(kind, 21, seed=n, **several_steps(21)) for n in range(50)]
    start = one.get_weights()

    def learn(learner):
        return [learner.update(batch)[P]["total_loss"] for batch in batches]

    losses = on_all(two, learn, timeout_s=120)
    np.testing.assert_allclose(losses, [learn(one)] * 2, rtol=1e-4, atol=1e-4)
    assert digest(two[0].get_state()) == digest(two[1].get_state())
    assert largest_difference(one.get_weights(), start) > 0.01
    assert largest_difference(two[0].get_weights(), one.get_weights()) < 1e-5
    assert largest_difference(two[0].targets[P].get_state(), one.targets[P].get_state()) < 1e-5


# --- acting ---


def test_greedy_actions_are_the_squashed_means_and_samples_stay_within_the_bounds(backend):
    learner = learner_with_a_past("sac", backend)
    obs = np.tile(transitions("sac")[Columns.OBS], (100, 1))
    greedy = learner.compute_actions(obs, explore=False)
    mean, _ = np.split(greedy[Columns.ACTION_DIST_INPUTS], 2, -1)
    np.testing.assert_allclose(scaled(greedy[Columns.ACTIONS]), np.tanh(mean), atol=1e-5)
    drawn = learner.compute_actions(obs)[Columns.ACTIONS]
    assert drawn.std(axis=0).min() > 0.1
    assert all(BOX.contains(action) for action in drawn)


def test_td3_explores_by_noise_in_proportion_to_the_bounds(backend):
    learner = tiny("td3", backend, exploration_noise=0.25).build_learner()
    obs = np.tile(transitions("td3", 1)[Columns.OBS], (20_000, 1))
    greedy = learner.compute_actions(obs[:1], explore=False)[Columns.ACTIONS]
    noise = learner.compute_actions(obs)[Columns.ACTIONS] - greedy
    np.testing.assert_allclose(noise.std(axis=0), 0.25 * np.float64([2.0, 0.25]), rtol=0.03)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.02)


@each_kind
def test_an_inference_only_module_has_the_policy_alone(kind, backend):
    learner = tiny(kind, backend).build_learner()
    spec = RLModuleSpec(
        observation_space=learner.config.observation_space,
        action_space=learner.config.action_space,
        model_config=learner.module[P].model_config,
        inference_only=True,
    )
    network = learner._build_network(module_id=P, config=learner.config, module_spec=spec)
    assert {each.name.split(".")[0] for each in network.parameters} == {"pi"}


# --- whole runs ---


class Reach(gym.Env):
    """The reward is the closeness of the action to the first number of the observation."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, kind: str) -> None:
        self.action_space = KINDS[kind][1]
        self._discrete = kind == "sac discrete"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        wanted = self.seen[0]
        given = int(action) - 1.0 if self._discrete else scaled(np.asarray(action))[0]
        assert self.action_space.contains(action)
        self.steps += 1
        return self._look(), 1.0 - abs(given - wanted), self.steps == 5, False, {}

    def _look(self):
        self.seen = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self.seen


def run(kind: str, backend: str, **training):
    cls, _ = KINDS[kind]
    settings = {"minibatch_size": 16, "train_batch_size": 64, "num_steps_sampled_before_learning_starts": 16}
    return (
        cls()
        .environment(Reach, env_config={"kind": kind})
        .framework(backend, compile=quick_mode(backend))
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=4)
        .training(**{"random_steps": 8, **settings, **training})
        .reporting(min_sample_timesteps_per_iteration=0)
        .debugging(seed=0)
    )


@pytest.mark.cross_product("kind", "backend", part=2)
@each_kind
@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_a_resumed_run_equals_one_that_was_never_stopped(kind, replay, backend, tmp_path):
    whole = run(kind, backend, n_step=2, replay_buffer_config={"type": replay}).build_algo()
    for _ in range(5):
        whole.train()
    whole.save_to_path(tmp_path)
    resumed = Algorithm.from_checkpoint(tmp_path, env=Reach)
    for algorithm in (whole, resumed):
        for _ in range(3):
            algorithm.train()
    assert digest(resumed._training.get_state()) == digest(whole._training.get_state())
    assert digest(resumed._learner.get_state()) == digest(whole._learner.get_state())


@pytest.mark.cross_product(part=3)
@needs.backends(*ALL)
@each_kind
@pytest.mark.parametrize("source", ALL)
def test_a_run_crosses_to_another_framework_with_its_replay(kind, source, tmp_path):
    first = run(kind, source).build_algo()
    for _ in range(5):
        first.train()
    first.save_to_path(tmp_path)
    other = {"torch": "jax", "jax": "tf2", "tf2": "torch"}[source]
    stayed, crossed = (
        Algorithm.from_checkpoint(tmp_path, backend=backend, env=Reach) for backend in (source, other)
    )
    for algorithm in (stayed, crossed):
        for _ in range(3):
            algorithm.train()
    (one,), (two,) = (each._training._buffers.values() for each in (stayed, crossed))
    assert len(one) == len(two) == 8 * 8
    rows = [{name: np.float64(each) for name, each in buffer.sample(64)[0].items()} for buffer in (one, two)]
    assert largest_difference(*rows) < 1e-5
    one, two = (each.learner_group.get_weights() for each in (stayed, crossed))
    assert largest_difference(one, two) < 1e-5


@each_kind
def test_priorities_are_the_absolute_errors_of_both_critics(kind, backend):
    learner, rows = learner_with_a_past(kind, backend), transitions(kind, **several_steps())
    noise = noise_of_next_update(learner, 16)
    paper = Paper(kind, learner.get_weights()[P], learner.targets[P].get_state(), rows, noise)
    tensors = learner._convert_batch_type({**rows, **noise})
    fwd_out = learner.module[P].forward_train(tensors)
    training = td3.TD3Training if kind == "td3" else sac.SACTraining
    found = training.td_errors(learner, P, learner.config_view(P), tensors, fwd_out)
    expected = np.abs(paper.td_errors(paper.weights)).mean(0)
    np.testing.assert_allclose(learner._convert_to_numpy(found), expected, rtol=1e-4)


@each_kind
def test_policies_give_what_the_environment_takes(kind, backend, tmp_path):
    algorithm = run(kind, backend).build_algo()
    for _ in range(4):
        algorithm.train()
    algorithm.save_to_path(tmp_path)
    obs = Reach.observation_space.sample()
    actions = [
        policy.predict(obs)[0]
        for policy in (algorithm.get_policy(), load_policy(tmp_path), load_policy(tmp_path, backend=backend))
    ]
    assert algorithm.get_policy().action_space.contains(actions[0])
    for action in actions[1:]:
        np.testing.assert_allclose(action, actions[0], atol=1e-5)


@each_kind
def test_images_and_dicts_of_observations_train(kind, backend):
    image = gym.spaces.Box(0, 255, (20, 20, 1), np.uint8)
    config = tiny(kind, backend).environment(observation_space=image, action_space=KINDS[kind][1])
    learner = config.rl_module(
        model_config={"fcnet_hiddens": [4], "conv_filters": [[2, 8, 6]]}
    ).build_learner()
    rows = transitions(kind, 8)
    rng = np.random.default_rng(0)
    for column in (Columns.OBS, Columns.NEXT_OBS):
        rows[column] = rng.integers(0, 255, (8, 20, 20, 1), np.uint8)
    before = learner.get_weights()[P]
    learner.update(rows)
    learner.update(rows)
    after = learner.get_weights()[P]
    assert {"qf.conv.0.weight", "pi.conv.0.weight"} <= set(after)
    assert all(not np.array_equal(after[name], before[name]) for name in after if "weight" in name)
    action = learner.get_policy().predict(rows[Columns.OBS][0])[0]
    assert KINDS[kind][1].contains(action)


def test_discrete_sac_learns(backend):
    """The nearest of -1, 0 and 1 to the first number has a mean return of 3.75 in 5 steps, always 0 has 2.5."""
    settings = {"gamma": 0.0, "lr": 1e-2, "train_batch_size": 256, "minibatch_size": 32}
    algorithm = run("sac discrete", backend, **settings).build_algo()
    for _ in range(45):
        algorithm.train()
    assert algorithm.evaluate(num_episodes=40)["episode_return_mean"] > 3.5


@pytest.mark.long
@pytest.mark.parametrize("config", [SACConfig, TD3Config])
def test_defaults_solve_pendulum_in_20_000_steps(config, backend):
    """A mean return of 100 episodes above -160; the best there is has about -145, acting at random -1200."""
    algorithm = config().environment("Pendulum-v1").framework(backend).debugging(seed=0).build_algo()
    while algorithm.train()["num_env_steps_sampled_lifetime"] < 20_000:
        pass
    assert algorithm.evaluate(num_episodes=100)["episode_return_mean"] >= -160.0


# --- what cannot be ---


@pytest.mark.parametrize("config", [SACConfig, TD3Config])
def test_what_they_cannot_do_is_said(config):
    spaces = {"observation_space": gym.spaces.Box(-1.0, 1.0, (3,))}

    def build(space, **model):
        chosen = config().framework("numpy").environment(action_space=space, **spaces)
        chosen.rl_module(model_config={"fcnet_hiddens": [1], **model}).build_learner()

    with pytest.raises(ConfigError, match="finite bounds"):
        build(gym.spaces.Box(-np.inf, np.inf, (2,)))
    with pytest.raises(ConfigError, match=r"action space, found MultiDiscrete\(\[2 3\]\)"):
        build(gym.spaces.MultiDiscrete([2, 3]))
    with pytest.raises(ConfigError, match="capacity=100 rows, and a minibatch has 256"):
        config().environment("Pendulum-v1").training(replay_buffer_config={"capacity": 100}).build_algo()


def test_td3_needs_a_box():
    with pytest.raises(ConfigError, match="TD3 needs a bounded Box action space, found Discrete"):
        TD3Config().framework("numpy").environment("CartPole-v1").build_learner()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"twin_q": False}, "SAC always has two critics"),
        ({"target_entropy": "automatic"}, '"auto" or None'),
        ({"initial_alpha": 0.0}, "initial_alpha"),
        ({"actor_lr": -1.0}, "actor_lr"),
    ],
)
def test_settings_that_cannot_be_are_refused_when_they_are_typed(settings, said):
    with pytest.raises(ConfigError, match=said):
        SACConfig().training(**settings)
