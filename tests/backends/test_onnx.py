"""Policies as ONNX models: a runtime gives the actions of `predict`."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from click.testing import CliRunner
from exported_policies import VECTOR, assert_same, exported, fed, policy, runtime, sample
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli import main
from plugrad.errors import CheckpointError, ConfigError
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_offline.cql import CQLConfig
from plugrad_offline.iql import IQLConfig
from plugrad_offline.marwil import MARWILConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

onnx = needs.extra("onnx")


N = 1000
ROOM = Dict(
    {
        "where": Box(-1.0, 1.0, (2,), np.float64),
        "room": Discrete(3, start=1),
        "seen": Tuple((MultiBinary(2), MultiDiscrete([2, 3], start=[0, 4]))),
    }
)
IMAGE = Box(0, 255, (20, 24, 3), np.uint8)
FRAMES = Box(0, 255, (2, 24, 20), np.uint8)
OFFLINE = (BCConfig(), MARWILConfig(), CQLConfig(), IQLConfig())

CASES: dict[str, Any] = {
    "mlp": {},
    "relu": {"fcnet_activation": "relu", "vf_share_layers": True},
    "layer norm": {"layer_norm": True},
    "start": {"actions": Discrete(3, start=-1)},
    "multidiscrete": {"actions": MultiDiscrete([2, 3], start=[1, 7])},
    "clipped": {"actions": Box(-0.1, np.asarray([0.2, 3.0], np.float32))},
    "float64 actions": {"actions": Box(-0.1, 0.1, (1,), np.float64)},
    "std of the policy": {"actions": Box(-0.1, 0.1, (1,)), "free_log_std": False},
    "whole numbers": {"actions": Box(-1, 2, (2,), np.int16)},
    "n-d actions": {"actions": Box(-0.1, 0.1, (2, 1, 2))},
    "n-d multidiscrete": {"actions": MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, 2]])},
    "bits": {"actions": MultiBinary((2, 2))},
    "dict of actions": {
        "actions": Dict({"arm": Tuple((Box(-0.1, 0.1, (1, 2)), Discrete(3, start=2))), "obs": MultiBinary(2)})
    },
    "tuple of choices": {"actions": Tuple((Discrete(2), MultiDiscrete([2, 3])))},
    "float64": {"observations": Box(-1.0, 1.0, (2,), np.float64)},
    "small dtypes": {
        "observations": Dict(
            {
                "choice": MultiDiscrete([2, 3], np.int8, start=[1, 0]),
                "half": Box(-1.0, 1.0, (2,), np.float16),
                "whole": Box(-9, 9, (2,), np.int16),
            }
        ),
        "actions": Box(-0.1, 0.1, (2,), np.float16),
    },
    "bytes": {"observations": Box(0, 9, (2,), np.uint8)},
    "matrix": {"observations": Box(-1.0, 1.0, (2, 3))},
    "discrete": {"observations": Discrete(5, start=2)},
    "multibinary": {"observations": MultiBinary((2, 3))},
    "rows and columns": {"observations": MultiDiscrete([[2, 3], [4, 2]])},
    "dict": {"observations": ROOM},
    "dict, normalised": {
        "observations": ROOM,
        "config": PPOConfig().env_runners(normalize_observations=True),
    },
    "normalised": {"config": PPOConfig().env_runners(normalize_observations=True)},
    "dict with an image": {"observations": Dict({"camera": FRAMES, "speed": VECTOR, "room": Discrete(3)})},
    "without what critics read": {"observations": ROOM, "critic_only": ["room"]},
    "without what critics read, normalised": {
        "observations": ROOM,
        "config": PPOConfig().env_runners(normalize_observations=True),
        "critic_only": ["where"],
    },
    "tuple of bytes": {"observations": Tuple((IMAGE, Box(0, 9, (2,), np.uint8)))},
    "last frames": {"config": PPOConfig().env_runners(frame_stack=3)},
    "frames of images": {"observations": IMAGE, "config": PPOConfig().env_runners(frame_stack=2)},
    "greyscale": {"observations": Box(0, 255, (20, 24), np.uint8)},
    "hwc": {"observations": IMAGE},
    "chw": {"observations": FRAMES},
    "dqn": {"config": DQNConfig()},
    "dueling": {"config": DQNConfig().training(dueling=True)},
    "sac": {
        "config": SACConfig(),
        "actions": Box(np.asarray([-0.1, -3.0], "f4"), np.asarray([0.2, 3.0], "f4")),
    },
    "discrete sac": {"config": SACConfig()},
    "td3": {"config": TD3Config(), "actions": Box(-2.0, 2.0, (2,))},
}


@pytest.mark.parametrize("case", CASES)
def test_a_runtime_gives_the_actions_of_predict(case: str, tmp_path: Path) -> None:
    trained = policy(**CASES[case])
    session = exported(trained, tmp_path)
    observations = sample(trained.observation_space, N)
    assert_same(session.run(None, fed(session, observations)), trained.predict(observations)[0])


@pytest.mark.parametrize("case", ["mlp", "dict", "dict, normalised", "without what critics read", "hwc"])
def test_a_guard_says_which_observations_predict_would_refuse(case: str, tmp_path: Path) -> None:
    trained = policy(**CASES[case])
    trained.export_onnx(tmp_path / "policy.onnx", guard=True)
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    given = fed(session, sample(trained.observation_space, 12))
    wrong = {}
    for row, (name, bad) in enumerate([(name, bad) for name in given for bad in (np.nan, -np.inf)]):
        if given[name].dtype.kind == "f":
            given[name] = given[name].copy()
            given[name][row].flat[-1] = bad
            wrong[row] = True
    (finite,) = session.run(["observation_is_finite"], given)
    assert finite.dtype == np.bool_
    assert finite.tolist() == [row not in wrong for row in range(12)]
    assert bool(wrong) == (case != "hwc")


def test_a_model_has_no_input_for_what_only_critics_read(tmp_path: Path) -> None:
    session = exported(policy(ROOM, critic_only=["where"]), tmp_path)
    assert [each.name for each in session.get_inputs()] == ["room", "seen.0", "seen.1"]


@pytest.mark.parametrize(
    "settings",
    [
        {"use_lstm": True, "lstm_cell_size": 5},
        {"use_lstm": True, "lstm_cell_size": 5, "vf_share_layers": True},
        {"use_gru": True, "gru_cell_size": 5, "layer_norm": True},
    ],
    ids=["lstm", "shared lstm", "gru"],
)
def test_a_recurrent_state_goes_in_and_comes_out(settings: dict[str, Any], tmp_path: Path) -> None:
    trained = policy(**settings)
    session = exported(trained, tmp_path)
    names = [each.name.removeprefix("state_in.") for each in session.get_inputs()[1:]]
    state, fed_back = None, {f"state_in.{name}": np.zeros((7, 5), np.float32) for name in names}
    for observations in sample(trained.observation_space, 20 * 7).reshape(20, 7, 3):
        actions, state = trained.predict(observations, state)
        found, *after = session.run(None, {"obs": observations, **fed_back})
        assert state is not None
        np.testing.assert_array_equal(found, actions)
        for name, value in zip(names, after, strict=True):
            np.testing.assert_allclose(value, state[name], rtol=0, atol=1e-5)
        fed_back = dict(zip(fed_back, after, strict=True))


def test_a_state_goes_with_images_masks_and_actions_of_parts(tmp_path: Path) -> None:
    room = Dict({"camera": FRAMES, "speed": VECTOR, "room": Discrete(3)})
    actions = Dict({"arm": Discrete(2, start=1), "legs": MultiDiscrete([2, 3])})
    trained = policy(room, actions, use_lstm=True, lstm_cell_size=4)
    session = exported(trained, tmp_path, action_mask=True)
    outputs = [each.name for each in session.get_outputs()]
    after = {name: np.zeros((5, 4), np.float32) for name in outputs if name.startswith("state_out.")}
    state = None
    for seed in range(4):
        masks = np.random.default_rng(seed).random((5, 7)) < 0.5
        masks[:, [0, 2, 4]] = True
        before = {name.replace("state_out", "state_in"): value for name, value in after.items()}
        observations = sample(room, 5)
        found = session.run(None, fed(session, observations, action_mask=masks, **before))
        expected, state = trained.predict(observations, state, action_masks=masks)
        np.testing.assert_array_equal(found[0], expected["arm"])
        np.testing.assert_array_equal(found[1], expected["legs"])
        after = dict(zip(outputs[2:], found[2:], strict=True))
    assert state is not None
    for name, value in state.items():
        np.testing.assert_allclose(after[f"state_out.{name}"], value, rtol=0, atol=1e-5)


def test_what_frameworks_train_is_exported_alike(backend: str, tmp_path: Path) -> None:
    trained = policy(FRAMES, backend=backend)
    observations = sample(FRAMES, 50)
    session = exported(trained, tmp_path)
    assert_same(session.run(None, {"obs": observations}), trained.predict(observations)[0])


@pytest.mark.parametrize(
    "config", [BCConfig(), MARWILConfig(), CQLConfig(), IQLConfig()], ids=lambda each: type(each).__name__
)
@pytest.mark.parametrize("space", [Discrete(3), VECTOR, IMAGE], ids=["discrete", "vector", "image"])
def test_a_learner_of_recorded_episodes_exports_its_policy(
    config: AlgorithmConfig, space: gym.Space[Any], tmp_path: Path
) -> None:
    actions = Box(np.asarray([-0.1, -3.0], "f4"), np.asarray([0.2, 3.0], "f4"))
    learner = config.framework("numpy").build_learner(spaces={"default_policy": (space, actions)})
    trained = learner.get_policy()
    observations = sample(space, 50)
    session = exported(trained, tmp_path)
    assert_same(session.run(None, {"obs": observations}), trained.predict(observations)[0])


def test_a_batch_has_any_size(tmp_path: Path) -> None:
    trained = policy(ROOM, Box(-1.0, 1.0, (2,)))
    session = exported(trained, tmp_path)
    observations = sample(ROOM, 9)
    whole = session.run(None, fed(session, observations))[0]
    for number in (0, 1, 9):
        part = {name: value[:number] for name, value in fed(session, observations).items()}
        np.testing.assert_allclose(session.run(None, part)[0], whole[:number], atol=1e-6)


def test_inputs_outputs_and_metadata_say_what_the_model_takes(tmp_path: Path) -> None:
    trained = policy(ROOM, Discrete(3, start=5))
    model = onnx.load(trained.export_onnx(tmp_path / "policy.onnx"))
    assert [each.name for each in model.graph.input] == ["room", "seen.0", "seen.1", "where"]
    assert [each.name for each in model.graph.output] == ["action"]
    said = {each.key: each.value for each in model.metadata_props}
    assert said["observation_space"] == str(ROOM)
    assert said["action_space"] == "Discrete(3, start=5)"
    assert said.keys() == {"plugrad_version", "observation_space", "action_space"}
    assert not any(each.name.startswith("vf.") for each in model.graph.initializer)  # acting needs no values


def test_a_file_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot write a policy to .*policy\.onnx: Not a directory"):
        policy().export_onnx(tmp_path / "file" / "policy.onnx")


@pytest.mark.parametrize(
    ("config", "actions"),
    [
        (PPOConfig(), MultiDiscrete([3, 4], start=[0, 2])),
        (DQNConfig(), Discrete(7)),
        (SACConfig(), Discrete(7)),
    ],
    ids=["ppo", "dqn", "sac"],
)
def test_masks_go_in(config: AlgorithmConfig, actions: gym.Space[Any], tmp_path: Path) -> None:
    trained = policy(actions=actions, config=config)
    session = exported(trained, tmp_path, action_mask=True)
    masks = np.random.default_rng(0).random((N, 7)) < 0.5
    masks[:, [0, 3]] = True  # nothing is left of what forbids all
    observations = sample(VECTOR, N)
    expected = trained.predict(observations, action_masks=masks)[0]
    assert_same(session.run(None, {"obs": observations, "action_mask": masks}), expected)
    assert (expected != trained.predict(observations)[0]).any()


def test_a_box_has_no_masks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an action mask needs discrete actions"):
        policy(actions=Box(-1.0, 1.0, (2,))).export_onnx(tmp_path / "policy.onnx", action_mask=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("space", "inputs"),
    [
        (Tuple((VECTOR, Discrete(2))), ["obs.0", "obs.1"]),
        (Dict({"action": Discrete(4), "state_in": Dict({"h": VECTOR})}), ["obs.action", "obs.state_in.h"]),
    ],
)
def test_inputs_and_outputs_have_different_names(
    space: gym.Space[Any], inputs: list[str], tmp_path: Path
) -> None:
    session = exported(policy(space), tmp_path)
    assert [each.name for each in session.get_inputs()] == inputs
    assert [each.name for each in session.get_outputs()] == ["action"]


TWICE = Dict([("a.b", Discrete(2)), ("a", Dict({"b": Discrete(3)}))])


@pytest.mark.parametrize(
    ("spaces", "name"), [({"observations": TWICE}, "a.b"), ({"actions": TWICE}, "action.a.b")]
)
def test_two_arrays_of_one_name_are_refused(spaces: dict[str, Any], name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"one .*put of each name, and '{name}' would be two"):
        policy(**spaces).export_onnx(tmp_path / "policy.onnx")
    assert not any(tmp_path.iterdir())


def test_the_command_export_writes_what_the_name_or_the_option_says(tmp_path: Path) -> None:
    run = tmp_path / "policy.safetensors"
    trained = policy()
    trained.save(run)
    named, asked = tmp_path / "policy.onnx", tmp_path / "model"
    for arguments in ([run, "-o", named], [run, "-o", asked, "--format", "onnx"]):
        done = CliRunner().invoke(main, ["export", *map(str, arguments)])
        assert (done.exit_code, done.output) == (0, f"{arguments[2]}\n")
    assert named.read_bytes() == asked.read_bytes()
    observations = sample(VECTOR, N)
    session = runtime.InferenceSession(named)
    assert_same(session.run(None, {"obs": observations}), trained.predict(observations)[0])
    masked = tmp_path / "masked.onnx"
    CliRunner().invoke(main, ["export", str(run), "-o", str(masked), "--action-mask"], catch_exceptions=False)
    assert [each.name for each in runtime.InferenceSession(masked).get_inputs()] == ["obs", "action_mask"]
    refused = CliRunner().invoke(main, ["export", str(run), "-o", str(tmp_path / "p"), "--action-mask"])
    assert "--action-mask is of ONNX models: add --format onnx" in refused.output
