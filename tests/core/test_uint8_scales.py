"""uint8 numbers are divided by the bound of their own part, wherever it stands; older checkpoints keep their rule."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from plugrad import Learner, load_policy
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import RestoreMismatchError
from plugrad.policy.policy_file import read_policy_file
from plugrad_ppo import PPOConfig


def u(bound: int, number: int) -> Box:
    return Box(0, bound, (number,), np.uint8)


MIXED = Dict({"x": u(255, 1), "y": u(7, 2), "z": Box(-1.0, 1.0, (1,))})


def learner_of(space: Any, **model: Any) -> Learner:
    some = PPOConfig().framework("numpy").environment(observation_space=space, action_space=Discrete(2))
    settings = {"fcnet_hiddens": [], **model}
    return some.rl_module(model_config=settings).debugging(seed=0).build_learner()


@pytest.mark.parametrize(
    ("space", "observation", "read"),
    [
        (u(7, 2), np.array([[7, 0]], np.uint8), [1, 0]),
        (Dict({"x": u(255, 1), "y": u(7, 2)}), {"x": [[0]], "y": [[7, 0]]}, [0, 1, 0]),
        (Dict({"y": u(7, 2), "z": Discrete(2)}), {"y": [[7, 0]], "z": [0]}, [1, 0, 1, 0]),
        (Dict({"y": u(7, 1), "z": Discrete(2, dtype=np.uint8)}), {"y": [[7]], "z": [1]}, [1, 0, 1]),
        (MIXED, {"x": [[0]], "y": [[7, 0]], "z": [[0.0]]}, [0, 1, 0, 0]),
        (MIXED, {"x": [[255]], "y": [[0, 0]], "z": [[0.0]]}, [1, 0, 0, 0]),
        (MIXED, {"x": [[0]], "y": [[0, 0]], "z": [[0.5]]}, [0, 0, 0, 0.5]),
        (Tuple([u(7, 2), Dict({"a": u(9, 1)})]), ([[0, 0]], {"a": [[9]]}), [0, 0, 1]),
    ],
)
def test_uint8_numbers_are_divided_by_the_bound_of_their_own_part(space, observation, read):
    learner = learner_of(space)
    weights = learner.get_weights()["default_policy"]
    found = learner.compute_actions(observation, explore=False)["action_dist_inputs"][0]
    np.testing.assert_allclose(
        found, np.array(read, np.float32) @ weights["pi.out.weight"] + weights["pi.out.bias"], rtol=1e-4
    )


SEEN = {"x": np.array([200], np.uint8), "y": np.array([3, 5], np.uint8), "z": np.array([0.5], np.float32)}


def logits(learner: Learner) -> list[float]:
    batch = {key: each[None] for key, each in SEEN.items()}
    return learner.compute_actions(batch, explore=False)["action_dist_inputs"].tolist()


def as_older(source: Any, target: Any) -> None:
    """The checkpoint as versions wrote it that had no rule."""
    found = load_checkpoint(source)
    metadata = {key: each for key, each in found.metadata.items() if key != "uint8_scale"}
    save_checkpoint(target, found.state, metadata=metadata)


def test_a_checkpoint_without_a_rule_opens_with_the_older_one(tmp_path):
    older, new = learner_of(MIXED, uint8_scale="row"), learner_of(MIXED)
    assert logits(older) != logits(new)
    new.save_to_path(tmp_path / "new")
    as_older(tmp_path / "new", tmp_path / "older")
    opened = Learner.from_checkpoint(tmp_path / "older")
    assert logits(opened) == logits(older)
    assert logits(Learner.from_checkpoint(tmp_path / "new")) == logits(new)
    opened.save_to_path(tmp_path / "again")
    assert logits(Learner.from_checkpoint(tmp_path / "again")) == logits(older)
    acts = load_policy(tmp_path / "older").predict(SEEN)[0]
    assert acts == np.argmax(logits(older)[0])


def test_weights_of_another_rule_are_refused_and_the_error_says_what_to_set(tmp_path):
    new = learner_of(MIXED)
    new.save_to_path(tmp_path / "new")
    as_older(tmp_path / "new", tmp_path / "older")
    before = logits(new)
    for component in (None, "rl_module"):
        with pytest.raises(RestoreMismatchError, match='"uint8_scale": "row"'):
            new.restore_from_path(tmp_path / "older", component=component)
    assert logits(new) == before
    older = learner_of(MIXED, uint8_scale="row")
    older.restore_from_path(tmp_path / "older")
    with pytest.raises(RestoreMismatchError, match='"uint8_scale": "part"'):
        older.restore_from_path(tmp_path / "new")


@pytest.mark.parametrize("rule", ["part", "row"])
def test_a_policy_file_has_the_rule(tmp_path, rule):
    learner = learner_of(MIXED, uint8_scale=rule)
    learner.get_policy().save(tmp_path / "policy")
    written = read_policy_file(tmp_path / "policy").description["config"]
    assert f"'uint8_scale': '{rule}'" in str(written)
    assert load_policy(tmp_path / "policy").predict(SEEN)[0] == np.argmax(logits(learner)[0])


def test_where_the_rules_agree_nothing_is_written_and_nothing_changes(tmp_path):
    space = Dict({"x": Box(-1.0, 1.0, (2,)), "d": Discrete(2)})
    learner = learner_of(space)
    learner.save_to_path(tmp_path / "saved")
    assert load_checkpoint(tmp_path / "saved").metadata["uint8_scale"] == {}
    as_older(tmp_path / "saved", tmp_path / "older")
    assert "uint8_scale" not in Learner.from_checkpoint(tmp_path / "older").config.model_config
