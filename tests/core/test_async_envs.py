"""Environments in worker processes: the episodes of "sync" bit for bit, and workers that raise, hang, die or stay."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import counting
import masked
import numpy as np
import pytest
from sampling import Sampling, make_runner, swing
from waiting import HANG_S, wait_until
from worker_envs import Camera, Fragile, Importing, Levers, OneArray, Picture, Unlike

from plugrad.errors import ConfigError, EnvContractError, EnvWorkerError
from plugrad.sampling.env_runner import EnvRunner


@pytest.fixture(autouse=True)
def num_cores(request, monkeypatch):
    """As many workers as a test asks for by `@pytest.mark.parametrize("num_cores", [...], indirect=True)`, else two."""
    number = getattr(request, "param", 2)
    monkeypatch.setattr("plugrad.sampling.vectorization.num_usable_cores", lambda: number)


one_worker = pytest.mark.parametrize("num_cores", [1], indirect=True)


def first_action(observations, **mask):
    allowed = mask.get("action_mask", np.ones((len(observations), 3), bool))
    return {"actions": allowed.argmax(-1)}


def pull(observations):
    which, far = observations[:, 1:2] % 3, observations[:, [0, 1]] % 7 / 9
    return {"actions": np.concatenate([which, far], axis=1).astype(np.float32)}


def counts_steps(observations, state):
    return {**counting.policy(observations), "state_out": {"count": state["count"] + 1}}


ENVIRONMENTS = {
    "recurrent": {"act": counts_steps, "initial_state": {"count": np.zeros(2, np.int64)}},
    "normalised stacks": {
        "act": lambda rows: {"actions": swing(rows[:, 0])["actions"]},
        "env": "Pendulum-v1",
        "normalize_observations": True,
        "normalize_rewards": True,
        "frame_stack": 3,
        "time_limit": 60,
        "env_wrappers": [["gymnasium.wrappers:ClipReward", {"min_reward": -9}]],
    },
    "Dict": {"act": first_action, "env": Camera},
    "actions of parts": {"act": pull, "env": Levers},
    "image": {"act": first_action, "env": Picture},
} | {
    f"masks of {source}": {
        "act": first_action,
        "env": masked.MaskedEnv,
        "env_config": {"source": source, "ends": "truncated" if source == "info" else "terminated"},
    }
    for source in ("info", "observation")
}


def runner_of(mode, act=counting.policy, initial_state=None, **settings):
    config = Sampling(vectorization_mode=mode, **settings)
    return EnvRunner(config=config, act=act, initial_state=initial_state, seed=3)


def assert_equal(found, expected):
    """Episodes, or nested states, bit for bit."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
    if isinstance(expected, dict | list):
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            assert_equal(found[key], expected[key])
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


def as_dicts(episodes):
    return [vars(each) | {"extra_model_outputs": dict(each.extra_model_outputs)} for each in episodes]


TWO_WORKERS = ("normalised stacks", "actions of parts", "masks of info")


@pytest.mark.parametrize(
    ("what", "num_cores"),
    [(what, 1 + (what in TWO_WORKERS)) for what in ENVIRONMENTS],
    indirect=["num_cores"],
)
def test_episodes_and_states_are_those_of_sync_bit_for_bit(what):
    one, other = (runner_of(mode, **ENVIRONMENTS[what]) for mode in ("sync", "async"))
    assert other.env_observation_space == one.env_observation_space
    ended = 0
    for num_steps in (1, 150, 75):
        expected = as_dicts(one.sample(num_steps))
        assert_equal(as_dicts(other.sample(num_steps)), expected)
        assert other.get_metrics() == one.get_metrics()
        ended += sum(each["terminated"] or each["truncated"] for each in expected)
    assert ended >= 3
    # In the middle of the episodes: each takes the other's state, and goes on with the other's episodes.
    state = one.get_state()
    assert_equal(other.get_state(), state)
    expected = as_dicts(one.sample(60))
    other.set_state(state)
    assert_equal(as_dicts(other.sample(60)), expected)
    one.set_state(other.get_state())
    assert_equal(as_dicts(one.sample(9)), as_dicts(other.sample(9)))
    other.close()


def test_episodes_that_do_not_repeat_themselves_begin_anew():
    runner = make_runner(env=counting.UnrepeatableEnv, num_envs_per_env_runner=2, vectorization_mode="async")
    runner.sample(4)
    state = runner.get_state()
    runner.sample(20)
    with pytest.warns(UserWarning, match="environment 1 did not repeat"):
        runner.set_state(state)
    assert all(chunk.observations[0, 1] == 0 for chunk in runner.sample(2))
    runner.close()


# --- environments that raise, hang and die ---


def only_in(index):
    """A policy whose third action of one environment is 2."""
    return lambda rows: {"actions": np.where((rows[:, 1] == 2) & (np.arange(len(rows)) == index), 2, 0)}


def fragile(does, index=2, mode="async", **settings):
    settings = {"env": Fragile, "env_config": {"does": does}, "timeout_s": 2, **settings}
    return make_runner(only_in(index), vectorization_mode=mode, **settings)


@one_worker
@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            "be killed",
            r"environment 2 of 'worker_envs:Fragile': its worker process died: it was killed by SIGKILL",
        ),
        (
            "hang",
            r"environment 2 of '.*:Fragile': its worker process did not answer within 0.5 seconds, and was killed in "
            r".*worker_envs.py, line \d+, in misbehave. .* If it needs more time: .learners\(timeout_s=...\)",
        ),
    ],
)
def test_a_worker_that_dies_or_hangs_is_an_error_that_names_the_environment(does, words, capfd):
    runner = fragile(does, timeout_s=0.5 if does == "hang" else 60)
    runner.sample(2)
    with pytest.raises(EnvWorkerError, match=words) as caught:
        runner.sample(2)
    assert caught.value.facts["index"] == 2
    assert capfd.readouterr().err == ""
    with pytest.raises(EnvWorkerError, match="worker process died"):
        runner.sample(1)
    runner.close()


def test_a_worker_that_dies_while_it_waits_is_named_by_its_environments():
    runner = make_runner(num_envs_per_env_runner=4, vectorization_mode="async")
    runner.sample(3)
    os.kill(worker_pids(runner)[1], signal.SIGKILL)
    with pytest.raises(
        EnvWorkerError, match="environments 2 to 3 of 'plugrad-tests/Counting-v0': their worker"
    ):
        runner.sample(1)
    runner.close()


def worker_pids(runner):
    return [each.pid for each in runner._envs._workers]


@one_worker
@pytest.mark.parametrize(("does", "index"), [("raise", 2), ("NaN", 2), ("break the contract", 0)])
def test_an_error_of_an_environment_is_that_of_sync_and_the_workers_go_on(does, index):
    errors, runners = [], [fragile(does, index, mode) for mode in ("sync", "async")]
    for runner in runners:
        with pytest.raises((KeyError, EnvContractError)) as caught:
            runner.sample(5)
        errors.append(caught.value)
    assert (type(errors[1]), str(errors[1])) == (type(errors[0]), str(errors[0]))
    assert getattr(errors[1], "facts", None) == getattr(errors[0], "facts", None)
    assert set(getattr(errors[0], "__notes__", ())) <= set(getattr(errors[1], "__notes__", ()))
    for runner in runners:
        runner.reset(5)
    assert_equal(*(as_dicts(runner.sample(2)) for runner in runners))
    runners[1].close()


@one_worker
def test_an_environment_that_cannot_be_made_is_the_error_of_sync():
    with pytest.raises(
        ConfigError, match=r"cannot make the environment '.*:Fragile' with env_config=\{'do': 1\}"
    ):
        make_runner(env=Fragile, env_config={"do": 1}, vectorization_mode="async")


def test_environments_of_different_spaces_are_refused():
    with pytest.raises(
        EnvContractError, match=r"environment 1 of '.*:Unlike' has other spaces than environment 0"
    ):
        make_runner(env=Unlike, num_envs_per_env_runner=2, vectorization_mode="async")


# --- what is left behind ---


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_ended(pids):
    wait_until(lambda: not any(map(is_alive, pids)), f"an end of the processes {pids}", 0.02)


SCRIPT = """
import signal, sys
sys.path.insert(0, {tests!r})
import gymnasium as gym, numpy as np, counting
from sampling import make_runner

class Mine(counting.CountingEnv):
    def step(self, action):
        while {hangs} and self.steps == 1:
            pass
        return super().step(action)

gym.register("Mine-v0", entry_point=Mine)
runner = make_runner(env="Mine-v0", vectorization_mode="async", num_envs_per_env_runner=2)
runner.sample(1)
print(*[each.pid for each in runner._envs._workers], flush=True)
while True:
    runner.sample(1)
"""


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("num_cores", [1], indirect=True)
def test_the_last_observation_and_mask_are_kept_by_an_environment_that_writes_all_into_one_array(mode):
    runner = runner_of(mode, first_action, env=OneArray, num_envs_per_env_runner=2)
    episodes = runner.sample(12)
    assert [each.observations[:, 0].tolist() for each in episodes] == [[0, 1, 2, 3, 4, 5]] * 4 + [
        [0, 1, 2]
    ] * 2
    assert episodes[0].extra_model_outputs["new_action_mask"][-1].tolist() == [True, True, True]
    runner.close()


OF_A_SCRIPT = """
import gymnasium as gym, numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from plugrad_ppo import PPOConfig

class Mine(CartPoleEnv):
    pass

class Twice(gym.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

class Three(gym.Wrapper):
    def __init__(self, env, limit):
        super().__init__(gym.wrappers.TimeLimit(env, limit))

def make():
    return Mine()

gym.register("Mine-v0", entry_point="__main__:Mine")
for env in (Mine, make, "Mine-v0", "__main__:Mine"):
    algorithm = (
        PPOConfig().environment(env).framework("numpy").rl_module(model_config={"fcnet_hiddens": [1]})
        .env_runners(vectorization_mode="async", num_envs_per_env_runner=1, env_wrappers=[Twice, [Three, {"limit": 3}]])
        .training(train_batch_size=6, minibatch_size=None, num_epochs=1).build_algo()
    )
    print(*(episode.rewards.tolist() for episode in algorithm.sample()))
    algorithm.stop()
"""


def test_classes_functions_wrappers_and_ids_of_a_script_come_along(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(OF_A_SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[2.0, 2.0, 2.0] [2.0, 2.0, 2.0]"] * 4


@one_worker
def test_a_worker_imports_what_makes_and_steps_environments_and_no_more():
    """Each worker pays for what it imports, before its first step: settings, learners and policies are not needed."""
    runner = make_runner(env=Importing, vectorization_mode="async", num_envs_per_env_runner=1)
    ours = [each for each in runner.call("imported")[0] if each.split(".")[0] == "plugrad"]
    runner.close()
    assert {"plugrad.sampling.async_envs.worker", "plugrad.sampling.environments"} <= {*ours}
    assert len(ours) <= 60, ours


@pytest.mark.parametrize(("ends_by", "hangs"), [("SIGINT", False), ("SIGKILL", True)])
def test_workers_leave_with_a_driver_that_is_interrupted_or_killed(ends_by, hangs):
    """The script has no `if __name__ == "__main__"`, and its workers know the id that only it registers."""
    script = textwrap.dedent(SCRIPT).format(tests=str(Path(__file__).parent), hangs=hangs)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as driver:
        pids = [int(word) for word in driver.stdout.readline().split()]
        time.sleep(0.2)
        driver.send_signal(getattr(signal, ends_by))
        errors = driver.stderr.read().decode()
        driver.wait(HANG_S)
    assert len(pids) >= 1, errors
    assert (b"KeyboardInterrupt" in errors.encode()) == (ends_by == "SIGINT")
    wait_until_ended(pids)


def test_nothing_is_left_after_close():
    descriptors = set(os.listdir("/proc/self/fd"))
    runner = make_runner(vectorization_mode="async")
    pids = worker_pids(runner)
    assert len(pids) == 2
    runner.sample(2)
    runner.close()
    runner.close()
    assert not any(map(is_alive, pids))
    assert set(os.listdir("/proc/self/fd")) <= descriptors


def test_a_runner_that_is_forgotten_leaves_no_process():
    runner = make_runner(vectorization_mode="async", num_envs_per_env_runner=1)
    pids = worker_pids(runner)
    del runner
    wait_until_ended(pids)


def test_an_interrupted_step_is_waited_for_by_the_next_call(monkeypatch):
    """Ctrl-C may come while workers step: what goes on is still in order."""
    runner = make_runner(vectorization_mode="async")
    runner.sample(3)
    interrupted = runner._envs._workers[0]

    def interrupt():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(interrupted, "answer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runner.sample(3)
    runner.reset(4)
    expected = make_runner(seed=4).sample(30)
    for found, one in zip(runner.sample(30), expected, strict=True):
        assert_equal(found.observations, one.observations)
        assert_equal(found.rewards, one.rewards)
    runner.close()
