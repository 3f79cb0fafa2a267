"""An Algorithm in environments with many agents: it trains, evaluates, records, saves and resumes on every backend."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import digest, quick_mode
from two_agents import BOTH, LENGTH, SPACES, AlikeLamps, Lamps

from plugrad import load_policy
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint
from plugrad.errors import ConfigError, UnknownModuleError
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig


def lamps(backend: str, env: Any = Lamps, **multi_agent: Any) -> PPOConfig:
    """PPO on lamps; each agent has a module of its own name unless something else is said."""
    return (
        PPOConfig()
        .framework(backend, compile=quick_mode(backend))
        .environment(env)
        .multi_agent(**(multi_agent or {"policies": list(SPACES), "agent_to_module": BOTH}))
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .env_runners(num_envs_per_env_runner=4)
        .training(train_batch_size=128, minibatch_size=32, num_epochs=4, lr=0.02, gamma=0.0)
        .evaluation(evaluation_num_episodes=8)
        .debugging(seed=0)
    )


def test_two_modules_of_different_spaces_learn_their_tasks(backend: str) -> None:
    algorithm = lamps(backend).build_algo()
    before = algorithm.evaluate()
    for _ in range(12):
        results = algorithm.train()
    after = algorithm.evaluate()
    assert before["episode_return_mean"] < 9
    assert after["episode_return_mean"] > 11.5  # 4 of the guesser and 8 of the mover are the most
    assert after["agent_episode_returns_mean/guesser"] > 3.9
    assert after["module_episode_returns_mean/mover"] > 7.6
    assert results["env_runners/num_env_steps_sampled"] == 128
    assert results["env_runners/num_agent_steps_sampled/guesser"] == 64
    assert results["env_runners/num_module_steps_sampled/mover"] == 128
    assert results["num_env_steps_sampled_lifetime"] == 12 * 128
    parts = [results[f"env_runners/agent_episode_returns_mean/{agent}"] for agent in SPACES]
    assert results["env_runners/episode_return_mean"] == pytest.approx(sum(parts))
    algorithm.stop()


class OthersLamps(AlikeLamps):
    """An agent's reward is the number of the other one's lamp, which it does not see."""

    def step(self, actions: Any) -> tuple[Any, ...]:
        lamps, (one, other) = self._lamps, SPACES
        rewards = {agent: float(lamps.get(other if agent == one else one, 0)) for agent in actions}
        observations, _, *ends = super().step(actions)
        return observations, rewards, *ends


def test_critics_of_mappo_know_what_those_of_ippo_cannot_and_policies_are_exported_without_it(
    backend: str, tmp_path: Path
) -> None:
    found = {}
    for critic_obs in (None, "agents"):
        config = lamps(backend, OthersLamps, critic_obs=critic_obs)
        algorithm = config.training(lr=0.05, vf_loss_coeff=1.0, num_epochs=10).build_algo()
        for _ in range(4):
            results = algorithm.train()
        found[critic_obs] = results["learners/default_policy/vf_loss"]
        policy = algorithm.get_policy()
        algorithm.stop()
    assert (
        found[None] > 0.3
    )  # the variance of a lamp is 2 / 3 while both act, and half of the mover's steps are alone
    assert found["agents"] < 0.5 * found[None]
    policy.save(tmp_path / "policy.safetensors")
    seen = {"obs": np.eye(3, dtype=np.float32)}
    np.testing.assert_array_equal(
        load_policy(tmp_path / "policy.safetensors").predict(seen)[0], policy.predict(seen)[0]
    )


def test_without_policies_all_agents_share_one_module(backend: str) -> None:
    algorithm = lamps(backend, AlikeLamps, policies=None).build_algo()
    for _ in range(6):
        results = algorithm.train()
    assert "learners/default_policy/policy_loss" in results
    assert results["env_runners/num_module_steps_sampled/default_policy"] == 192
    trained = results["learners/__all_modules__/num_env_steps_trained"]
    assert trained == results["env_runners/num_env_steps_sampled"] < 192
    assert algorithm.evaluate()["episode_return_mean"] > 10
    assert algorithm.get_policy().predict(np.eye(3, dtype=np.float32)[1])[0] == 1
    algorithm.stop()


def test_one_module_of_agents_with_different_spaces_is_refused_by_both_names() -> None:
    with pytest.raises(ConfigError, match="'guesser' and 'mover', whose observation_spaces differ"):
        lamps("numpy", policies=None).build_algo()


def tiny(backend: str = "numpy", env: Any = Lamps, **multi_agent: Any) -> PPOConfig:
    config = lamps(backend, env, **multi_agent).rl_module(model_config={"fcnet_hiddens": [2]})
    return config.training(train_batch_size=32, minibatch_size=16, num_epochs=1)


def state_of(algorithm: Algorithm, path: Path) -> Any:
    algorithm.save_to_path(path)
    return digest(in_dicts(load_checkpoint(path).state))


def in_dicts(tree: Any) -> Any:
    """Lists as dicts of their items by place."""
    if isinstance(tree, list):
        tree = dict(enumerate(tree))
    return {str(name): in_dicts(each) for name, each in tree.items()} if isinstance(tree, dict) else tree


@pytest.mark.parametrize("normalize", [False, True])
def test_a_resumed_run_equals_one_that_went_on(backend: str, normalize: bool, tmp_path: Path) -> None:
    config = tiny(backend).env_runners(normalize_observations=normalize)
    straight = config.build_algo()
    straight.train()
    straight.save_to_path(tmp_path / "run")
    resumed = Algorithm.from_checkpoint(tmp_path / "run", env=Lamps)
    for algorithm in (straight, resumed):
        algorithm.train()
        algorithm.train()
    assert state_of(resumed, tmp_path / "resumed") == state_of(straight, tmp_path / "straight")
    assert resumed.evaluate() == straight.evaluate()


def test_overrides_of_one_module_leave_the_other_as_it_was() -> None:
    plain, other = tiny(), tiny().rl_module(algorithm_config_overrides_per_module={"mover": {"lr": 0.5}})
    weights = []
    for config in (plain, other):
        algorithm = config.build_algo()
        first = algorithm.learner_group.get_weights()
        algorithm.train()
        weights.append((first, algorithm.learner_group.get_weights()))
    (_, one), (_, two) = weights
    assert digest(one["guesser"]) == digest(two["guesser"])
    assert digest(one["mover"]) != digest(two["mover"])


def test_a_module_that_is_not_trained_stays() -> None:
    algorithm = tiny().multi_agent(policies_to_train=["mover"]).build_algo()
    before = algorithm.learner_group.get_weights()
    results = algorithm.train()
    after = algorithm.learner_group.get_weights()
    assert digest(after["guesser"]) == digest(before["guesser"])
    assert digest(after["mover"]) != digest(before["mover"])
    assert not any(key.startswith("learners/guesser") for key in results)


def test_policies_of_modules_have_their_own_spaces_and_statistics(tmp_path: Path) -> None:
    algorithm = tiny().env_runners(normalize_observations=True).build_algo()
    for _ in range(2):
        algorithm.train()
    algorithm.save_to_path(tmp_path)
    for module_id, n in SPACES.items():
        lamp = np.eye(n, dtype=np.float32)[0]
        policy, loaded = algorithm.get_policy(module_id), load_policy(tmp_path, module_id=module_id)
        for each in (policy, loaded):
            assert each.observation_space == Lamps.observation_spaces[module_id]
            assert each.action_space == gym.spaces.Discrete(n)
        assert policy.predict(lamp)[0] == loaded.predict(lamp)[0]
        statistics = algorithm.env_runner.normalizers[module_id]
        # Each of 4 environments played 2 episodes to their ends and has begun a third.
        assert statistics.count == 4 * (2 * (LENGTH + 1 if module_id == "mover" else LENGTH // 2 + 1) + 1)
    with pytest.raises(UnknownModuleError, match="guesser, mover"):
        algorithm.get_policy("p0")


def test_a_policy_file_of_one_module_acts_alone(tmp_path: Path) -> None:
    algorithm = tiny().build_algo()
    algorithm.get_policy("mover").save(tmp_path / "mover.safetensors")
    lamp = np.eye(3, dtype=np.float32)[2]
    loaded = load_policy(tmp_path / "mover.safetensors")
    assert loaded.predict(lamp)[0] == algorithm.get_policy("mover").predict(lamp)[0]


def test_episodes_of_one_module_are_recorded() -> None:
    algorithm = tiny().env_runners(normalize_observations=True).build_algo()
    algorithm.train()
    before = digest(algorithm.learner_group.get_state())
    data = algorithm.record(3, module_id="mover", explore=True)
    assert [len(each) for each in data.episodes] == [8, 8, 8]
    assert data.observation_space == Lamps.observation_spaces["mover"]
    assert data.action_space == gym.spaces.Discrete(3)
    assert set(np.unique(data.episodes[0].observations)) == {0.0, 1.0}
    assert [len(each) for each in algorithm.record(3, module_id="guesser").episodes] == [4, 4, 4]
    again = algorithm.record(3, module_id="mover", explore=True)
    for one, other in zip(data.episodes, again.episodes, strict=True):
        assert one.actions.tolist() == other.actions.tolist()
    assert digest(algorithm.learner_group.get_state()) == before
    with pytest.raises(UnknownModuleError, match="guesser, mover"):
        algorithm.record(3)


def test_spaces_come_from_an_environment_that_is_given() -> None:
    for env in (Lamps, Lamps()):
        learner = tiny().environment(None).build_learner(env=env)
        assert {each: module.action_space.n for each, module in learner.module.items()} == SPACES


def play(*opponents: str) -> Algorithm:
    """Two agents with one space, each with its module, and opponents that never act."""
    config = tiny(env=AlikeLamps).multi_agent(policies_to_train=list(SPACES))
    algorithm = config.build_algo()
    algorithm.train()
    for opponent in opponents:
        algorithm.add_module(opponent, from_module="mover")
    algorithm.train()
    algorithm.train()
    return algorithm


def test_an_opponent_that_is_added_changes_no_bit_of_the_others(tmp_path: Path) -> None:
    alone, beside = play(), play("past-1", "past-2")
    one, other = state_of(alone, tmp_path / "alone"), state_of(beside, tmp_path / "beside")
    assert {path: other[path] for path in one} == one
    assert {
        path.split("/")[2] for path in other.keys() - one.keys() if path.startswith("learner/rl_module")
    } == {
        "past-1",
        "past-2",
    }


def opponents_in_turn(agent_id: str, episode: Any) -> str:
    """The guesser is one of all that are no mover, drawn by the episode's seed."""
    if agent_id == "mover":
        return "mover"
    others = [module_id for module_id in episode.module_ids if module_id != "mover"]
    return str(others[episode.seed % len(others)])


def test_an_added_module_plays_its_copied_weights_and_a_removed_one_no_more(
    backend: str, tmp_path: Path
) -> None:
    config = tiny(backend, env=AlikeLamps, policies=["guesser", "mover"], agent_to_module=opponents_in_turn)
    config = config.multi_agent(policies_to_train=["mover"]).env_runners(normalize_observations=True)
    algorithm = config.build_algo()
    algorithm.train()
    algorithm.add_module("past-1", from_module="mover")
    weights = algorithm.learner_group.get_weights()
    assert digest(weights["past-1"]) == digest(weights["mover"])
    runner = algorithm.env_runner
    assert digest(runner.normalizers["past-1"].get_state()) == digest(runner.normalizers["mover"].get_state())
    for _ in range(3):
        results = algorithm.train()
    assert results["env_runners/num_module_steps_sampled/past-1"] > 0
    after = algorithm.learner_group.get_weights()
    assert digest(after["past-1"]) == digest(weights["past-1"])
    assert digest(after["mover"]) != digest(weights["mover"])
    assert "module_episode_returns_mean/past-1" in algorithm.evaluate()
    algorithm.save_to_path(tmp_path / "run")
    resumed = Algorithm.from_checkpoint(tmp_path / "run", env=AlikeLamps, agent_to_module=opponents_in_turn)
    for each in (algorithm, resumed):
        each.train()
        each.remove_module("guesser")
        assert list(each.learner_group.get_weights()) == ["mover", "past-1"]
        results = each.train()
        assert "env_runners/num_module_steps_sampled/guesser" not in results
        assert results["env_runners/num_env_steps_sampled"] == 32
    assert state_of(resumed, tmp_path / "resumed") == state_of(algorithm, tmp_path / "straight")


def test_a_module_that_cannot_be_added_or_removed_changes_nothing() -> None:
    algorithm = tiny().build_algo()
    before, config = digest(algorithm.learner_group.get_state()), algorithm.config
    wrong: list[tuple[Any, str]] = [
        (lambda: algorithm.add_module("new", from_module="p0"), "'p0'"),
        (lambda: algorithm.add_module("mover", from_module="mover"), "already"),
        (lambda: algorithm.add_module("new"), "no observation_space"),
        (
            lambda: algorithm.add_module(
                "new", from_module="mover", agent_to_module={"guesser": "new", "mover": "mover"}
            ),
            "module 'new' has the spaces",
        ),
        (
            lambda: algorithm.add_module(
                "new", from_module="mover", agent_to_module={"guesser": "new", "mover": "old"}
            ),
            "'old'",
        ),
        (lambda: algorithm.remove_module("p0"), "'p0'"),
        (lambda: algorithm.remove_module("guesser"), "'guesser'"),
    ]
    for call, said in wrong:
        with pytest.raises((ConfigError, UnknownModuleError), match=said):
            call()
        assert digest(algorithm.learner_group.get_state()) == before
        assert algorithm.config == config
    algorithm.train()


def test_a_new_module_gets_the_spaces_of_its_agents() -> None:
    algorithm = tiny().build_algo()
    algorithm.add_module("new", agent_to_module={"guesser": "new", "mover": "mover"})
    assert algorithm.train()["env_runners/num_module_steps_sampled/new"] > 0
    assert algorithm.get_policy("new").action_space == gym.spaces.Discrete(2)
    algorithm.remove_module("guesser")
    assert algorithm.train()["env_runners/num_module_steps_sampled/new"] == 16


GAMES = {
    "mpe2.simple_spread_v3:parallel_env": ({"max_cycles": 8}, None),
    "pettingzoo.classic.connect_four_v3:env": ({}, {"player_0": "first", "player_1": "second"}),
}


@pytest.mark.parametrize("game", GAMES)
def test_environments_of_pettingzoo_train_evaluate_save_and_resume(
    game: str, backend: str, tmp_path: Path
) -> None:
    needs.extra(game.partition(":")[0])
    env_config, modules = GAMES[game]
    config = tiny(
        backend, game, policies=None if modules is None else list(modules.values()), agent_to_module=modules
    )
    config = config.environment(game, env_config=env_config)
    straight = config.env_runners(normalize_observations=True).build_algo()
    for _ in range(2):
        results = straight.train()
    assert results["num_env_steps_sampled_lifetime"] == 64
    straight.save_to_path(tmp_path / "run")
    resumed = Algorithm.from_checkpoint(tmp_path / "run", env=game)
    for algorithm in (straight, resumed):
        algorithm.train()
    assert state_of(resumed, tmp_path / "resumed") == state_of(straight, tmp_path / "straight")
    found = straight.evaluate(4)
    assert found == resumed.evaluate(4)
    if modules is not None:  # what one wins the other loses
        assert found["episode_return_mean"] == 0
        assert found["module_episode_returns_mean/first"] == found["agent_episode_returns_mean/player_0"]
    for algorithm in (straight, resumed):
        algorithm.stop()


def in_turn(n_step: int, steps_per_sample: int) -> Algorithm:
    """DQN as the first of two players of Connect Four, after 60 moves in each of 2 environments; it has not learned."""
    modules = {"player_0": "first", "player_1": "second"}
    algorithm = (
        DQNConfig()
        .environment("pettingzoo.classic.connect_four_v3:env")
        .framework("numpy")
        .multi_agent(policies=list(modules.values()), agent_to_module=modules, policies_to_train=["first"])
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=steps_per_sample)
        .training(n_step=n_step, num_steps_sampled_before_learning_starts=10**6, random_steps=0)
        .debugging(seed=0)
        .build_algo()
    )
    for _ in range(60 // steps_per_sample):
        algorithm.train()
    return algorithm


@pytest.mark.parametrize("n_step", [1, 3])
def test_no_step_is_lost_of_agents_that_act_in_turn_however_short_samples_are(n_step: int) -> None:
    needs.extra("pettingzoo.classic.connect_four_v3")
    short, long = (in_turn(n_step, steps)._training.get_state() for steps in (1, 60))
    assert set(short) == set(long) == {"first"}
    rows = [sorted_rows(each["first"]["replay"]["rows"]["0"]) for each in (short, long)]
    assert len(rows[1]) > 40
    np.testing.assert_array_equal(*rows)


def sorted_rows(columns: dict[str, np.ndarray]) -> np.ndarray:
    matrix = np.concatenate(
        [columns[name].reshape(len(columns[name]), -1) for name in sorted(columns)], axis=1
    )
    return matrix[np.lexsort(matrix.T)]


def test_training_of_many_agents_is_not_recorded() -> None:
    with pytest.raises(ConfigError, match=r"training of many agents is not recorded.*record --module"):
        tiny().build_algo().record_training("episodes")
