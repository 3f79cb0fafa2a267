"""Env runners in processes of this machine, without Ray: real processes, and real signals that end them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counted import encodings
from waiting import until, wait_until

from plugrad import RLModuleSpec
from plugrad.algorithm import Algorithm
from plugrad.errors import ConfigError, PlugradError, RestoreMismatchError
from plugrad_ppo import PPOConfig

TIMEOUT_S = 30.0


def config(path: Path | None = None, learner: str | None = None, **env: Any) -> PPOConfig:
    """Two env runners with one environment each; with a path its steps are counted there."""
    settings = {} if path is None else {"env_config": {"path": str(path), **env}}
    return (
        PPOConfig()
        .environment("CartPole-v1" if path is None else "async_training:StepsInFile", **settings)
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(
            num_env_runners=2,
            num_envs_per_env_runner=1,
            rollout_fragment_length=8,
            env_runner_backend="process",
        )
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1)
        .learners(learner_class=learner and f"async_training:{learner}", timeout_s=2)
        .debugging(seed=0)
    )


@pytest.fixture
def build() -> Iterator[Callable[[PPOConfig], Algorithm]]:
    """Builds Algorithms and stops them; then none of their processes is left."""
    built: list[Algorithm] = []

    def build(config: PPOConfig) -> Algorithm:
        built.append(config.build_algo())
        return built[-1]

    yield build
    processes = [pid for algorithm in built for pid in pids(algorithm)]
    for algorithm in built:
        algorithm.stop()
        algorithm.stop()
    assert not [pid for pid in processes if is_running(pid)]


def pids(algorithm: Algorithm) -> list[int]:
    runners: Any = algorithm.env_runner
    return [each.location[1] for each in runners._actors.values()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_weights_are_encoded_once_for_all_env_runners():
    found, arrays = encodings(config(), num_env_runners=3, versions=2)
    assert found == [arrays, arrays]


def beginnings(episodes: list[Any]) -> set[bytes]:
    return {each.observations[0].tobytes() for each in episodes}


def python(code: str, *arguments: Any, **settings: Any) -> subprocess.Popen[str]:
    """A script that Python reads from a file, so that its classes are of `__main__`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **settings
    )


# --- sampling -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_episodes_in_the_order_of_ranks(build):
    samples = [build(config()).sample() for _ in range(2)]
    for one, other in zip(*samples, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)
        assert one.id_ == other.id_
    ranks = [episode.id_.split("-")[0] for episode in samples[0]]
    assert ranks == sorted(ranks)
    assert set(ranks) == {"0", "1"}


def test_samples_that_are_not_waited_for_say_whose_they_are_and_which_weights_acted(build):
    algorithm = build(config())
    runners: Any = algorithm.env_runner
    assert runners.collect(0.0) == []
    assert runners.submit() == 4
    assert runners.submit() == 0  # two of each are under way
    first = runners.collect()
    while len(first) < 4:
        first += runners.collect(TIMEOUT_S)
    assert sorted(sample.rank for sample in first) == [0, 0, 1, 1]
    assert {sample.num_env_steps for sample in first} == {8}
    assert algorithm.env_runner.total_steps == 32
    assert [sum(map(len, sample.episodes)) for sample in first] == [8] * 4
    algorithm.update(episodes=first[0].episodes)
    runners.submit(max_in_flight=1)
    second = runners.collect_all()
    assert [sample.rank for sample in second] == [0, 1]
    assert {s.weights_version for s in first} == {algorithm.learner_group.weights_version - 1}
    assert {s.weights_version for s in second} == {algorithm.learner_group.weights_version}


def test_a_waiting_request_uses_the_newest_weights_that_have_arrived(build, tmp_path):
    algorithm = build(config(tmp_path / "steps", waits_at=4).env_runners(num_env_runners=1))
    runners: Any = algorithm.env_runner
    group = algorithm.learner_group
    assert runners.submit() == 2
    steps = tmp_path / "steps"
    wait_until(lambda: steps.exists() and steps.stat().st_size == 4, "the middle of the first sample")
    before = group.weights_version
    group.set_weights({m: {name: -each for name, each in w.items()} for m, w in group.get_weights().items()})
    assert runners.submit() == 0  # no further request, but the newer weights
    runners._actors[0].ping().result(TIMEOUT_S)
    Path(f"{steps}.open").touch()
    first, second = runners.collect_all()
    assert first.weights_version == before
    assert second.weights_version == group.weights_version == before + 1


def test_env_runners_go_on_while_an_update_runs(build, tmp_path):
    # More samples than they can make meanwhile: with two they might all be ready before the update begins.
    settings = config(tmp_path / "steps", "WaitsForSteps").env_runners(
        max_requests_in_flight_per_env_runner=2000
    )
    algorithm = build(settings)
    for _ in range(3):
        results = algorithm.train()
    assert results["num_env_steps_trained_lifetime"] == 48
    assert results["env_runners/weights_staleness_max"] >= 1
    assert results["env_runners/num_samples_in_flight"] > 0


def test_an_env_runner_waits_when_nobody_takes_its_samples(build, tmp_path):
    algorithm = build(config(tmp_path / "steps"))
    runners: Any = algorithm.env_runner
    runners.submit()
    steps = tmp_path / "steps"
    wait_until(lambda: steps.exists() and steps.stat().st_size == 32, "32 steps")
    time.sleep(0.2)
    assert steps.stat().st_size == 32
    assert algorithm.env_runner.total_steps == 0  # a sample counts when it is taken
    runners.collect_all()
    assert algorithm.env_runner.total_steps == 32


def test_env_runners_that_are_ready_take_turns(build):
    runners: Any = build(config()).env_runner
    ranks = []
    for _ in range(12):
        runners.submit()
        time.sleep(0.2)  # both have answered
        ranks += [sample.rank for sample in runners.collect(max_samples=1)]
    assert ranks in ([0, 1] * 6, [1, 0] * 6)


# --- saving and resuming --------------------------------------------------------------------------------------------


def test_samples_under_way_are_saved_and_learned_from_first_by_a_resumed_run(build, tmp_path):
    here, there = (build(config(learner="AsynchronousLearner")) for _ in range(2))
    for _ in range(2):
        results = here.train()
    here.save_to_path(tmp_path)
    there.restore_from_path(tmp_path)
    assert there.num_samples_in_flight == here.num_samples_in_flight == 4
    one, other = here.collect_all_samples(), there.collect_all_samples()
    for a, b in zip(one, other, strict=True):
        assert (a.rank, a.num_env_steps) == (b.rank, b.num_env_steps)
        for x, y in zip(a.episodes, b.episodes, strict=True):
            np.testing.assert_array_equal(x.observations, y.observations)
            assert x.id_ == y.id_
        now = here.learner_group.weights_version, there.learner_group.weights_version
        assert now[0] - a.weights_version == now[1] - b.weights_version
    assert there.env_runner.total_steps == results["num_env_steps_sampled_lifetime"] + 32


def test_another_number_of_env_runners_begins_episodes_that_were_not_seen_before(build, tmp_path):
    two, three = build(config()), build(config().env_runners(num_env_runners=3))
    seen = two.sample()
    two.save_to_path(tmp_path)
    three.restore_from_path(tmp_path)
    new = three.sample()
    assert {each.id_ for each in new}.isdisjoint(each.id_ for each in seen)
    assert beginnings(new).isdisjoint(beginnings(seen))


def test_an_env_runner_that_takes_the_place_of_another_begins_episodes_of_its_own(build, tmp_path):
    algorithm, resumed = build(config()), build(config())
    seen = algorithm.sample()
    seen += new_episodes_of_a_replacement(algorithm, seen)
    algorithm.save_to_path(tmp_path)
    resumed.restore_from_path(tmp_path)
    assert [each.id_ for each in resumed.sample()] == [each.id_ for each in algorithm.sample()]
    new_episodes_of_a_replacement(resumed, seen)


def new_episodes_of_a_replacement(algorithm: Algorithm, seen: list[Any]) -> list[Any]:
    os.kill(pids(algorithm)[0], signal.SIGKILL)
    new = [each for each in algorithm.sample() if each.id_.startswith("0-")]
    assert {each.id_ for each in new}.isdisjoint(each.id_ for each in seen)
    assert beginnings(new).isdisjoint(beginnings(seen))
    return new


# --- faults ---------------------------------------------------------------------------------------------------------

STEPS = ("num_env_steps_trained_lifetime", "num_env_steps_waiting", "num_env_steps_dropped_lifetime")


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
def test_an_env_runner_that_dies_or_hangs_is_replaced_and_no_step_counts_twice(build, tmp_path, what):
    algorithm = build(config(tmp_path / "steps", "AsynchronousLearner"))
    algorithm.train()
    killed = pids(algorithm)
    os.kill(killed[1], what)
    iterations = 1
    for _ in until(lambda: pids(algorithm)[1] != killed[1], "another process"):
        iterations += 1
        results = algorithm.train()
        assert results["num_env_steps_sampled_lifetime"] == sum(results[each] for each in STEPS)
        assert results["num_env_steps_trained_lifetime"] == 16 * iterations
    assert pids(algorithm)[0] == killed[0]
    assert not is_running(killed[1])
    rest = algorithm.collect_all_samples()
    assert sorted(sample.rank for sample in rest) == [0, 0, 1, 1]
    assert algorithm.env_runner.total_steps == 16 * iterations + 32


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_env_runner_whose_environment_hangs_is_replaced_after_the_time_of_one_step(
    build, tmp_path, caplog, capfd, mode
):
    hangs = config(tmp_path / "steps", waits_at=100).env_runners(vectorization_mode=mode)
    algorithm = build(hangs.learners(timeout_s=1))
    before = pids(algorithm)
    for iterations in range(1, 9):
        assert algorithm.train()["num_env_steps_sampled_lifetime"] == 16 * iterations
    assert len(set(before) - set(pids(algorithm))) == 1
    said = caplog.text + capfd.readouterr().err
    assert said.count("did not answer within 1 seconds") == 1
    assert re.search(r"async_training.py, line \d+, in step. ", said)
    assert said.count("it is replaced and begins new episodes") == 1


def test_a_sample_may_take_longer_than_a_step_and_than_what_is_built(build, tmp_path):
    algorithm = build(config(tmp_path / "steps", seconds=0.2).learners(timeout_s=0.6))
    before, runners = pids(algorithm), algorithm.env_runner
    runners.config = runners.config.learners(build_timeout_s=0.3)
    assert sum(map(len, algorithm.sample())) == 16
    assert pids(algorithm) == before


def test_a_sample_that_is_waited_for_survives_a_death_too(build):
    algorithm = build(config())
    algorithm.sample()
    os.kill(pids(algorithm)[0], signal.SIGKILL)
    assert sum(map(len, algorithm.sample())) == 16
    assert algorithm.env_runner.total_steps == 32


def test_what_an_environment_raises_is_raised_here(build, tmp_path):
    algorithm = build(config(tmp_path / "steps", raises_at=20))
    algorithm.sample()
    with pytest.raises(ZeroDivisionError, match="at step 20") as error:
        algorithm.sample()
    notes = "\n".join(error.value.__notes__)
    assert "in env runner" in notes
    assert "async_training.py" in notes


def test_an_algorithm_that_cannot_be_built_leaves_no_process(build, tmp_path):
    build(config()).save_to_path(tmp_path / "checkpoint")
    before = children()
    unfit = config().env_runners(normalize_observations=True).offline_data(output=str(tmp_path / "data"))
    with pytest.raises(ConfigError, match="with normalize_observations=True"):
        unfit.build_algo()
    wider = RLModuleSpec(model_config={"fcnet_hiddens": [3]})
    with pytest.raises(RestoreMismatchError):
        Algorithm.from_checkpoint(tmp_path / "checkpoint", module_spec=wider)
    assert children() == before


def children() -> set[int]:
    """Processes that this one has started and that run."""
    found = {int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()}
    return {pid for pid in found if is_running(pid) and parent_of(pid) == os.getpid()}


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return None


def test_more_deaths_than_max_restarts_are_an_error(build):
    algorithm = build(config().learners(max_restarts=0))
    os.kill(pids(algorithm)[1], signal.SIGKILL)
    with pytest.raises(PlugradError, match=r"env runner 1 died \(SIGKILL\), and max_restarts=0 are used up"):
        algorithm.sample()


# --- scripts --------------------------------------------------------------------------------------------------------

SCRIPT = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from plugrad_ppo import PPOConfig

LIMIT = 5
print("imported", flush=True)

class Mine(CartPoleEnv):
    def step(self, action):
        SLEEP
        return super().step(action)

def make():
    return gym.wrappers.TimeLimit(Mine(), LIMIT)

gym.register("Mine-v0", entry_point="__main__:Mine", max_episode_steps=LIMIT)
algorithm = (
    PPOConfig().environment(make).framework("numpy").rl_module(model_config={"fcnet_hiddens": [1]})
    .env_runners(num_env_runners=2, num_envs_per_env_runner=1, rollout_fragment_length=10)
    .training(train_batch_size=20, minibatch_size=None, num_epochs=1).build_algo()
)
print([each.location[1] for each in algorithm.env_runner._actors.values()], flush=True)
try:
    while True:
        print(max(map(len, algorithm.sample())), flush=True)
        AFTER
except KeyboardInterrupt:
    algorithm.stop()
    print("stopped", flush=True)
"""


@pytest.mark.parametrize("env", ["make", "'Mine-v0'"])
def test_a_script_needs_no_guard_and_its_classes_and_ids_come_along(env, tmp_path):
    script = tmp_path / "mine.py"
    code = SCRIPT.replace("SLEEP", "pass").replace("AFTER", "break")
    script.write_text(code.replace("environment(make)", f"environment({env})"))
    process = python("", script)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.count("imported") == 1
    assert output.splitlines()[-1] == "5"
    assert errors == ""


def test_ctrl_c_goes_to_the_driver_alone(tmp_path):
    process = python(
        "", "-c", SCRIPT.replace("SLEEP", "pass").replace("AFTER", "pass"), start_new_session=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "stopped"
    assert errors == ""
    assert not [pid for pid in eval(lines[1]) if is_running(pid)]


def test_env_runners_end_with_a_driver_that_is_killed_in_the_middle_of_a_step(tmp_path):
    code = SCRIPT.replace("SLEEP", "import time; time.sleep(600)").replace("AFTER", "pass")
    process = python("", "-c", code)
    assert process.stdout is not None
    processes = eval([process.stdout.readline() for _ in range(2)][1])
    assert all(map(is_running, processes))
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_running, processes)), "an end of all processes")
