"""A loss reads a Dict observation in the structure that the model gets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from plugrad import DEFAULT_MODULE_ID, Columns, RLModuleSpec
from plugrad.learner.learner import Learner
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule
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


def updated(spec: RLModuleSpec) -> tuple[Any, Any]:
    """What the loss of one update reads: `batch["obs"]`, and its structure."""
    config = PPOConfig().framework("numpy").rl_module(rl_module_spec=spec)
    config = config.environment(observation_space=SPACE, action_space=Discrete(2))
    config = config.learners(learner_class=Reading).training(minibatch_size=None, num_epochs=1)
    learner: Learner = config.build_learner()
    rng = np.random.default_rng(0)
    acted = learner.compute_actions(OBS)
    extra = {name: rng.standard_normal(N).astype(np.float32) for name in ("advantages", "value_targets")}
    learner.update({DEFAULT_MODULE_ID: {**acted, "obs": OBS, **extra}}, shuffle_batch_per_epoch=False)
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
