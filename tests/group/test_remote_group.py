"""What RLlib's own tests ask of a LearnerGroup, asked of remote learners: state, modules, disk, async updates."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from groups import Groups, group_config
from learning import digest, largest_difference, ppo_batch

from plugrad import (
    ALL_MODULES,
    DEFAULT_MODULE_ID,
    Learner,
    LearnerGroup,
    MultiAgentEpisode,
    RLModuleSpec,
    SingleAgentEpisode,
)
from plugrad.checkpoint import load_checkpoint, writer_lock
from plugrad.errors import CheckpointError, CheckpointLockedError
from plugrad.learner.state.state import digest as digest_of

P = DEFAULT_MODULE_ID
SPEC = RLModuleSpec(model_config={"fcnet_hiddens": [8]})


def test_modules_come_and_go_on_all(pair: LearnerGroup) -> None:
    assert (pair.is_remote, pair.is_local, len(pair)) == (True, False, 2)
    pair.add_module(module_id="p1", module_spec=SPEC)
    for results in pair.update({P: ppo_batch(32), "p1": ppo_batch(32, seed=1)}):
        assert set(results) == {P, "p1", ALL_MODULES}
    assert set(pair.config.rl_module_spec.rl_module_specs) == {P, "p1"}
    assert set(pair.get_weights(["p1"])) == {"p1"}
    pair.remove_module("p1")
    assert all(set(results) == {P, ALL_MODULES} for results in pair.update(ppo_batch(32)))
    assert len(set(pair.foreach_learner(digest_of))) == 1


@pytest.mark.smoke
def test_checkpoints_go_from_groups_to_learners_and_back(pair: LearnerGroup, tmp_path: Path) -> None:
    pair.update(ppo_batch(64))
    pair.save_to_path(tmp_path / "group")
    learner = Learner.from_checkpoint(tmp_path / "group")
    assert not learner.distributed
    assert digest(learner.get_state()) == digest(pair.get_state()["learner"])
    (with_group, _), alone = pair.update(ppo_batch(64, seed=1)), learner.update(ppo_batch(64, seed=1))
    assert with_group[P]["total_loss"] == pytest.approx(alone[P]["total_loss"], abs=1e-6)
    learner.save_to_path(tmp_path / "learner")
    pair.restore_from_path(tmp_path / "learner")
    assert digest(learner.get_state()) == digest(pair.get_state()["learner"])
    pair.restore_from_path(tmp_path / "group")
    assert pair.get_state("counters")["learner"]["counters"]["weights_seq_no"] == 1


def test_a_save_that_fails_in_an_actor_is_the_callers_error_and_training_goes_on(
    pair: LearnerGroup, tmp_path: Path
) -> None:
    pair.save_to_path(tmp_path / "c")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(CheckpointError, match=f"{tmp_path}/file: Not a directory"):
        pair.save_to_path(tmp_path / "file")
    with (
        writer_lock(tmp_path / "c"),
        pytest.raises(CheckpointLockedError, match=f"{tmp_path}/c is being written by process {os.getpid()}"),
    ):
        pair.save_to_path(tmp_path / "c")
    pair.update(ppo_batch(64))
    assert pair.get_state("counters")["learner"]["counters"]["weights_seq_no"] == 1
    assert "weights_seq_no" not in Learner.from_checkpoint(tmp_path / "c").counters


def make_cart() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def test_a_group_saves_what_a_script_defines(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_cart, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "make_cart", make_cart, raising=False)
    config = group_config("torch").environment(make_cart, observation_space=None, action_space=None)
    for num_learners in (0, 1):
        with config.learners(num_learners=num_learners).build_learner_group() as group:
            group.save_to_path(tmp_path / f"{num_learners}")
            state = group.get_state()["learner"]
        found = load_checkpoint(tmp_path / f"{num_learners}")
        assert found.metadata["config"]["env"] == "__main__:make_cart"
        assert digest(Learner.from_checkpoint(found.path).get_state()) == digest(state)


def test_episodes_are_connected_once_and_shared(pair: LearnerGroup, backend: str) -> None:
    one = group_config(backend).build_learner()
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(50, 3)).astype(np.float32)
    columns = one.compute_actions(observations[:-1])
    one.set_state(pair.get_state()["learner"])
    episodes = [
        SingleAgentEpisode(
            observations=observations[a : b + 1],
            actions=columns.pop("actions")[a:b] if b == 49 else columns["actions"][a:b],
            rewards=rng.normal(size=b - a),
            terminated=b == 30,
            extra_model_outputs={name: values[a:b] for name, values in columns.items() if name != "actions"},
        )
        for a, b in ((0, 30), (30, 49))
    ]
    one.update(episodes=episodes)
    results = pair.update(episodes=episodes)
    assert [each[ALL_MODULES]["num_env_steps_trained"] for each in results] == [49, 49]
    assert largest_difference(pair.get_weights(), one.get_weights()) < 1e-6
    together = MultiAgentEpisode(agent_episodes=dict(zip("ab", episodes, strict=True)))
    results = pair.update(episodes=[together])
    assert [each[ALL_MODULES]["num_env_steps_trained"] for each in results] == [30, 30]


def test_the_loop_of_the_guide_to_async_updates(pair: LearnerGroup) -> None:
    pids = pair.foreach_learner(lambda learner: __import__("os").getpid())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    results = pair.update(ppo_batch(64), async_update=True)  # returns while no learner computes
    assert results == []
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    losses = []
    while len(losses) < 40:
        for result in pair.update(ppo_batch(64), async_update=True):
            losses.append(result[P]["total_loss"])
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    weights = pair.get_weights()  # after everything that was submitted before
    stats = pair.get_stats()
    assert stats["in_flight"] == 0
    assert stats["submitted"] == stats["applied"]
    assert digest(weights) == digest(pair.get_weights())


@pytest.mark.parametrize(("number", "kills"), [(150, 2), pytest.param(2000, 5, marks=pytest.mark.long)])
def test_the_counters_add_up_over_delays_and_kills(groups: Groups, number: int, kills: int) -> None:
    group = groups.get("torch", 2)
    before, rng = group.get_stats(), np.random.default_rng(0)
    doomed = set(rng.choice(number, kills, replace=False))
    futures = []
    for n in range(number):
        if n in doomed:
            os.kill(rng.choice(group.foreach_learner(lambda learner: os.getpid())), signal.SIGKILL)
        futures.append(group.submit(ppo_batch(16), num_epochs=1))
        time.sleep(rng.exponential(0.002))
        stats = group.get_stats()
        assert stats["submitted"] == sum(
            stats[each] for each in ("applied", "failed", "dropped", "in_flight")
        )
        assert stats["in_flight"] <= 3
    seen = [future.result(60)[0][P]["weights_seq_no"] for future in futures]
    assert seen == list(range(1, number + 1))
    assert group.get_stats()["applied"] - before["applied"] == number


def test_an_algorithm_trains_on_remote_learners_and_resumes(cluster: None, tmp_path: Path) -> None:
    from plugrad_ppo import PPOConfig

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .training(train_batch_size=256, minibatch_size=64, num_epochs=2)
        .debugging(seed=3)
        .learners(num_learners=2, num_cpus_per_learner=0.5)
    )
    remote, local = config.build_algo(), config.learners(num_learners=0).build_algo()
    found, expected = remote.train(), local.train()
    assert found["learners"][f"{P}/total_loss"] == pytest.approx(
        expected["learners"][f"{P}/total_loss"], abs=1e-5
    )
    assert found["num_env_steps_sampled_lifetime"] == 256
    remote.save_to_path(tmp_path)
    local.restore_from_path(tmp_path)
    after = [algorithm.train()["learners"][f"{P}/total_loss"] for algorithm in (remote, local)]
    assert after[0] == pytest.approx(after[1], abs=1e-5)
    remote.stop()
    remote.stop()
    local.stop()


@pytest.mark.parametrize("what", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_remote_env_runners_sample_with_the_present_weights_and_survive_one(
    cluster: None, tmp_path: Path, what: int
) -> None:
    from plugrad_ppo import PPOConfig

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .training(train_batch_size=256, minibatch_size=64, num_epochs=2)
        .debugging(seed=3)
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4, normalize_observations=True)
        .learners(timeout_s=5, build_timeout_s=3600)  # who waits for a dead one so long hangs
    )
    algorithm = config.build_algo()
    for _ in range(2):
        results = algorithm.train()
        assert results["env_runners/num_env_steps_sampled"] == 256
    episodes = algorithm.sample()
    assert len({episode.id_ for episode in episodes if episode.is_done}) == sum(e.is_done for e in episodes)
    for episode in episodes:  # recorded by the policy as it is now
        inputs = algorithm.learner_group.foreach_learner(_inputs_of, episode.observations[:-1])[0]
        recorded = episode.extra_model_outputs["action_dist_inputs"]
        np.testing.assert_allclose(recorded, inputs, atol=1e-5)
    assert algorithm.env_runner.normalizer.count > 700
    algorithm.save_to_path(tmp_path)
    first = algorithm.train()
    algorithm.restore_from_path(tmp_path)
    again = algorithm.train()
    assert again["learners"][f"{P}/total_loss"] == first["learners"][f"{P}/total_loss"]
    os.kill(algorithm.env_runner._actors[1].location[1], what)
    assert algorithm.train()["env_runners/num_env_steps_sampled"] == 256
    algorithm.stop()


def _inputs_of(learner: Learner, observations: Any) -> Any:
    return learner.compute_actions(observations, explore=False)["action_dist_inputs"]


STARTS_RAY = """
import os, stat, logging
from pathlib import Path
from typing import Any
logging.basicConfig(level=logging.INFO)
from learning import ppo_batch, ppo_config
config = ppo_config("torch").learners(num_learners=1)
with config.build_learner_group() as group:
    group.update(ppo_batch(16))
    import ray
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert not ray._private.worker.global_worker.node.webui_url
    assert group.foreach_learner(lambda learner: os.nice(0)) == [os.nice(0)]
    print("address", ray.get_runtime_context().gcs_address)
    token = Path.home() / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600, oct(token.stat().st_mode)
    if STRANGER:
        import subprocess, sys
        code = "import ray; ray.init(address=%r, logging_level='ERROR')" % ray.get_runtime_context().gcs_address
        strange = {**os.environ, "HOME": os.environ["STRANGE_HOME"], "RAY_AUTH_MODE": "disabled"}
        strange["RAY_NUM_REDIS_GET_RETRIES"] = "2"  # not 20, each a second
        found = subprocess.run([sys.executable, "-c", code], env=strange, capture_output=True, timeout=100)
        assert found.returncode != 0, found
"""


def test_a_ray_of_our_own_is_closed_to_others(tmp_path: Path) -> None:
    for folder in ("home", "stranger"):
        (tmp_path / folder).mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path / "home"), "STRANGE_HOME": str(tmp_path / "stranger")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", STARTS_RAY.replace("STRANGER", "True")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "authentication: token, no dashboard" in done.stderr


def test_evaluation_repeats_no_episode_of_remote_env_runners(cluster: None) -> None:
    from plugrad_ppo import PPOConfig

    config = PPOConfig().environment("CartPole-v1").framework("numpy").debugging(seed=3)
    config = config.rl_module(model_config={"fcnet_hiddens": [1]})
    algorithm = config.env_runners(num_env_runners=1, num_envs_per_env_runner=4).build_algo()
    played = {row.tobytes() for episode in algorithm.sample(100) for row in episode.observations}
    algorithm.evaluate(num_episodes=4)
    begun = [episode.observations[0].tobytes() for episode in algorithm.record(8).episodes]
    evaluator = algorithm._evaluator
    evaluator.reset(algorithm._env_seed("evaluation", None))
    begun += [episode.observations[0].tobytes() for episode in evaluator.sample(1)]
    algorithm.stop()
    assert len(begun) == 12
    assert not played & set(begun)


def test_remote_env_runners_act_at_random_too(cluster: None) -> None:
    from plugrad_ppo import PPOConfig

    config = PPOConfig().environment("Pendulum-v1").framework("numpy").debugging(seed=3)
    config = config.rl_module(model_config={"fcnet_hiddens": [1]})
    algorithm = config.env_runners(num_env_runners=2, num_envs_per_env_runner=2).build_algo()
    chunks = algorithm.sample(200, random_actions=True)
    algorithm.stop()
    actions = np.stack([chunk.actions[:, 0] for chunk in chunks])
    assert actions.shape == (4, 200)
    assert np.abs(actions).max() <= 2.0
    np.testing.assert_allclose(actions.std(axis=1), 4 / np.sqrt(12), rtol=0.15)
    assert np.abs(np.corrcoef(actions) - np.eye(4)).max() < 0.3
    assert all(chunk.extra_model_outputs == {} for chunk in chunks)
