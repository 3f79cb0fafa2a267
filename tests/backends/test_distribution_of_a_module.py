"""Which distribution a module acts by: its network's, or that of a method that the user overrides, as in RLlib."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learning import quick_mode

from plugrad import Columns, Learner, RLModuleSpec, numpy_ops
from plugrad.distributions import DiagGaussian, SquashedGaussian, squashed_gaussian_class
from plugrad.errors import ConfigError
from plugrad.networks import ActorCritic
from plugrad.types import DEFAULT_MODULE_ID as P
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig

BOX = gym.spaces.Box(np.asarray([-1.0, 0.0], "f4"), np.asarray([1.0, 4.0], "f4"))
OBSERVATIONS = np.random.default_rng(0).normal(0.0, 3.0, (64, 3)).astype(np.float32)
"""Large enough that many means are outside of the bounds."""


class SquashedNetwork(ActorCritic):
    """The built-in network, whose outputs mean something else."""

    def distribution_class(self, action_space: Any, ops: Any) -> Any:
        return squashed_gaussian_class(action_space, ops)


class SquashedLearner(Learner):
    """Of a network of its own."""

    def _build_network(self, *, module_id: Any, config: Any, module_spec: Any) -> Any:
        return SquashedNetwork(module_spec)


def torch_module() -> Any:
    import torch

    from plugrad_torch import TorchRLModule

    class Own(TorchRLModule):
        def setup(self) -> None:
            torch.manual_seed(0)
            self.pi = torch.nn.Linear(3, 4)

        def _forward(self, batch: Any, **kwargs: Any) -> Any:
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}

    return Own


def tf2_module() -> Any:
    import tensorflow as tf

    from plugrad_tf2 import Tf2RLModule

    class Own(Tf2RLModule):
        def setup(self) -> None:
            tf.keras.utils.set_random_seed(0)
            self.pi = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4)])

        def _forward(self, batch: Any, **kwargs: Any) -> Any:
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}

    return Own


def jax_module() -> Any:
    from flax import nnx

    from plugrad_jax import JaxRLModule

    class Own(JaxRLModule):
        def setup(self) -> None:
            self.pi = nnx.Linear(3, 4, rngs=nnx.Rngs(0))

        def _forward(self, batch: Any, **kwargs: Any) -> Any:
            return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}

    return Own


def own_module(backend: str) -> Any:
    """A module of the framework's own layers, over a Box."""
    return {"torch": torch_module, "tf2": tf2_module, "jax": jax_module}[backend]()


def squashed_module(backend: str) -> Any:
    """One that says what its outputs mean, as RLlib's modules do."""

    class Squashed(own_module(backend)):  # type: ignore[misc]
        def get_train_action_dist_cls(self) -> Any:
            return squashed_gaussian_class(self.action_space, self.ops)

    return Squashed


def built(config: Any, backend: str, **kwargs: Any) -> Any:
    config = config.framework(backend, compile=quick_mode(backend)).debugging(seed=0)
    config = config.environment(
        observation_space=gym.spaces.Box(-np.inf, np.inf, (3,)), action_space=kwargs.pop("action_space", BOX)
    )
    return (
        config.learners(learner_class=kwargs.pop("learner_class", None)).rl_module(**kwargs).build_learner()
    )


def squashed_learner(backend: str, kind: str) -> Any:
    """Of a network that plugrad runs, or of a user's module."""
    if kind == "network":
        return built(BCConfig(), backend, learner_class=SquashedLearner, model_config={"fcnet_hiddens": [4]})
    return built(BCConfig(), backend, rl_module_spec=RLModuleSpec(module_class=squashed_module(backend)))


kinds = pytest.mark.parametrize("kind", ["network", "module"])


@kinds
@pytest.mark.parametrize("explore", [False, True])
def test_acting_goes_by_the_distribution_of_the_module(backend: str, kind: str, explore: bool) -> None:
    learner = squashed_learner(backend, kind)
    columns = learner.compute_actions(OBSERVATIONS, explore=explore)
    assert all(map(BOX.contains, columns[Columns.ACTIONS]))
    bound = learner.module[P].get_train_action_dist_cls()
    assert issubclass(bound, SquashedGaussian)
    distribution = bound.from_logits(learner.ops.asarray(columns[Columns.ACTION_DIST_INPUTS]))
    logp = learner._convert_to_numpy(distribution.logp(learner.ops.asarray(columns[Columns.ACTIONS])))
    np.testing.assert_allclose(columns[Columns.ACTION_LOGP], logp, rtol=1e-4, atol=1e-3)
    if not explore:
        modes = learner._convert_to_numpy(distribution.mode())
        np.testing.assert_allclose(columns[Columns.ACTIONS], modes, atol=1e-6)


@kinds
def test_a_policy_predicts_within_the_bounds_what_the_learner_acts(backend: str, kind: str) -> None:
    learner = squashed_learner(backend, kind)
    actions, _ = learner.get_policy().predict(OBSERVATIONS)
    assert (actions == learner.compute_actions(OBSERVATIONS, explore=False)[Columns.ACTIONS]).all()
    drawn, _ = learner.get_policy().predict(OBSERVATIONS, deterministic=False)
    assert all(map(BOX.contains, drawn))
    assert (drawn != actions).any()


@kinds
@pytest.mark.parametrize("mode", ["none", "auto"])
def test_a_loss_trains_the_distribution_of_the_module(backend: str, kind: str, mode: str) -> None:
    """Cloning actions of which some lie at the bounds: they become likelier, and nothing becomes NaN."""
    learner = squashed_learner(backend, kind)
    rows = OBSERVATIONS / 3.0
    actions = BOX.low + (BOX.high - BOX.low) * np.clip(0.5 + rows[:, :2], 0.0, 1.0)
    batch = {P: {Columns.OBS: rows, Columns.ACTIONS: actions.astype(np.float32)}}
    losses = [learner.update(batch)[P]["total_loss"] for _ in range(30)]
    assert losses[-1] < losses[0] - 0.01


def test_exploring_and_inference_may_differ(backend: str) -> None:
    class Differs(own_module(backend)):  # type: ignore[misc]
        def get_exploration_action_dist_cls(self) -> Any:
            return squashed_gaussian_class(self.action_space, self.ops)

    learner = built(PPOConfig(), backend, rl_module_spec=RLModuleSpec(module_class=Differs))
    assert issubclass(learner.module[P].get_inference_action_dist_cls(), DiagGaussian)
    explored, greedy = (
        learner.compute_actions(OBSERVATIONS, explore=explore)[Columns.ACTIONS] for explore in (True, False)
    )
    assert all(map(BOX.contains, explored))
    assert not all(map(BOX.contains, greedy))


def test_a_distribution_of_ones_own_acts(backend: str) -> None:
    """Written over `self.ops`: acting computes it in numpy."""

    class Narrow(DiagGaussian):
        def __init__(self, logits: Any) -> None:
            super().__init__(0.001 * logits)

    class Own(own_module(backend)):  # type: ignore[misc]
        def get_train_action_dist_cls(self) -> Any:
            return Narrow.bind(self.ops, input_dim=4, action_shape=(2,))

    learner = built(PPOConfig(), backend, rl_module_spec=RLModuleSpec(module_class=Own))
    columns = learner.compute_actions(OBSERVATIONS, explore=False)
    means = columns[Columns.ACTION_DIST_INPUTS][:, :2]
    np.testing.assert_allclose(columns[Columns.ACTIONS], 0.001 * means, rtol=1e-6)


def test_what_is_no_distribution_is_refused_with_what_to_return(backend: str) -> None:
    class Wrong(own_module(backend)):  # type: ignore[misc]
        def get_inference_action_dist_cls(self) -> Any:
            return dict

    learner = built(PPOConfig(), backend, rl_module_spec=RLModuleSpec(module_class=Wrong))
    with pytest.raises(ConfigError, match=r"Wrong.get_inference_action_dist_cls\(\) returned <class 'dict'>"):
        learner.compute_actions(OBSERVATIONS, explore=False)


def test_an_unbounded_box_is_an_error_that_says_what_to_type(backend: str) -> None:
    learner = built(
        BCConfig(),
        backend,
        learner_class=SquashedLearner,
        model_config={"fcnet_hiddens": [4]},
        action_space=gym.spaces.Box(-np.inf, np.inf, (2,)),
    )
    with pytest.raises(ConfigError, match=r"finite bounds.*TransformAction\(env, "):
        learner.compute_actions(OBSERVATIONS)


def test_a_network_gives_the_distribution_of_its_outputs(backend: str) -> None:
    learner = squashed_learner(backend, "network")
    columns = learner.compute_actions(OBSERVATIONS, explore=False)
    inputs = learner.ops.asarray(columns[Columns.ACTION_DIST_INPUTS])
    distribution = learner.module[P].network.distribution(learner.ops, inputs)
    assert isinstance(distribution, SquashedGaussian)
    modes = learner._convert_to_numpy(distribution.mode())
    np.testing.assert_allclose(columns[Columns.ACTIONS], modes, atol=1e-6)


def test_a_network_of_no_module_has_no_distribution() -> None:
    network = ActorCritic(RLModuleSpec(observation_space=BOX, action_space=BOX))
    with pytest.raises(ConfigError, match="no module was made of it"):
        network.distribution(numpy_ops, np.zeros((1, 4), np.float32))


@pytest.mark.parametrize("setting", ["squashed", "a stranger"])
def test_the_action_dist_cls_that_setup_sets_is_used(backend: str, setting: str) -> None:
    """RLlib's name: for training, exploring and acting greedily."""
    base = own_module(backend)

    class Sets(base):  # type: ignore[misc, valid-type]
        def setup(self) -> None:
            super().setup()
            strange = type("Dist", (), {})
            squashed = squashed_gaussian_class(self.action_space, numpy_ops)
            self.action_dist_cls = squashed if setting == "squashed" else strange

    spec = RLModuleSpec(module_class=Sets)
    config = BCConfig().framework(backend, compile=quick_mode(backend)).rl_module(rl_module_spec=spec)
    config = config.environment(observation_space=gym.spaces.Box(-9.0, 9.0, (3,)), action_space=BOX)
    learner = config.debugging(seed=0).build_learner()
    if setting == "squashed":
        for explore in (True, False):
            actions = learner.compute_actions(OBSERVATIONS, explore=explore)["actions"]
            assert (actions >= BOX.low).all()
            assert (actions <= BOX.high).all()
        assert issubclass(learner.module[P].get_train_action_dist_cls(), SquashedGaussian)
        assert np.isfinite(learner.update({"obs": OBSERVATIONS, "actions": actions})[P]["total_loss"])
    else:
        with pytest.raises(
            ConfigError, match=r"Sets\.action_dist_cls is .*subclass of plugrad.distributions"
        ):
            learner.compute_actions(OBSERVATIONS)
