"""A policy file acts as the learner of a framework that saved it, in numpy and on that framework."""

import re
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from hypothesis import given, settings
from hypothesis import strategies as st

import plugrad
from plugrad import Learner, RLModuleSpec
from plugrad.policy.policy_file import read_policy_file
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

ROWS = 40
OBSERVATIONS = st.one_of(
    st.integers(1, 4).map(lambda n: Box(-2.0, 2.0, (n,), np.float32)),
    st.integers(2, 5).map(lambda n: Discrete(n, start=n - 2)),
)
ACTIONS = st.one_of(
    st.integers(2, 4).map(lambda n: Discrete(n, start=3 - n)),
    st.integers(1, 3).map(lambda n: Box(-0.1, 0.2, (n,), np.float32)),
)


def make_learner(backend: str, observed: Space[Any], told: Space[Any], **model: Any) -> Learner:
    some = (
        PPOConfig().framework(backend, compile="none").rl_module(model_config={"fcnet_hiddens": [4], **model})
    )
    learner = (
        some.environment(observation_space=observed, action_space=told).debugging(seed=0).build_learner()
    )
    rng = np.random.default_rng(0)
    weights = learner.get_weights()["default_policy"]
    larger = {name: each + rng.normal(size=each.shape).astype(each.dtype) for name, each in weights.items()}
    learner.set_weights({"default_policy": larger})
    return learner


def rows_of(space: Space[Any]) -> Any:
    space.seed(0)
    return np.stack([space.sample() for _ in range(ROWS)])


@settings(max_examples=4)
@given(observed=OBSERVATIONS, told=ACTIONS)
def test_a_file_acts_as_the_learner_to_the_bit_where_both_act_in_numpy(
    backend: str, tmp_path_factory: pytest.TempPathFactory, observed: Space[Any], told: Space[Any]
) -> None:
    policy, rows = make_learner(backend, observed, told).get_policy(), rows_of(observed)
    path = policy.save(tmp_path_factory.mktemp("any") / "policy")
    expected = policy.predict(rows)[0]
    for loaded in (plugrad.load_policy(path), plugrad.load_policy(path, backend=backend)):
        np.testing.assert_array_equal(loaded.predict(rows)[0], expected)
        assert told.contains(loaded.predict(rows[0])[0])


def test_a_file_with_convolutions_acts_alike_on_every_engine(backend: str, tmp_path: Path) -> None:
    observed, told = Box(0, 255, (20, 20, 1), np.uint8), Box(-9.0, 9.0, (2,), np.float32)
    policy = make_learner(backend, observed, told, conv_filters=[[2, 6, 4]]).get_policy()
    rows, path = rows_of(observed), policy.save(tmp_path / "policy")
    expected = policy.predict(rows)[0]
    assert np.ptp(expected) > 0.1
    for loaded in (plugrad.load_policy(path), plugrad.load_policy(path, backend="numpy")):
        found = loaded.predict(rows)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_the_file_of_a_users_own_module_is_opened_with_that_module(backend: str, tmp_path: Path) -> None:
    own_model = f"model_classes:{backend.capitalize()}Net"
    observed, told = Box(-1.0, 1.0, (3,), np.float32), Discrete(2)
    some = (
        PPOConfig()
        .framework(backend, compile="none")
        .rl_module(rl_module_spec=RLModuleSpec(module_class=own_model))
    )
    learner = (
        some.environment(observation_space=observed, action_space=told).debugging(seed=0).build_learner()
    )
    policy, rows = learner.get_policy(), rows_of(observed)
    policy.save(tmp_path / "policy")
    with pytest.raises(plugrad.errors.ConfigError, match=r"your own class model_classes:\w*Net, .*module="):
        plugrad.load_policy(tmp_path / "policy")
    other = some.debugging(seed=1).environment(observation_space=observed, action_space=told).build_learner()
    module, weights = other.module["default_policy"], learner.module["default_policy"].get_state()
    module.set_state({name: each + 1.0 for name, each in weights.items()})
    loaded = plugrad.load_policy(tmp_path / "policy", module=module)
    np.testing.assert_equal(module.get_state(), weights)
    np.testing.assert_array_equal(loaded.predict(rows)[0], policy.predict(rows)[0])


SEEN = Dict({"arm": Box(-1.0, 1.0, (2,), np.float32), "cost": Box(-1.0, 1.0, (1,), np.float32)})
MEMORY = {"use_gru": True, "gru_cell_size": 3}


@pytest.mark.parametrize(
    ("config", "observed", "told", "model"),
    [
        (PPOConfig, SEEN["arm"], Discrete(2), {"use_lstm": True, "lstm_cell_size": 3}),
        (PPOConfig, SEEN, Box(-1.0, 1.0, (2,), np.float32), {**MEMORY, "critic_only": ["cost"]}),
        (SACConfig, SEEN, Box(-1.0, 1.0, (2,), np.float32), {**MEMORY, "critic_only": ["cost"]}),
        (SACConfig, SEEN["arm"], Discrete(3), MEMORY),
    ],
    ids=["ppo", "ppo, critics see more", "sac, critics see more", "sac discrete"],
)
def test_what_a_recurrent_policy_leaves_behind_has_nothing_of_its_critics(
    backend: str, config: Any, observed: Any, told: Any, model: Any, tmp_path: Path
) -> None:
    onnx = needs.extra("onnx")
    some = (
        config().framework(backend, compile="none").environment(observation_space=observed, action_space=told)
    )
    learner = some.rl_module(model_config={"fcnet_hiddens": [4], **model}).debugging(seed=0).build_learner()
    policy = learner.get_policy()
    path, graph = policy.save(tmp_path / "policy"), policy.export_onnx(tmp_path / "policy.onnx")
    names = [name for name in read_policy_file(path).arrays if name.startswith("weights/")]
    assert {name.split(".")[0] for name in names} == {"weights/pi"}
    written = onnx.load(graph).graph
    of_graph = [each.name for each in (*written.initializer, *written.input, *written.output)]
    assert [name for name in of_graph if re.search("vf|qf|alpha|cost", name)] == []

    loaded, state = plugrad.load_policy(path), None
    policy.observation_space.seed(0)
    for _ in range(3):  # what one of them remembers, the other goes on with
        seen = policy.observation_space.sample()
        action, after = policy.predict(seen, state)
        found, state = loaded.predict(seen, state)
        np.testing.assert_allclose(found, action, atol=1e-6)
        assert {*state} == {*after} == ({"pi_h", "pi_c"} if "use_lstm" in model else {"pi_h"})
