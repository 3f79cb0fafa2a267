"""Runs whose simulator fails: what is saved, what is said, and how they go on."""

import json
import shlex
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from faulty_envs import Faulty
from tiny_runs import TINY, iterations, plugrad

from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint
from plugrad.cli.metrics_files import read_rows
from plugrad.sampling import faults
from plugrad.sampling.faults import TruncateOnFault
from plugrad_ppo import PPOConfig

FAULTY = ["--env=faulty_envs:Faulty", "--seed=1", "--stop-timesteps=4000"]


def faulty_run(path: Path, *arguments: object) -> Any:
    return plugrad("train", "ppo", *FAULTY, *TINY, "--quiet", "--out", path, *arguments)


def go_on_commands(stderr: str) -> list[str]:
    """The commands that the line of an error ends with."""
    _, _, found = stderr.partition(" (--debug")[0].strip().partition("go on: ")
    return found.split("; if it fails now and then, TruncateOnFault ends such episodes alone: ")


def saved(run: Path) -> int:
    return int(load_checkpoint(run / "checkpoints" / "last").state["training_iteration"])


def config(**env_config: Any) -> PPOConfig:
    return (
        PPOConfig()
        .framework("numpy")
        .environment(Faulty, env_config=env_config)
        .env_runners(num_envs_per_env_runner=2)
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .training(train_batch_size=8, minibatch_size=None, num_epochs=1)
        .debugging(seed=1)
    )


def first_observations(algorithm: Algorithm) -> np.ndarray:
    return np.concatenate([chunk.observations[:1] for chunk in algorithm.sample(1)])


def test_an_error_of_the_simulator_saves_the_last_iteration_and_says_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = faulty_run(run, "--environment.env_config={every = 40}")
    assert done.exit_code == 1
    assert "RuntimeError: the physics engine diverged" in done.stderr
    assert done.stderr.count("\n") == 1
    last = iterations(run)[-1]
    assert last >= 2, "the case needs an error after some iterations, and long before a checkpoint is due"
    assert saved(run) == last
    assert (
        f"run {run}: iteration {last:g} is saved; go on: plugrad train --resume {run} --env faulty_envs:Faulty "
        "--new-episodes" in done.stderr
    )


def test_the_command_that_an_error_ends_with_runs_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files may not name an environment of the working directory: the command says it again."""
    monkeypatch.chdir(tmp_path)
    Path("arm.py").write_text(
        "import gymnasium as gym, os\nclass Arm(gym.Wrapper):\n    def __init__(self, **kwargs):\n"
        "        super().__init__(gym.make('CartPole-v1'))\n    def step(self, action):\n"
        "        assert os.path.exists('mended'), 'solver diverged'\n        return super().step(action)\n"
    )
    done = plugrad("train", "ppo", "arm:Arm", *TINY, "--out=my run", "--quiet")
    assert done.exit_code == 1
    anew, lasting = go_on_commands(done.stderr)
    assert anew == "plugrad train --resume 'my run' --env arm:Arm --new-episodes"
    assert lasting.startswith(f"{anew} '--env_runners.env_wrappers=")
    refused = plugrad(*shlex.split(lasting)[1:], "--quiet", "--stop-timesteps=400")
    assert "TruncateOnFault: 20 episodes in a row ended with a fault" in refused.stderr
    (anew,) = go_on_commands(refused.stderr)  # the wrapper is there
    Path("mended").touch()
    again = plugrad(*shlex.split(anew)[1:], "--quiet", "--stop-timesteps=100")
    assert again.exit_code == 0, again.stderr


def test_a_run_that_a_fault_ended_goes_on_with_new_episodes_until_it_is_done(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert faulty_run(run, "--environment.env_config={every = 40}", "--save-every=1").exit_code == 1
    for _ in range(60):
        before = saved(run)
        done = plugrad("train", "--resume", run, "--new-episodes", "--quiet", "--stop-timesteps=600")
        if done.exit_code == 0:
            break
        assert saved(run) >= before
    assert done.exit_code == 0, done.stderr
    assert iterations(run) == list(range(1, saved(run) + 1))


def test_new_episodes_have_other_seeds_and_actions_each_time_and_also_where_a_process_was_killed(
    tmp_path: Path,
) -> None:
    algorithm = config(every=0).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    algorithm.sample(1)
    algorithm.stop()
    found = []
    for _ in range(3):  # each process is killed after it has begun, and before it has trained
        again = Algorithm.from_checkpoint(tmp_path, env=Faulty, new_episodes=True)
        again.save_to_path(tmp_path)
        found.append((first_observations(again), again.sample(30)[0].actions))
        again.stop()
    observations, actions = zip(*found, strict=True)
    assert len({each.tobytes() for each in observations}) == 3
    assert len({each[:6].tobytes() for each in actions} | {each.tobytes() for each in actions}) > 2


def test_an_error_in_python_is_not_met_again_with_the_same_seeds() -> None:
    algorithm = config(every=2).build_algo()
    ends = 0
    for _ in range(200):
        try:
            algorithm.train()
            ends += 1
        except RuntimeError:
            continue
    algorithm.stop()
    assert ends > 5


def test_a_resumed_run_without_new_episodes_still_computes_the_same(tmp_path: Path) -> None:
    algorithm = config(every=0).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    expected = algorithm.sample(5)
    algorithm.stop()
    again = Algorithm.from_checkpoint(tmp_path, env=Faulty)
    for one, other in zip(expected, again.sample(5), strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)
    again.stop()


def test_env_runner_processes_begin_new_episodes_too(tmp_path: Path) -> None:
    several = config(every=0).env_runners(num_env_runners=1, env_runner_backend="process")
    algorithm = several.build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    expected = algorithm.sample(20)
    algorithm.begin_new_episodes()
    others = algorithm.sample(20)
    algorithm.stop()
    again = several.build_algo()
    again.restore_from_path(tmp_path, new_episodes=True)
    anew = again.sample(20)
    again.stop()
    starts = [{chunk.observations[0].tobytes() for chunk in each} for each in (expected, others, anew)]
    assert not starts[0] & starts[1]
    assert not starts[0] & starts[2]
    assert len({chunk[0].actions.tobytes() for chunk in (expected, others, anew)}) == 3


def test_settings_of_the_environment_change_with_new_episodes_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    faulty_run(run, "--environment.env_config={every = 40}")
    typed = ["--environment.env_config={every = 0}", "--stop-timesteps=800", "--quiet"]
    refused = plugrad("train", "--resume", run, *typed)
    assert refused.exit_code == 2
    assert "--environment.env_config cannot be given with it; add --new-episodes" in refused.stderr
    plugrad("train", "--resume", run, "--new-episodes", *typed, code=0)
    assert json.loads((run / "summary.json").read_text())["timesteps"] == 800
    plugrad("train", "--resume", run, "--quiet", "--stop-timesteps=816", code=0)  # they are kept


@pytest.mark.parametrize(
    "setting", ["--env_runners.normalize_observations=true", "--env_runners.frame_stack=2"]
)
def test_settings_that_the_policy_depends_on_never_change(tmp_path: Path, setting: str) -> None:
    run = tmp_path / "run"
    faulty_run(run, "--environment.env_config={every = 40}")
    refused = plugrad("train", "--resume", run, "--new-episodes", setting)
    assert refused.exit_code == 2
    assert "cannot be given with it" in refused.stderr


def test_new_episodes_are_for_runs_that_go_on_and_sample(tmp_path: Path) -> None:
    refused = plugrad("train", "ppo", *TINY, "--new-episodes")
    assert refused.exit_code == 2
    assert "--new-episodes is for --resume" in refused.stderr


def test_any_other_error_saves_too_and_says_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("third.py").write_text(
        "from plugrad import hookimpl\n@hookimpl\ndef iteration_ended(algorithm, results):\n"
        "    assert algorithm.iteration < 3, 'a listener of mine'\n"
    )
    done = plugrad("train", "ppo", "CartPole-v1", *TINY, "--plugin=third.py", "--out=run", "--quiet")
    assert done.exit_code == 1
    resume = f"plugrad train --resume run --plugin {tmp_path / 'third.py'} --new-episodes"
    assert f"run run: iteration 3 is saved; go on: {resume}" in done.stderr
    assert saved(Path("run")) == 3


class InOneArray(gym.Env[Any, Any]):
    """Writes each observation into the one array that it gives out; that of its second step is not finite."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seen = np.zeros(1, np.float32)
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.seen += 1 if self.seen < 1 else np.nan
        return self.seen, 1.0, False, False, {}


def test_an_episode_that_is_cut_ends_in_the_last_good_observation() -> None:
    env = TruncateOnFault(InOneArray())
    env.reset(seed=0)
    env.step(0)
    observation, reward, _, truncated, _ = env.step(0)
    assert (observation.tolist(), reward, truncated) == ([1.0], 0.0, True)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("fault", ["error", "nan"])
def test_a_wrapper_ends_the_episodes_of_faulty_steps_and_counts_them(
    mode: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults._SAID.clear()
    settings = config(every=2, fault=fault).env_runners(
        env_wrappers=[TruncateOnFault], vectorization_mode=mode, rollout_fragment_length=60
    )
    algorithm = settings.build_algo()
    episodes = [each for each in algorithm.sample() if each.is_done]
    metrics = algorithm.env_runner.get_metrics()
    algorithm.stop()
    faulty = [each for each in episodes if each.truncated]
    assert 0 < len(faulty) < len(episodes)
    assert {len(each) for each in faulty} == {3}
    assert {each.get_return() for each in faulty} == {2.0}
    assert all(np.isfinite(each.observations).all() for each in episodes)
    counted = episodes[-20:]
    assert metrics["info/faults"] == pytest.approx(sum(each.truncated for each in counted) / len(counted))
    if mode == "sync":
        assert caplog.text.count("the episode is truncated. Further faults are counted in info/faults") == 1


@pytest.mark.parametrize("fault", ["error", "nan"])
def test_the_wrapper_that_an_error_names_trains_through_faults_and_metrics_count_them(
    tmp_path: Path, fault: str
) -> None:
    run = tmp_path / "run"
    ended = faulty_run(run, f"--environment.env_config={{every = 3, fault = '{fault}'}}")
    assert ended.exit_code == 1
    _, lasting = go_on_commands(ended.stderr)
    plugrad(*shlex.split(lasting)[1:], "--stop-timesteps=800", "--quiet", code=0)
    shares = [
        row["env_runners/info/faults"]
        for row in read_rows(run / "metrics.jsonl")
        if "env_runners/info/faults" in row
    ]
    assert 0 < np.mean(shares) < 1
    opened = Algorithm.from_checkpoint(
        run / "checkpoints" / "last", env=Faulty
    )  # it needs no word for the wrapper
    opened.stop()


def test_an_environment_that_always_fails_is_an_error_after_some_episodes() -> None:
    algorithm = (
        config(every=1).env_runners(env_wrappers=[[TruncateOnFault, {"max_in_a_row": 4}]]).build_algo()
    )
    with pytest.raises(RuntimeError, match="diverged") as caught:
        algorithm.sample(100)
    algorithm.stop()
    assert any("4 episodes in a row ended with a fault" in note for note in caught.value.__notes__)
