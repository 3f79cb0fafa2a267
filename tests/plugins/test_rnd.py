"""RND: its numbers are the paper's by hand, its moments are state, and policies are those of PPO."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from learning import digest, largest_difference, quick_mode

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, SingleAgentEpisode, load_policy
from plugrad.errors import BatchError, ConfigError
from plugrad.testing.taking_turns import take_turns
from plugrad_rnd import RNDConfig
from plugrad_rnd.bonus import Bonus

P = DEFAULT_MODULE_ID
LENGTHS = (5, 3)


def rnd_config(backend: str = "numpy", **settings: Any) -> RNDConfig:
    given = {
        "rnd_hiddens": [4],
        "rnd_features": 3,
        "minibatch_size": 4,
        "num_epochs": 1,
        "rnd_lr": 0.01,
        **settings,
    }
    config = RNDConfig().framework(backend, compile=quick_mode(backend)).environment("CartPole-v1")
    return config.rl_module(model_config={"fcnet_hiddens": [2]}).training(**given).debugging(seed=0)


def episodes(seed: int = 0) -> list[SingleAgentEpisode]:
    rng = np.random.default_rng(seed)
    return [
        SingleAgentEpisode(
            observations=rng.normal(size=(length + 1, 4)).astype(np.float32) * [1, 2, 3, 20],
            actions=rng.integers(0, 2, length),
            rewards=rng.normal(size=length),
            terminated=True,
            extra_model_outputs={
                "action_logp": np.full(length, -0.7, np.float32),
                "action_dist_inputs": np.zeros((length, 2), np.float32),
            },
        )
        for length in LENGTHS
    ]


def next_rows(played: list[SingleAgentEpisode]) -> Any:
    return np.concatenate([np.asarray(each.observations)[1:] for each in played]).astype(np.float64)


def errors_by_hand(weights: Any, x: Any) -> Any:
    outputs = []
    for name in ("rnd_target", "rnd_predictor"):
        hidden = np.maximum(x @ weights[f"{name}.0.weight"] + weights[f"{name}.0.bias"], 0.0)
        outputs.append(hidden @ weights[f"{name}.1.weight"] + weights[f"{name}.1.bias"])
    return np.square(outputs[1] - outputs[0]).mean(1)


def returns_by_hand(bonus: Any, gamma: float) -> Any:
    found, row = np.zeros(len(bonus)), 0
    for length in LENGTHS:
        total = 0.0
        for _ in range(length):
            total = gamma * total + bonus[row]
            found[row] = total
            row += 1
    return found


def values_by_hand(weights: Any, x: Any) -> Any:
    hidden = np.maximum(x @ weights["rnd_vf.0.weight"] + weights["rnd_vf.0.bias"], 0.0)
    return (hidden @ weights["rnd_vf.1.weight"] + weights["rnd_vf.1.bias"])[:, 0]


@pytest.mark.parametrize("where", ["batch", "minibatch"])
def test_the_bonus_is_the_papers_and_its_advantages_are_added(where: str) -> None:
    """Sections 2.2 to 2.4; equation 16 of GAE for rewards, and again for bonuses, which no end of an episode cuts."""
    config = rnd_config(rnd_coeff=0.5, rnd_gamma=0.9, normalize_advantages=where)
    learner, played = config.build_learner(), episodes()
    rows, weights = next_rows(played), learner.get_weights()[P]
    batch = learner.run_connectors(played)[P]
    x = np.clip((rows - rows.mean(0)) / rows.std(0), -5.0, 5.0)
    np.testing.assert_allclose(batch["rnd_next_seen"], x, rtol=1e-5, atol=1e-5)
    bonus = errors_by_hand(weights, x)
    bonus = bonus / returns_by_hand(bonus, 0.9).std()
    of_rewards, of_bonus, targets, row = [], [], [], 0
    for each in played:
        values = learner.compute_values_of_episodes([each])
        seen = np.asarray(each.observations).astype(np.float64)
        bonus_values = values_by_hand(weights, np.clip((seen - rows.mean(0)) / rows.std(0), -5.0, 5.0))
        length, next_one, next_bonus = len(each), 0.0, 0.0
        own, own_bonus = np.zeros(length), np.zeros(length)
        for t in reversed(range(length)):
            goes_on = t + 1 < length  # the episode has ended at its last step, the bonus has not
            delta = each.rewards[t] + 0.99 * goes_on * values[t + 1] - values[t]
            own[t] = next_one = delta + 0.99 * 0.95 * next_one
            delta = bonus[row + t] + 0.9 * bonus_values[t + 1] - bonus_values[t]
            own_bonus[t] = next_bonus = delta + 0.9 * 0.95 * next_bonus
        of_rewards.append(own)
        of_bonus.append(own_bonus)
        targets.append(own_bonus + bonus_values[:-1])
        row += length
    advantages = np.concatenate(of_rewards) + 0.5 * np.concatenate(of_bonus)
    if where == "batch":
        advantages = (advantages - advantages.mean()) / advantages.std()
    np.testing.assert_allclose(batch[Columns.ADVANTAGES], advantages, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(batch["rnd_value_targets"], np.concatenate(targets), rtol=1e-4, atol=1e-4)
    rewards = np.concatenate([each.rewards for each in played])
    np.testing.assert_allclose(batch[Columns.REWARDS], rewards, rtol=1e-6)  # the environment's own


def test_moments_are_those_of_all_minibatches_and_scale_the_next_batch() -> None:
    learner, first, second = rnd_config().build_learner(), episodes(), episodes(1)
    learner.update(episodes=first)
    rows = next_rows(first)
    state = learner.get_state("plugin_state")["plugin_state"]
    np.testing.assert_allclose(state[f"{P}/rnd/obs_mean"], rows.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state[f"{P}/rnd/obs_square"], np.square(rows).mean(0), rtol=1e-4)
    found = learner.run_connectors(second)[P]["rnd_next_seen"]
    x = np.clip((next_rows(second) - rows.mean(0)) / rows.std(0), -5.0, 5.0)
    np.testing.assert_allclose(found, x, rtol=1e-3, atol=1e-3)


def test_the_predictor_comes_closer_to_a_target_that_stays(backend: str) -> None:
    learner, played = rnd_config(backend, num_epochs=5).build_learner(), episodes()
    before = learner.get_weights()[P]
    found = [learner.update(episodes=played)[P] for _ in range(4)]
    losses, after = [each["rnd_loss"] for each in found], learner.get_weights()[P]
    assert losses[-1] < 0.7 * losses[1]  # the first update scales by its own rows
    assert all(each["rnd_vf_loss"] > 0.0 for each in found)
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("rnd_target.")


def test_it_computes_what_the_reference_does(backend: str) -> None:
    found = [rnd_config(name, optimizer={"type": "sgd"}).build_learner() for name in (backend, "numpy")]
    for learner in found:
        for seed in range(2):
            learner.update(episodes=episodes(seed))
    assert largest_difference(*(each.get_weights() for each in found)) < 1e-5
    states = [each.get_state("plugin_state")["plugin_state"] for each in found]
    for name, value in states[1].items():
        np.testing.assert_allclose(states[0][name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_two_learners_are_one_and_a_resumed_one_goes_on(tmp_path: Any) -> None:
    config = rnd_config(optimizer={"type": "sgd"})
    one, two = config.build_learner(), [config.build_learner() for _ in range(2)]
    batches = [one.run_connectors(episodes())]

    def train(learner: Any) -> None:
        learner.update(batches[0])

    train(one)
    take_turns(two, train)
    for each in two:
        assert largest_difference(each.get_weights(), one.get_weights()) < 1e-6
        states = [learner.get_state("plugin_state")["plugin_state"] for learner in (each, one)]
        for name, value in states[1].items():
            np.testing.assert_allclose(states[0][name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    one.save_to_path(tmp_path / "saved")
    again = Learner.from_checkpoint(tmp_path / "saved")
    for each in (one, again):
        each.update(episodes=episodes(2))
    assert digest(again.get_state()) == digest(one.get_state())


def test_a_policy_has_none_of_its_networks(tmp_path: Any) -> None:
    policy = rnd_config().build_learner().get_policy()
    policy.save(tmp_path / "policy.safetensors")
    loaded, obs = load_policy(tmp_path / "policy.safetensors"), np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(loaded.predict(obs)[0], policy.predict(obs)[0])
    assert b"rnd_" not in (tmp_path / "policy.safetensors").read_bytes().split(b"}}")[0]


def test_what_it_cannot_do_is_said_with_what_to_type() -> None:
    with pytest.raises(ConfigError, match="RND has no recurrent networks: leave use_lstm out"):
        rnd_config().rl_module(model_config={"use_lstm": True}).build_learner()
    learner = rnd_config().build_learner()
    short = [
        replace(each, observations=np.asarray(each.observations)[:, :2], extra_model_outputs={})
        for each in episodes()
    ]
    batch = {P: {Columns.REWARDS: np.zeros(8, np.float32)}}
    with pytest.raises(
        BatchError, match=r"the observations of 2 episodes have shape \[10, 2\]; expected \[10, 4\]"
    ):
        Bonus(learner.config)(learner=learner, batch=batch, episodes=short)
