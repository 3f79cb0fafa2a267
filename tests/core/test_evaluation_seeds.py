"""Evaluation plays episodes of its own: none that training played, the same ones every time."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.envs.classic_control import CartPoleEnv
from many_agents import Pair

from plugrad import RandomRLModule, RLModuleSpec
from plugrad.cli import main
from plugrad_ppo import PPOConfig

STARTS: list[bytes] = []
RUNNING = 4  # environments, and so episodes that run on when a checkpoint is saved


class Witnessed(CartPoleEnv):
    """CartPole that tells where its episodes start."""

    def reset(self, **settings):
        observation, info = super().reset(**settings)
        STARTS.append(observation.tobytes())
        return observation, info


def starts_of(action) -> list[bytes]:
    STARTS.clear()
    action()
    return list(STARTS)


def config(**env_runners) -> PPOConfig:
    return (
        PPOConfig()
        .environment(Witnessed)
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .env_runners(**{"num_envs_per_env_runner": RUNNING, **env_runners})
        .training(train_batch_size=800, minibatch_size=400, num_epochs=1)
        .debugging(seed=0)
    )


def all_different(*groups: list[bytes]) -> bool:
    sets = [set(group) for group in groups]
    return all(sets) and len(set.union(*sets)) == sum(map(len, sets))


def test_no_episode_of_evaluation_or_recording_starts_like_one_of_training():
    algorithm = config().build_algo()
    played = starts_of(lambda: [algorithm.sample() for _ in range(3)])
    evaluated = starts_of(lambda: algorithm.evaluate(num_episodes=20))
    recorded = starts_of(lambda: algorithm.record(20))
    given = starts_of(lambda: algorithm.evaluate(num_episodes=20, seed=algorithm.config.seed + 1))
    assert all_different(played, evaluated, recorded, given)
    assert len(played) > 30


def test_equal_seeds_give_equal_evaluations():
    algorithm = config().build_algo()
    first = starts_of(lambda: algorithm.evaluate(num_episodes=8))
    algorithm.sample()
    assert starts_of(lambda: algorithm.evaluate(num_episodes=8)) == first
    assert starts_of(lambda: algorithm.evaluate(num_episodes=8, seed=0)) == first
    assert starts_of(lambda: config().build_algo().evaluate(num_episodes=8)) == first


@pytest.mark.parametrize(
    "play",
    [
        lambda algorithm: algorithm.evaluate(4, seed=1),
        lambda algorithm: returns_of(algorithm.play(4, seed=1)),
    ],
)
def test_what_an_opponent_draws_repeats_and_leaves_training_alone(play):
    """Also a module that draws its actions without exploration, such as a random opponent."""
    one, other = (duel().build_algo() for _ in range(2))
    assert play(other) == play(other)
    assert returns_of(other.sample()) == returns_of(one.sample())


def returns_of(episodes):
    return [each.get_return() for each in episodes]


def duel() -> PPOConfig:
    return (
        config()
        .environment(Pair)
        .env_runners(num_envs_per_env_runner=2)
        .multi_agent(
            policies={"learner": None, "random": RLModuleSpec(module_class=RandomRLModule)},
            policies_to_train=["learner"],
            agent_to_module={"left": "learner", "right": "random"},
        )
    )


def test_a_resumed_run_evaluates_by_the_same_episodes_and_trains_on_others(tmp_path):
    algorithm = config().build_algo()
    algorithm.train()
    evaluated = starts_of(lambda: algorithm.evaluate(num_episodes=8))
    algorithm.save_to_path(tmp_path)
    resumed = config().build_algo()
    resumed.restore_from_path(tmp_path)
    assert starts_of(lambda: resumed.evaluate(num_episodes=8)) == evaluated
    assert all_different(starts_of(resumed.train), evaluated)


def test_plugrad_eval_plays_neither_what_trained_nor_what_evaluated_the_run(tmp_path):
    def plugrad(*arguments):
        result = CliRunner().invoke(main, [*map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.stdout

    (tmp_path / "config.toml").write_text(config().evaluation(evaluation_interval=1).to_toml())
    run = tmp_path / "run"
    train = ("train", "-q", "--config", tmp_path / "config.toml", "--out", run, "--stop-timesteps=800")
    in_the_run = starts_of(lambda: plugrad(*train))
    said = []

    def judged(*options):
        """Without the running episodes of the checkpoint, which are lived through again when it is opened."""
        arguments = ("eval", run, "--json", "--episodes=8", *options)
        return starts_of(lambda: said.append(plugrad(*arguments)))[RUNNING:]

    first = judged()
    assert all_different(in_the_run, first)
    assert judged() == first
    assert json.loads(said[0]) == json.loads(said[1])
    assert set(judged("--seed=0")) < set(in_the_run)  # the run's own evaluations, by request


@pytest.mark.parametrize("mode", ["vector_entry_point"])
def test_environments_of_their_own_vectorisation_do_not_repeat_training_either(mode):
    algorithm = (
        config(vectorization_mode=mode, rollout_fragment_length=200).environment("CartPole-v1").build_algo()
    )
    played = np.concatenate([chunk.observations for chunk in algorithm.sample()])
    recorded = np.array([each.observations[0] for each in algorithm.record(8).episodes])
    algorithm.evaluate(num_episodes=1)
    begun = algorithm._evaluator.sample(1)
    assert not set(map(bytes, played)) & set(map(bytes, recorded))
    assert not set(map(bytes, played)) & {bytes(each.observations[0]) for each in begun}
