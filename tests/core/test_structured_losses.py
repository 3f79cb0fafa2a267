"""A loss reads a Dict observation in the structure that the model gets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.learner.learner import Learner
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule
from plugrad.training.off_policy import _compute_td_errors
from plugrad_listeners import GradientNoiseScale
from plugrad_ppo import PPOConfig, PPOLearner

SPACE = Dict(
    {
        "camera": Box(0, 255, (2, 2), np.uint8),
        "parts": Tuple((Discrete(3, start=1), Box(-1.0, 1.0, (2,), np.float32))),
    }
)
N = 4
OBS = {
    "camera": np.arange(16, dtype=np.uint8).reshape(N, 2, 2),
    "parts": (np.array([1, 2, 3, 1]), np.linspace(-1, 1, 8, dtype=np.float32).reshape(N, 2)),
}


class Own(NumpyRLModule):
    def setup(self) -> None:
        self.pi = ArrayVariable(np.ones((2, 2), np.float32))

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        outputs = batch[Columns.OBS]["parts"][1] @ self.pi.read()
        return {Columns.ACTION_DIST_INPUTS: outputs, Columns.VF_PREDS: outputs[:, 0]}


class Reading(PPOLearner):
    """Keeps what its loss reads."""

    read: Any = None

    def compute_loss_for_module(self, *, module_id: Any, config: Any, batch: Any, fwd_out: Any) -> Any:
        module = self.module[module_id]
        type(self).read = batch[Columns.OBS], module.observations_in_structure(batch[Columns.OBS])
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


class Parts(PPOLearner):
    """Its loss is a sum over a part of the observation."""

    def compute_loss_for_module(self, *, module_id: Any, config: Any, batch: Any, fwd_out: Any) -> Any:
        weighted = fwd_out[Columns.VF_PREDS] * batch[Columns.OBS]["parts"][1][:, 0]
        return self.ops.mean(weighted)


def built(spec: RLModuleSpec, learner_class: Any, *plugins: Any) -> Learner:
    config = PPOConfig().framework("numpy").rl_module(rl_module_spec=spec)
    config = config.environment(observation_space=SPACE, action_space=Discrete(2))
    config = config.learners(learner_class=learner_class).training(minibatch_size=None, num_epochs=1)
    learner: Learner = learner_class(config=config, plugins=plugins)
    learner.build()
    return learner


def update(learner: Learner) -> Any:
    rng = np.random.default_rng(0)
    acted = learner.compute_actions(OBS)
    extra = {name: rng.standard_normal(N).astype(np.float32) for name in ("advantages", "value_targets")}
    batch = {DEFAULT_MODULE_ID: {**acted, "obs": OBS, **extra}}
    return learner.update(batch, shuffle_batch_per_epoch=False)


def updated(spec: RLModuleSpec) -> tuple[Any, Any]:
    """What the loss of one update reads: `batch["obs"]`, and its structure."""
    update(built(spec, Reading))
    read: tuple[Any, Any] = Reading.read
    return read


def assert_structured(found: Any) -> None:
    np.testing.assert_array_equal(found["camera"], OBS["camera"])
    one_hot, box = found["parts"]
    np.testing.assert_array_equal(one_hot, np.eye(3)[OBS["parts"][0] - 1])
    np.testing.assert_allclose(box, OBS["parts"][1])


def test_a_loss_of_a_model_of_your_own_reads_observations_by_key() -> None:
    obs, same = updated(RLModuleSpec(module_class=Own))
    assert_structured(obs)
    assert same is obs


def test_a_loss_of_a_built_in_network_reads_rows_and_asks_for_their_structure() -> None:
    rows, structured = updated(RLModuleSpec(model_config={"fcnet_hiddens": [2], "conv_filters": []}))
    assert np.shape(rows) == (N, 9)
    assert_structured(structured)


def test_a_listener_that_computes_the_loss_of_some_rows_gives_it_the_same_structure() -> None:
    learner = built(RLModuleSpec(module_class=Own), Parts, GradientNoiseScale(decay=0.0))
    found = update(learner)[DEFAULT_MODULE_ID]
    assert found["gradient_rows_of_half"] == N / 2
    assert found["gradient_squared_norm_of_half"] > 0.0
    assert found["gradient_squared_norm"] > 0.0


def test_errors_by_which_rows_are_replayed_read_observations_by_key() -> None:
    def td_errors(learner: Any, module_id: Any, config: Any, batch: Any, fwd_out: Any) -> Any:
        return batch[Columns.OBS]["parts"][1][:, 0]

    learner = built(RLModuleSpec(module_class=Own), Parts)
    rows = {"obs": np.concatenate([OBS["camera"].reshape(N, 4), np.zeros((N, 3)), OBS["parts"][1]], -1)}
    found = _compute_td_errors(learner, td_errors, {DEFAULT_MODULE_ID: rows})[DEFAULT_MODULE_ID]
    np.testing.assert_allclose(found, OBS["parts"][1][:, 0])
