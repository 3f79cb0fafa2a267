"""Users' own modules as ONNX models, and what cannot be exported."""

import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from exported_policies import VECTOR, Spaces, assert_same, exported, fed, policy, sample
from gymnasium.spaces import Box, Dict, Discrete

from plugrad import Columns, RandomRLModule, RLModuleSpec
from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.policy import Policy
from plugrad.testing.numpy_module import ArrayVariable, NumpyRLModule
from plugrad_ppo import PPOConfig


def users(module_class: Any, backend: str) -> Policy:
    """The policy of a recurrent module of a user's."""
    algorithm = (
        PPOConfig()
        .environment(Spaces, env_config={"observation_space": VECTOR, "action_space": Discrete(2, start=3)})
        .framework(backend)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
        .env_runners(normalize_observations=True)
        .build_algo()
    )
    algorithm.env_runner.sample(50)
    algorithm.stop()
    return algorithm.get_policy()


def test_a_users_recurrent_module_is_exported_by_its_framework(
    backend: str, backend_info: BackendInfo, tmp_path: Path
) -> None:
    trained = users(import_module(f"lstm_of_{backend}").OwnLSTM, backend)
    if "onnx" not in backend_info.capabilities:
        with pytest.raises(ConfigError, match="cannot export a OwnLSTM to ONNX: it has no exporter"):
            exported(trained, tmp_path)
        return
    session = exported(trained, tmp_path, action_mask=True)
    state, fed_back = None, {name: np.zeros((7, 8), np.float32) for name in ("state_in.h", "state_in.c")}
    for n, observations in enumerate(sample(VECTOR, 20 * 7).reshape(20, 7, 3)):
        masks = np.arange(14).reshape(7, 2) % 5 != n % 5
        actions, state = trained.predict(observations, state, action_masks=masks)
        found, *after = session.run(
            ["action", "state_out.h", "state_out.c"],
            {"obs": observations, "action_mask": masks, **fed_back},
        )
        assert state is not None
        np.testing.assert_array_equal(found, actions)
        for value, right in zip(after, (state["h"], state["c"]), strict=True):
            np.testing.assert_allclose(value, right, rtol=0, atol=1e-5)
        fed_back = dict(zip(fed_back, after, strict=True))


def _torch_module() -> Any:
    import torch

    from plugrad_torch import TorchRLModule

    class Own(TorchRLModule):
        def setup(self) -> None:
            self.image, self.room = torch.nn.Linear(20, 4), torch.nn.Linear(3, 4)

        def _forward(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
            obs = batch[Columns.OBS]
            outputs = self.image(obs["image"].flatten(1) / 255.0) + self.room(obs["room"])
            return {Columns.ACTION_DIST_INPUTS: outputs, Columns.VF_PREDS: outputs[:, 0]}

    return Own


def _tf2_module() -> Any:
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class Own(Tf2RLModule):
        def setup(self) -> None:
            self.layers = [tf.keras.layers.Dense(4), tf.keras.layers.Dense(4)]
            for layer, width in zip(self.layers, (20, 3), strict=True):
                layer.build((None, width))

        def _forward(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
            obs = batch[Columns.OBS]
            images = tf.reshape(obs["image"], (-1, 20)) / 255.0
            outputs = self.layers[0](images) + self.layers[1](obs["room"])
            return {Columns.ACTION_DIST_INPUTS: outputs, Columns.VF_PREDS: outputs[:, 0]}

    return Own


MODULES = {"torch": _torch_module, "tf2": _tf2_module}
"""Of the backends that export modules of users."""


@pytest.mark.parametrize("backend", [pytest.param(name, marks=needs.backends(name)) for name in MODULES])
def test_a_users_module_of_a_dict_is_exported_with_an_input_for_each_key(
    backend: str, tmp_path: Path
) -> None:
    ours = MODULES[backend]()
    space = Dict({"image": Box(0, 255, (4, 5), np.uint8), "room": Discrete(3, start=1)})
    config = PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=ours))
    trained = policy(space, Box(-9.0, 9.0, (2,)), config=config, backend=backend)
    session = exported(trained, tmp_path)
    observations = sample(space, 50)
    assert_same(session.run(None, fed(session, observations)), trained.predict(observations)[0])


class NumpyOwn(NumpyRLModule):
    """A module of numpy, which has no exporter."""

    def setup(self) -> None:
        self.pi = ArrayVariable(np.ones((3, 4), np.float32))

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        outputs = batch[Columns.OBS] @ self.pi.read()
        return {Columns.ACTION_DIST_INPUTS: outputs, Columns.VF_PREDS: outputs[:, 0]}


@pytest.mark.parametrize(
    ("module_class", "said"),
    [
        (
            NumpyOwn,
            "backend numpy cannot export a NumpyOwn to ONNX: it has no exporter for modules of your own",
        ),
        (RandomRLModule, "'default_policy' is a RandomRLModule: there is no network in it"),
    ],
)
def test_a_module_without_an_exporter_is_refused(module_class: Any, said: str, tmp_path: Path) -> None:
    config = PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
    with pytest.raises(ConfigError, match=said):
        policy(config=config).export_onnx(tmp_path / "policy.onnx")


def test_what_an_exporter_refuses_names_the_module(tmp_path: Path) -> None:
    torch = needs.backend("torch")

    class Branching(_torch_module()):  # type: ignore[misc]
        def setup(self) -> None:
            self.pi = torch.nn.Linear(3, 4)

        def _forward(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
            outputs = self.pi(batch[Columns.OBS])
            outputs = outputs if outputs.sum() > 0 else -outputs
            return {Columns.ACTION_DIST_INPUTS: outputs, Columns.VF_PREDS: outputs[:, 0]}

    config = PPOConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=Branching))
    with pytest.raises(
        ConfigError, match=r"\(Branching\) cannot be exported to ONNX; the exporter of backend torch"
    ):
        policy(config=config, backend="torch").export_onnx(tmp_path / "policy.onnx")


def test_a_missing_extra_is_one_sentence_with_what_to_type(tmp_path: Path) -> None:
    """In a process of its own, where nothing but plugrad's own dependencies is found."""
    script = (
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'onnx' else find(name, *rest)\n"
        "from plugrad.onnx import Graph\n"
        "Graph()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith('an ONNX export needs onnx: pip install "plugrad[onnx]"')
