"""The examples run as they stand in examples/, and what they print is right."""

import re
import runpy
import sys
from contextlib import suppress
from importlib import import_module
from math import log
from pathlib import Path

import gymnasium as gym
import needs
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
HELPERS = ("demonstrations.py", "tensor_envs.py")
NEEDS = {
    "lunar_lander": ("Box2D",),
    "league": ("pettingzoo",),
    "warm_start": ("torch", "tensorflow", "jax"),
}
OF_ONE_BACKEND = re.compile(r"_(torch|tf2)\.py$")
FRAMEWORKS = sorted(path.stem.rpartition("_")[2] for path in EXAMPLES.glob("behaviour_cloning_*.py"))
CHEAP = ("grpo_characters",)
"""They run whole on each backend; the others on one, which is drawn."""
NEUTRAL = sorted(
    path.stem
    for path in EXAMPLES.glob("*.py")
    if path.name not in HELPERS and path.stem not in CHEAP and not OF_ONE_BACKEND.search(path.name)
)


@pytest.fixture
def run(monkeypatch, capsys):
    """`run(name, *arguments)`: the lines that an example prints."""

    def run_example(name: str, *arguments: str) -> list[str]:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        with suppress(SystemExit):  # click ends so; what is printed shows whether it was the end
            runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out.strip().splitlines()

    return run_example


def losses(lines: list[str]) -> list[float]:
    return [float(line.split()[-1]) for line in lines]


def assert_build_and_update(lines):
    alone, group = losses(lines)
    assert alone == group


def assert_async_updates(lines):
    *results, stats = lines
    assert [line.split()[0] for line in results] == ["earlier", "earlier", "future"]
    assert losses(results) == sorted(losses(results), reverse=True)
    counts = {"submitted": 4, "in_flight": 0, "applied": 4, "failed": 0, "dropped": 0}
    assert stats == str({**counts, "collective": None, "standby_ready": 0})


def assert_state(lines):
    assert lines[0].startswith("equal ")
    assert lines[0].endswith(" True")
    assert lines[1].startswith("components rl_module optimizer")
    assert lines[2] == "restored default_policy"


def assert_optimizers(lines):
    hidden, outputs, loss = zip(*([float(each) for each in line.split()] for line in lines), strict=True)
    assert hidden == pytest.approx((1e-3, 1e-3))
    assert outputs == pytest.approx((0.055, 0.01))
    assert loss[1] < loss[0] < log(2)


def assert_behaviour_cloning(lines):
    first, *_, last = losses(lines)
    assert last < 0.5 < first < log(2)


EVERY_TIME = ["--mean-to-join", "-1", "--window", "1"]
SHORTER = {
    "lunar_lander": ["--steps", "1"],
    "trpo": ["--iterations", "8", "--steps", "512"],
    "self_play": ["--generations", "4"],  # each compiles an update of its own
    "league": ["--iterations", "2", "--steps", "1024", "--games", "4", *EVERY_TIME],
}


def assert_lunar_lander(lines):
    (line,) = lines
    steps, mean = map(float, line.split())
    assert steps == 16_384
    assert -300 < mean < 0


def assert_offline_cloning(lines):
    demonstrated, first, *_, last, cloned = losses(lines)
    assert last < first < log(2)
    assert cloned > 0.9 * demonstrated


def assert_self_play(lines):
    modules, first, average = losses(lines)
    assert modules == 6  # the player, and its weights at the beginning and after each generation
    assert average < first / 2


def assert_league(lines):
    *joined, (*_, rate) = map(str.split, lines)
    assert [each[-1] for each in joined] == ["2", "3"]
    assert 0 <= float(rate) <= 1


def assert_grpo_characters(lines):
    *training, words = lines
    rewards = losses(training)
    assert rewards[0] == pytest.approx(0.31, abs=0.1)  # of letters drawn at random
    assert rewards[-1] > rewards[0] + 0.3
    assert {len(each) for each in words.split()} == {9}


def assert_trpo(lines):
    gained, divergences = ([float(line.split()[at]) for line in lines] for at in (3, 5))
    assert min(gained) >= 0.0
    assert sum(each > 0.0 for each in gained) >= 6
    assert 0.0 < max(divergences) <= 0.01
    returns = losses(lines)
    assert returns[-1] > 1.5 * returns[0]


def assert_socket_simulator(lines):
    returns = losses(lines)
    assert returns[0] < 0.0
    assert returns[-1] == pytest.approx(0.6)  # the shortest way


def assert_warm_start(lines):
    *training, apart = lines
    here, there = losses(training)[3::2], losses(training)[4::2]
    assert here == pytest.approx(there, rel=1e-5)
    assert losses([apart])[0] < 1e-5


@pytest.mark.cross_product("example")
@pytest.mark.parametrize("example", NEUTRAL)
def test_an_example_does_what_it_says(example, backend, run):
    for module in NEEDS.get(example, ()):
        needs.extra(module)
    globals()[f"assert_{example}"](run(example, "--backend", backend, *SHORTER.get(example, [])))


@pytest.mark.parametrize("example", CHEAP)
def test_a_cheap_example_does_what_it_says_on_each_backend(example, backend, run):
    globals()[f"assert_{example}"](run(example, "--backend", backend))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_example_of_a_framework_learns_as_the_neutral_one_does(framework, run):
    needs.backend(framework)
    own = losses(run(f"behaviour_cloning_{framework}"))
    assert own == pytest.approx(losses(run("behaviour_cloning", "--backend", framework)), rel=1e-3)


@pytest.mark.parametrize(
    ("framework", "name"), [("torch", "cart-pole"), ("torch", "pendulum"), ("jax", "pendulum")]
)
def test_environments_of_tensors_are_gymnasiums_and_train(framework, name, monkeypatch):
    needs.backend(framework)
    monkeypatch.syspath_prepend(EXAMPLES)
    example = import_module("tensor_envs")
    xp = import_module("torch" if framework == "torch" else "jax.numpy")
    copies = example.EQUATIONS[name](xp)
    one = gym.make({"cart-pole": "CartPole-v1", "pendulum": "Pendulum-v1"}[name]).unwrapped
    one.reset(seed=0)
    one.action_space.seed(0)
    state = xp.asarray(np.asarray(one.state, np.float32)[None])
    for _ in range(10):
        action = one.action_space.sample()
        obs, reward, terminated, *_ = one.step(action)
        state, rewards, fallen = copies.step(state, xp.asarray(np.asarray(action)[None]))
        np.testing.assert_allclose(np.asarray(copies.observe(state))[0], obs, atol=1e-4)
        np.testing.assert_allclose(np.asarray(rewards)[0], reward, atol=1e-4)
        assert bool(fallen[0]) == terminated
    algorithm = example.config(framework, name, 8, steps=4).build_algo()
    for number in (1, 2):
        assert algorithm.train()["num_env_steps_sampled_lifetime"] == number * 8 * 4
