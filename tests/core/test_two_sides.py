"""Every door where rows of one space are read for another takes parts by key, or refuses them by path."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import two_sides
from click.testing import Result
from tiny_runs import plugrad, tiny_run
from two_sides import SPACES, Pair, changed, drawn, environment, partners

from plugrad import DEFAULT_MODULE_ID, AlgorithmConfig
from plugrad.action_rows import action_rows
from plugrad.algorithm import Algorithm
from plugrad.cli.metrics_files import read_rows
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import PlugradError, SpaceMismatchError
from plugrad.observations import flat_rows, model_space
from plugrad.offline import EpisodeData, load_episodes, save_episodes
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig

CASES = [
    pytest.param(name, how, which, other, id=f"{name}-{how}-{which.split('_')[0]}")
    for name in SPACES
    for how, which, other in partners(name)
]


def ppo(spaces: Pair, **environment_settings: Any) -> AlgorithmConfig:
    config = PPOConfig().framework("numpy").rl_module(model_config=MODEL).debugging(seed=0)
    config = config.training(train_batch_size=8, minibatch_size=None, num_epochs=1)
    return config.environment(environment(spaces), **environment_settings)


def evaluated(algorithm: Algorithm) -> Any:
    try:
        return np.asarray(algorithm.evaluate(2, seed=1)["episode_return_mean"])
    finally:
        algorithm.stop()


def saved(spaces: Pair, path: Path) -> str:
    algorithm = ppo(spaces).build_algo()
    try:
        return algorithm.save_to_path(path / "checkpoint")
    finally:
        algorithm.stop()


def recorded(spaces: Pair, path: Path) -> str:
    """Two episodes of the same observations and actions by key, whatever the order."""
    rng, episodes = np.random.default_rng(1), []
    for _ in range(2):
        observations = [drawn(spaces[0], rng) for _ in range(5)]
        actions = [drawn(spaces[1], rng) for _ in range(4)]
        rows = np.concatenate([flat_rows(spaces[0], each)[None] for each in observations])
        if isinstance(spaces[0], gym.spaces.Box):
            rows = np.stack(observations)
        acted = np.concatenate([action_rows(spaces[1], each) for each in map(in_batch, actions)])
        whole = {"rewards": np.ones(4), "terminated": True}
        rows = rows if rows.dtype == np.uint8 else rows.astype(np.float32)
        episodes.append(SingleAgentEpisode(observations=rows, actions=acted, **whole))
    save_episodes(path, episodes, observation_space=model_space(spaces[0]), action_space=spaces[1])
    return str(path)


def in_batch(action: Any) -> Any:
    """A batch of one action, in its structure."""
    if isinstance(action, dict):
        return {key: in_batch(each) for key, each in action.items()}
    if isinstance(action, tuple):
        return tuple(map(in_batch, action))
    return np.asarray(action)[None]


def columns_of(asked: Pair, *inputs: str, **learners: Any) -> Any:
    """What a learner reads of recordings, in the order of the spaces asked."""
    config = BCConfig().framework("numpy").rl_module(model_config=MODEL).learners(**learners)
    config = config.offline_data(input_=[*inputs]).environment(environment(asked))
    algorithm = config.training(train_batch_size=8, minibatch_size=None).debugging(seed=0).build_algo()
    try:
        (columns,) = algorithm._training._columns.values()
        return np.concatenate(
            [columns[name].reshape(len(columns[name]), -1) for name in ("obs", "actions")], 1
        )
    finally:
        algorithm.stop()


def from_checkpoint(asked: Pair, found: Pair, path: Path) -> Any:
    return evaluated(Algorithm.from_checkpoint(saved(asked, path), env=environment(found)))


def restore_from_path(asked: Pair, found: Pair, path: Path) -> Any:
    algorithm = ppo(found).build_algo()
    try:
        algorithm.restore_from_path(saved(asked, path))
    except BaseException:
        algorithm.stop()
        raise
    return evaluated(algorithm)


def environment_settings(asked: Pair, found: Pair, path: Path) -> Any:
    spaces = {"observation_space": model_space(asked[0]), "action_space": asked[1]}
    return evaluated(ppo(found, **spaces).build_algo())


def own_recording(asked: Pair, found: Pair, path: Path) -> Any:
    return columns_of(asked, recorded(found, path / "recording"))


def offline_connectors(asked: Pair, found: Pair, path: Path) -> Any:
    """What a user's own connector piece is given of a recording."""
    _seen.clear()
    columns = columns_of(asked, recorded(found, path / "recording"), learner_connector=one_piece)
    np.testing.assert_array_equal(np.concatenate(_seen), columns)
    return columns


_seen: list[Any] = []


def piece(*, learner: Any, batch: Any, episodes: Any) -> Any:
    for each in episodes:
        actions = each.actions.reshape(len(each), -1)
        _seen.append(np.concatenate([each.observations[:-1].reshape(len(each), -1), actions], 1))
    return batch


def one_piece(*spaces: Any) -> list[Any]:
    """A connector with a name: where a function has none, a config looks for one in all modules."""
    return [piece]


def two_inputs(asked: Pair, found: Pair, path: Path) -> Any:
    first = recorded(asked, path / "a")
    data = load_episodes([first, recorded(found, path / "b")])
    own = data.read_as(
        observation_space=data.observation_space, action_space=data.action_space, where="itself"
    )
    rows = [np.concatenate([each.observations.ravel(), each.actions.ravel()]) for each in own.episodes]
    assert isinstance(data, EpisodeData)
    return np.concatenate(rows)


def predict(asked: Pair, found: Pair, path: Path) -> Any:
    algorithm = ppo(asked).build_algo()
    try:
        observation = drawn(found[0], np.random.default_rng(3))
        action = algorithm.get_policy().predict(observation)[0]
        return np.asarray(two_sides._told(action))
    finally:
        algorithm.stop()


DOORS: dict[str, Callable[[Pair, Pair, Path], Any]] = {
    each.__name__: each
    for each in (
        from_checkpoint,
        restore_from_path,
        environment_settings,
        own_recording,
        offline_connectors,
        two_inputs,
    )
}


def trained(spaces: Pair, run: Path) -> Path:
    two_sides.Current = environment(spaces)
    tiny_run(
        run, "--env=two_sides:Current", f"--rl_module.model_config={WRITTEN_MODEL}", "--stop-timesteps=8"
    )
    return run


def evaluated_by_command(run: Path) -> Result:
    typed = ("--env=two_sides:Current", "--trust", "--json", "--episodes=2", "--seed=1")
    return plugrad("eval", run, *typed)


def resumed_by_command(run: Path) -> Result:
    return plugrad("train", "--resume", run, "--trust", "--quiet", "--stop-timesteps=20")


def return_of_command(command: str, run: Path) -> float:
    """What the episodes of a command returned, of which each part of an action has a share by its name."""
    done = COMMANDS[command](run)
    assert done.exit_code == 0, done.output
    if command == "eval --env":
        return float(json.loads(done.output)["episode_return_mean"])
    rows = read_rows(run / "metrics.jsonl")
    assert len(rows) == 3
    return rows[-1]["env_runners/episode_return_mean"]


COMMANDS = {"eval --env": evaluated_by_command, "train --resume": resumed_by_command}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run directory of each space's name, trained when it is first asked for."""
    return cache(lambda name: trained(SPACES[name], tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def own_returns(
    runs: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], float]:
    """`return_of_command` of a command and a space's name, where both sides are one."""

    @cache
    def returned(command: str, name: str) -> float:
        two_sides.Current = environment(SPACES[name])
        return return_of_command(command, copied(runs(name), tmp_path_factory.mktemp("own")))

    return returned


def copied(run: Path, folder: Path) -> Path:
    return Path(copytree(run, folder / "run"))


MODEL: dict[str, Any] = {"fcnet_hiddens": [2], "conv_filters": []}
WRITTEN_MODEL = "{fcnet_hiddens = [2], conv_filters = []}"
OBSERVED = [
    each
    for each in CASES
    if each.values[1] in ("permuted", "renamed", "resized")
    and "observation" in each.values[2]
    and each.values[0] != "choice"
]
"""What a policy can tell of a single observation: it sees no bounds, and no actions but its own."""


@pytest.mark.parametrize(("name", "how", "which", "found"), OBSERVED)
def test_a_policy_takes_parts_by_key_or_refuses_them_by_path(
    name: str, how: str, which: str, found: Pair, tmp_path: Path
) -> None:
    assert_right_or_refused(predict, "predict", name, how, which, found, tmp_path)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("name", "how", "which", "found"), CASES)
def test_parts_are_taken_by_key_or_refused_by_path(
    name: str, how: str, which: str, found: Pair, door: str, tmp_path: Path
) -> None:
    assert_right_or_refused(DOORS[door], door, name, how, which, found, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("name", "how", "which", "found"), CASES)
def test_commands_take_parts_by_key_or_refuse_them_by_path(
    name: str,
    how: str,
    which: str,
    found: Pair,
    command: str,
    tmp_path: Path,
    runs: Callable[[str], Path],
    own_returns: Callable[[str, str], float],
) -> None:
    run = copied(runs(name), tmp_path)
    if must_be_refused(command, how, which, found, SPACES[name]):
        two_sides.Current = environment(found)
        before = contents(run)
        done = COMMANDS[command](run)
        assert done.exit_code == 2, done.output
        assert re.search(PLACES, done.output), done.output
        assert contents(run) == before
    else:
        expected = own_returns(command, name)
        two_sides.Current = environment(found)
        assert return_of_command(command, run) == pytest.approx(expected, rel=0, abs=1e-6)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def assert_right_or_refused(
    enter: Callable[[Pair, Pair, Path], Any],
    door: str,
    name: str,
    how: str,
    which: str,
    found: Pair,
    path: Path,
) -> None:
    asked = SPACES[name]
    if must_be_refused(door, how, which, found, asked):
        with pytest.raises(PlugradError, match=PLACES):
            enter(asked, found, path / "partner")
    else:
        result = enter(asked, found, path / "partner")
        np.testing.assert_allclose(result, with_itself(enter, name), rtol=0, atol=1e-6)


@cache
def with_itself(enter: Callable[[Pair, Pair, Path], Any], name: str) -> Any:
    """What a door gives where both sides are one."""
    with TemporaryDirectory() as path:
        return enter(SPACES[name], SPACES[name], Path(path))


PLACES = r"speed|noise|other|camera|joints|\['[zy]'\]|\[[01]\]|grip|arm|the whole|another order|observation"
"""Where the spaces of these tests can differ."""


def must_be_refused(door: str, how: str, which: str, found: Pair, asked: Pair) -> bool:
    if how == "permuted":
        return door == "restore_from_path"
    if how != "rebounded" or which == "action_space":
        return True
    if isinstance(asked[0], gym.spaces.Discrete):  # rows are one-hot, whatever the first choice is
        return door in ("from_checkpoint", "restore_from_path", *COMMANDS)
    return asked[0].dtype == np.uint8


@pytest.mark.parametrize("which", ["observation_space", "action_space"])
@pytest.mark.parametrize("name", ["numbers", "dict", "image", "dict of actions"])
def test_a_partner_of_another_size_is_refused_with_the_name_of_its_environment(
    name: str, which: str, tmp_path: Path
) -> None:
    found = next(other for how, kind, other in partners(name) if (how, kind) == ("resized", which))
    env, path = environment(found), saved(SPACES[name], tmp_path)
    with pytest.raises(SpaceMismatchError, match=rf"environment 'two_sides:{env.__name__}' \(found\)"):
        Algorithm.from_checkpoint(path, env=env)
    algorithm = ppo(found).build_algo()
    before = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
    with pytest.raises(SpaceMismatchError, match=r"this config|environment 'two_sides:"):
        algorithm.restore_from_path(path, component="rl_module")
    after = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
    algorithm.stop()
    assert all((before[key] == after[key]).all() for key in before)


def test_masks_of_actions_in_another_order_are_refused_by_the_name_of_their_column(tmp_path: Path) -> None:
    actions = two_sides.keyed(grip=gym.spaces.Discrete(3), leg=gym.spaces.Discrete(2))
    other = changed(actions, "permuted")
    episode = SingleAgentEpisode(
        observations=np.zeros((3, 2), np.float32),
        actions=np.zeros((2, 2), np.int64),
        rewards=np.ones(2),
        terminated=True,
        extra_model_outputs={"action_mask": np.ones((2, 5), np.bool_)},
    )
    seen = SPACES["numbers"][0]
    save_episodes(tmp_path / "masked", [episode], observation_space=seen, action_space=other)
    assert columns_of((seen, other), str(tmp_path / "masked")).shape == (2, 4)
    with pytest.raises(PlugradError, match="'action_mask' depends on the order of the parts of the actions"):
        columns_of((seen, actions), str(tmp_path / "masked"))


def test_other_bounds_are_taken_where_that_is_said(tmp_path: Path) -> None:
    (found,) = [
        other
        for how, _, other in partners("torques")
        if how == "rebounded" and other[1] != SPACES["torques"][1]
    ]
    path = saved(SPACES["torques"], tmp_path)
    algorithm = Algorithm.from_checkpoint(path, env=environment(found), allow_other_bounds=True)
    try:
        assert algorithm.config.action_space == found[1]
        algorithm.train()
    finally:
        algorithm.stop()
    algorithm = ppo(found).build_algo()
    try:
        algorithm.restore_from_path(path, allow_other_bounds=True)
    finally:
        algorithm.stop()
    recording = recorded(SPACES["torques"], tmp_path / "recording")
    with pytest.raises(SpaceMismatchError, match="allow_other_bounds=True"):
        columns_of(found, recording)
    config = BCConfig().framework("numpy").offline_data(input_=recording).training(minibatch_size=None)
    config.environment(environment(found), allow_other_bounds=True).build_algo().stop()


WIDER: Pair = (SPACES["torques"][0], gym.spaces.Box(-2.0, 2.0, (2,), np.float32))
IN_BOUNDS = ".*Only bounds differ.*allow_other_bounds=True"


def test_the_setting_takes_other_bounds_at_every_door(tmp_path: Path) -> None:
    asked = {"observation_space": WIDER[0], "action_space": WIDER[1]}
    config = ppo(SPACES["torques"], **asked)
    with pytest.raises(SpaceMismatchError, match=rf"environment \S*Mirror{IN_BOUNDS}"):
        config.build_algo()
    allowed = config.environment(allow_other_bounds=True)
    algorithm = allowed.build_algo()
    assert algorithm.config.action_space == WIDER[1]
    algorithm.train()
    algorithm.restore_from_path(saved(SPACES["torques"], tmp_path))
    algorithm.stop()
    inputs = [recorded(each, tmp_path / str(n)) for n, each in enumerate((WIDER, SPACES["torques"]))]
    cloning = BCConfig().framework("numpy").offline_data(input_=inputs).training(minibatch_size=None)
    with pytest.raises(PlugradError, match=f"beside the recordings{IN_BOUNDS}"):
        cloning.environment(environment(WIDER)).build_algo()
    cloning.environment(environment(WIDER), allow_other_bounds=True).build_algo().stop()


def test_the_setting_of_a_checkpoint_does_not_speak_of_another_environment(tmp_path: Path) -> None:
    algorithm = ppo(SPACES["torques"], allow_other_bounds=True).build_algo()
    path = algorithm.save_to_path(tmp_path / "checkpoint")
    algorithm.stop()
    with pytest.raises(SpaceMismatchError, match="Only bounds differ"):
        Algorithm.from_checkpoint(path, env=environment(WIDER))


@pytest.mark.parametrize("command", ["eval", "record"])
def test_a_command_takes_other_bounds_where_that_is_typed(command: str, tmp_path: Path) -> None:
    run = trained(SPACES["torques"], tmp_path / "run")
    two_sides.Current = environment(WIDER)
    checkpoint = max(each for each in (run / "checkpoints").iterdir() if each.is_dir())
    for opened in (run, checkpoint):
        typed = [command, opened, "--env", "two_sides:Current", "--trust", "--episodes", 1]
        typed += ["-o", tmp_path / opened.name] if command == "record" else []
        assert "--allow-other-bounds" in plugrad(*typed, code=2).output
        plugrad(*typed, "--allow-other-bounds", code=0)
