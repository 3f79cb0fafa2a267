"""Policies on each backend: what was trained there is loaded in numpy or there, the user's own models included."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learning import quick_mode
from test_distribution_of_a_module import own_module

import plugrad
from plugrad import Columns, Learner, RLModuleSpec
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad_ppo import PPOConfig

OBSERVATIONS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


class OwnModule(plugrad.RandomRLModule):
    """A class that is not part of plugrad, so no checkpoint may have it imported."""


def config(backend: str, env: str = "Pendulum-v1") -> PPOConfig:
    config = PPOConfig().environment(env).framework(backend, compile=quick_mode(backend)).debugging(seed=0)
    config = config.env_runners(num_envs_per_env_runner=2, normalize_observations=True)
    config = config.training(train_batch_size=16, minibatch_size=None, num_epochs=1, lr=0.1)
    return config.rl_module(model_config={"fcnet_hiddens": [4]})


@pytest.mark.parametrize("memory", [None, "lstm", "gru"])
def test_a_loaded_policy_acts_as_the_algorithm_does(backend: str, tmp_path: Path, memory: str | None) -> None:
    recurrent = {f"use_{memory}": True, f"{memory}_cell_size": 3} if memory else {}
    some = config(backend).rl_module(model_config={"fcnet_hiddens": [4], "layer_norm": True, **recurrent})
    algorithm = some.build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    expected, state = algorithm.get_policy().predict(OBSERVATIONS)
    assert (state is not None) == (memory is not None)
    for chosen in (None, backend, "numpy"):
        found, _ = plugrad.load_policy(tmp_path, backend=chosen).predict(OBSERVATIONS)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    algorithm.stop()


def test_a_built_in_network_is_loaded_without_a_framework(backend: str, tmp_path: Path) -> None:
    algorithm = config(backend).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    expected, _ = algorithm.get_policy().predict(OBSERVATIONS[0])
    algorithm.stop()
    code = (
        "import sys, plugrad\n"
        f"action, _ = plugrad.load_policy({str(tmp_path)!r}).predict({OBSERVATIONS[0].tolist()})\n"
        "print(float(action[0]), 'torch' in sys.modules or 'tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    action, has_framework = done.stdout.split()
    assert float(action) == pytest.approx(float(expected[0]), abs=1e-6)
    assert has_framework == "False"


def test_a_network_with_convolutions_acts_on_the_backend_that_saved_it(backend: str, tmp_path: Path) -> None:
    space = gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)
    some = PPOConfig().framework(backend, compile=quick_mode(backend)).debugging(seed=0)
    some = some.environment(observation_space=space, action_space=gym.spaces.Discrete(3, start=-1))
    learner = some.rl_module(model_config={"fcnet_hiddens": [4]}).build_learner()
    learner.save_to_path(tmp_path)
    space.seed(0)
    image = space.sample()
    expected = learner.compute_actions(image[None], explore=False)["actions"][0] - 1
    assert learner.get_policy().predict(image)[0] == expected
    assert plugrad.load_policy(tmp_path).predict(image)[0] == expected
    assert plugrad.load_policy(tmp_path, backend="numpy").predict(image[None])[0] == [expected]


def own_model(backend: str) -> Any:
    if backend == "torch":
        import torch

        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    if backend == "jax":
        from flax import nnx

        rngs = nnx.Rngs(0)
        return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.tanh, nnx.Linear(4, 4, rngs=rngs))
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(4)]
    return keras.Sequential(layers)


def test_a_users_own_model_is_brought_by_who_loads_it(backend: str, tmp_path: Path) -> None:
    some = PPOConfig().framework(backend, compile=quick_mode(backend)).debugging(seed=0)
    some = some.environment(
        observation_space=gym.spaces.Box(-1, 1, (3,)), action_space=gym.spaces.Discrete(4, start=10)
    )
    learner = Learner(config=some, module=own_model(backend))
    learner.build()
    learner.save_to_path(tmp_path)
    expected = learner.compute_actions(OBSERVATIONS, explore=False)["actions"] + 10
    with pytest.raises(RestoreMismatchError, match="does not fit"):
        plugrad.load_policy(tmp_path)
    policy = plugrad.load_policy(tmp_path, module=own_model(backend))
    np.testing.assert_array_equal(policy.predict(OBSERVATIONS)[0], expected)


BOX = gym.spaces.Box(-9.0, 9.0, (3,))
PARTS = gym.spaces.Dict(position=gym.spaces.Box(-9.0, 9.0, (2,)), speed=gym.spaces.Box(0.0, 9.0, (1,)))
CHOICES = (gym.spaces.Discrete(3, start=1), gym.spaces.MultiDiscrete([2, 1]))
ACTIONS = gym.spaces.Box(-100.0, 100.0, (2,))


class Far(gym.Env[Any, Any]):
    """Observations of a space, far from mean 0 and variance 1."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = space, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


def reading(observation_space: gym.Space[Any], action_space: gym.Space[Any], model_config: Any) -> Any:
    """A module of the framework's own layers, over three numbers."""
    rows: Any = own_module(model_config["backend"])
    spaces = {"observation_space": observation_space, "action_space": action_space}
    if not isinstance(observation_space, gym.spaces.Dict):
        return rows(**spaces)

    class Parts(rows):  # type: ignore[misc]
        def _forward(self, batch: Any, **kwargs: Any) -> Any:
            obs = batch[Columns.OBS]
            joined = self.ops.concat([obs["position"], obs["speed"]], -1)
            return super()._forward({**batch, Columns.OBS: joined}, **kwargs)

    return Parts(**spaces)


def float64(space: gym.Space[Any]) -> gym.Space[Any]:
    """The same space, as most environments of MuJoCo have it."""
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict({key: float64(each) for key, each in space.spaces.items()})
    assert isinstance(space, gym.spaces.Box)
    return gym.spaces.Box(space.low, space.high, dtype=np.float64)


@pytest.mark.parametrize("space", [BOX, float64(BOX), PARTS, float64(PARTS), *CHOICES], ids=str)
@pytest.mark.parametrize("normalize", [True, False])
def test_statistics_are_applied_whatever_space_a_module_object_was_made_with(
    backend: str, tmp_path: Path, space: gym.Space[Any], normalize: bool
) -> None:
    model_config = {"backend": backend}
    some = (
        PPOConfig()
        .environment(Far, env_config={"space": space})
        .framework(backend, compile=quick_mode(backend))
    )
    some = some.env_runners(normalize_observations=normalize).debugging(seed=0)
    spec = RLModuleSpec(module_class=reading, model_config=model_config)
    algorithm = some.rl_module(rl_module_spec=spec).build_algo()
    algorithm.sample(50)
    policy, told = algorithm.get_policy(), algorithm.learner_group.acting_learner.learner.module
    observation = gym.vector.utils.batch_space(space, 4).sample()
    expected, _ = policy.predict(observation)
    paths = [algorithm.save_to_path(tmp_path / "run"), policy.save(tmp_path / "file")]
    algorithm.stop()
    for n, path in enumerate(paths):
        for known in (policy.observation_space, told["default_policy"].observation_space):
            module = reading(known, policy.action_space, model_config)
            loaded = plugrad.load_policy(path, module=module)
            np.testing.assert_array_equal(loaded.predict(observation)[0], expected)
            assert loaded.observation_space == space
            saved = loaded.save(tmp_path / f"again {n}")
            again = plugrad.load_policy(saved, module=reading(known, policy.action_space, model_config))
            np.testing.assert_array_equal(again.predict(observation)[0], expected)


def test_a_module_object_of_another_shape_is_refused_with_the_space_to_type(tmp_path: Path) -> None:
    space, spec = gym.spaces.Discrete(3), RLModuleSpec(module_class=OwnModule)
    other = gym.spaces.Discrete(4)
    some = PPOConfig().environment(Far, env_config={"space": space}).framework("numpy")
    algorithm = some.rl_module(rl_module_spec=spec).build_algo()
    algorithm.save_to_path(tmp_path)
    algorithm.stop()
    with pytest.raises(
        ConfigError, match=r"made with observation_space=Discrete\(4\).*: make it with .*Box\("
    ):
        plugrad.load_policy(tmp_path, module=OwnModule(observation_space=other, action_space=ACTIONS))


IMAGES = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)


@pytest.mark.parametrize(
    ("space", "model_config"),
    [
        (BOX, {"fcnet_hiddens": [4]}),
        (BOX, {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3}),
        (IMAGES, {"conv_filters": [[2, 3, 2]], "fcnet_hiddens": [4], "vf_share_layers": False}),
    ],
    ids=["vectors", "recurrent", "images"],
)
def test_env_runners_record_no_values_and_gae_gives_those_of_the_learner(
    backend: str, space: gym.Space[Any], model_config: dict[str, Any]
) -> None:
    settings = (
        config(backend)
        .environment(Far, env_config={"space": space})
        .env_runners(normalize_observations=False)
    )
    algorithm = settings.rl_module(model_config=model_config).build_algo()
    episodes = algorithm.env_runner.sample()
    learner = algorithm.learner_group.acting_learner.learner
    for episode in episodes:
        recorded = {name for name in episode.extra_model_outputs if not name.startswith(Columns.STATE_IN)}
        assert recorded == {Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS}
    batch = learner.run_connectors(episodes)["default_policy"]
    expected = [learner.compute_values_of_episodes([each])[:-1] for each in episodes]
    steps = batch.get(Columns.LOSS_MASK, ...)  # those of sequences are padded
    np.testing.assert_allclose(batch[Columns.VF_PREDS][steps], np.concatenate(expected), rtol=0, atol=1e-6)
    algorithm.stop()


def test_a_policy_acts_as_env_runners_do_also_if_the_spec_has_the_environments_space(
    backend: str, tmp_path: Path
) -> None:
    spaces = {"observation_space": BOX, "action_space": ACTIONS}
    algorithm = (
        config(backend)
        .environment(Far, env_config={"space": BOX})
        .rl_module(rl_module_spec=RLModuleSpec(**spaces, model_config={"fcnet_hiddens": [4]}))
        .build_algo()
    )
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    observation = OBSERVATIONS * 3.0
    rows = algorithm.env_runner.normalizer.normalize(observation)
    learner = algorithm.learner_group.acting_learner.learner
    expected = learner.compute_actions(rows, explore=False)[Columns.ACTIONS]
    algorithm.stop()
    for policy in (algorithm.get_policy(), plugrad.load_policy(tmp_path)):
        np.testing.assert_allclose(policy.predict(observation)[0], expected, atol=1e-6)


def test_a_class_of_ones_own_in_a_checkpoint_is_refused_by_name(backend: str, tmp_path: Path) -> None:
    spec = plugrad.RLModuleSpec(module_class=OwnModule)
    learner = config(backend).rl_module(rl_module_spec=spec).build_learner()
    learner.save_to_path(tmp_path)
    with pytest.raises(ConfigError, match=r"OwnModule.*module= to plugrad\.load_policy"):
        plugrad.load_policy(tmp_path)


def set_state(module: Any) -> None:
    module.set_state({name: 1.5 * each + 0.1 for name, each in module.get_state().items()})


def load_state_dict(module: Any) -> None:
    """As set_state, or torch's own method."""
    own = getattr(module, "load_state_dict", None)
    if own is None:
        set_state(module)
    else:
        own({name: 1.5 * each + 0.1 for name, each in module.state_dict().items()})


@pytest.mark.parametrize("give", [set_state, load_state_dict])
def test_weights_that_a_module_is_given_directly_are_acted_with(
    backend: str, give: Callable[[Any], None]
) -> None:
    algorithm = config(backend).build_algo()
    (learner,) = algorithm.learner_group.foreach_learner(lambda each: each)
    policy, version = algorithm.get_policy(), algorithm.learner_group.weights_version
    before, _ = policy.predict(OBSERVATIONS)
    give(learner.module["default_policy"])
    assert np.abs(policy.predict(OBSERVATIONS)[0] - before).max() > 1e-4
    assert algorithm.learner_group.weights_version != version
    algorithm.stop()
