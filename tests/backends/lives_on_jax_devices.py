"""Lives of learners in a process with two CPUs: `python lives_on_jax_devices.py DEVICE LIFE...` prints their numbers.

test_jax_devices.py runs this. Two CPUs stand in for a GPU and a CPU: JAX computes on the first where nobody says
otherwise, so an array of a learner on the second that nobody placed is found on the first.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax

from plugrad.errors import PlugradError
from plugrad.module_spec import RLModuleSpec
from plugrad.testing.taking_turns import take_turns
from plugrad_jax import JaxRLModule
from plugrad_jax.testing import NormedModel
from plugrad_ppo import PPOConfig, PPOLearner

NAMES = {"cpu": "cpu:0"}
"""JAX's names of devices, where they are others than plugrad's."""
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
P = "default_policy"
ROWS = 8


def numbers(tree: Any) -> list[float]:
    """All numbers in a tree of arrays, in its order."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return [float(number) for leaf in leaves if leaf.dtype.kind in "biuf" for number in leaf.ravel()]


def live_arrays() -> list[jax.Array]:
    """Those on devices of JAX's default kind, and on CPUs."""
    return [*jax.live_arrays(), *jax.live_arrays("cpu")]


@contextmanager
def all_arrays_on(device: str) -> Iterator[None]:
    """Fail if an array that is made in the block, and still there at its end, is on another device."""
    before = {id(each) for each in live_arrays()}
    yield
    strays = [
        f"{each.dtype}{list(each.shape)} on {each.device}"
        for each in live_arrays()
        if id(each) not in before and str(each.device) != NAMES.get(device, device)
    ]
    assert not strays, f"a learner on {device} has {strays}"


def batch(actions: Any) -> dict[str, Any]:
    """Transitions of eight steps, with what the losses of PPO, DQN and SAC read."""
    rng = np.random.default_rng(0)
    floats = {name: rng.normal(size=(ROWS, 3)).astype(np.float32) for name in ("obs", "new_obs")}
    floats |= {name: rng.normal(size=ROWS).astype(np.float32) for name in ("rewards", "advantages")}
    floats |= {name: np.full(ROWS, -0.5, np.float32) for name in ("action_logp", "value_targets", "vf_preds")}
    return {
        **floats,
        "action_dist_inputs": np.zeros((ROWS, 2), np.float32),
        "actions": actions,
        "terminateds": np.arange(ROWS) % 3 == 0,
        "truncateds": np.zeros(ROWS, bool),
    }


def learner_of(algorithm: str, device: str, compile_mode: str, space: gym.Space[Any]) -> Any:
    """A small learner."""
    import plugrad

    config = plugrad.get_algorithm(algorithm)().framework("jax", device=device, compile=compile_mode)
    config = config.training(minibatch_size=4).rl_module(model_config={"fcnet_hiddens": [4]})
    return config.debugging(seed=0).build_learner(spaces={P: (OBS, space)})


def update(algorithm: str, device: str, compile_mode: str) -> Any:
    """One update, acting and the state of a learner."""
    discrete = algorithm != "sac"
    space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    actions = np.arange(ROWS) % 2 if discrete else np.linspace(-0.9, 0.9, ROWS, dtype=np.float32)[:, None]
    with all_arrays_on(device):
        learner = learner_of(algorithm, device, compile_mode, space)
        assert learner.device == device
        results = learner.update(batch(actions))[P]
        acted = learner.compute_actions(batch(actions)["obs"])
        return numbers([dict(results), acted, learner.get_state()["rl_module"]])


class Own(PPOLearner):
    """Makes arrays in its loss in each way that users know, and looks where those are that have values."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
        made = {
            "jnp": jnp.ones(()),
            "ops": self.ops.zeros(()),
            "module": self.module[module_id].ops.asarray(np.float32(0)),
        }
        for name, each in {**made, **batch}.items():
            if not isinstance(each, jax.core.Tracer):
                assert str(each.device) == NAMES.get(self.device, self.device), f"{name} is on {each.device}"
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss * made["jnp"] + made["ops"] + made["module"]


class Layers(JaxRLModule):
    """Layers of flax with statistics and random keys, as a user writes them."""

    def setup(self) -> None:
        """See `RLModule.setup`."""
        self.model = NormedModel()

    def _forward(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
        logits, values = self.model(batch["obs"])
        return {"action_dist_inputs": logits, "vf_preds": values[:, 0] + jnp.zeros(())}


def own(device: str, compile_mode: str, **settings: Any) -> Any:
    """A learner with `Own` loss, built with a module or the class of one."""
    config = PPOConfig().framework("jax", device=device, compile=compile_mode)
    config = config.training(minibatch_size=4, num_epochs=1).debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.environment(observation_space=OBS, action_space=gym.spaces.Discrete(2))
    learner = Own(config=config, **settings)
    learner.build()
    return learner


def everything(learner: Any) -> Any:
    """What an update, acting and the state of a learner say."""
    results = learner.update(batch(np.arange(ROWS) % 2))[P]
    acted = learner.compute_actions(batch(0)["obs"])
    return numbers([dict(results), acted, learner.get_state()])


def flax_model(device: str, compile_mode: str) -> Any:
    """A model that was made on JAX's default device."""
    model = NormedModel()
    with all_arrays_on(device):
        return everything(own(device, compile_mode, module=model))


def layers_in_a_module(device: str, compile_mode: str) -> Any:
    """A class of a module, whose layers its learner makes."""
    with all_arrays_on(device):
        return everything(own(device, compile_mode, module_spec=RLModuleSpec(module_class=Layers)))


def optax_optimizer(device: str, compile_mode: str) -> Any:
    """The user's own optimizer, with a state of arrays."""

    class WithOptax(Own):
        def configure_optimizers(self) -> None:
            params = self.get_parameters(self.module[P])
            adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
            self.register_optimizer(module_id=P, optimizer=adam, params=params)

    with all_arrays_on(device):
        config = own(device, compile_mode).config
        learner = WithOptax(config=config)
        learner.build()
        return everything(learner)


def images(device: str, compile_mode: str) -> Any:
    """Convolutions."""
    space = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    config = PPOConfig().framework("jax", device=device, compile=compile_mode).debugging(seed=0)
    config = config.training(minibatch_size=4)
    config = config.rl_module(model_config={"conv_filters": [[2, 3, 2]], "fcnet_hiddens": [4]})
    with all_arrays_on(device):
        learner = config.build_learner(spaces={P: (space, gym.spaces.Discrete(2))})
        rows = np.random.default_rng(0).integers(0, 255, (ROWS, 8, 8, 1)).astype(np.uint8)
        results = learner.update({**batch(np.arange(ROWS) % 2), "obs": rows, "new_obs": rows})[P]
        return numbers([dict(results), learner.compute_actions(rows), learner.get_state()])


def a_group(device: str, compile_mode: str) -> Any:
    """Two learners that exchange gradients inside their programs."""
    with all_arrays_on(device):
        two = [own(device, compile_mode) for _ in range(2)]
        take_turns(two, lambda learner: learner.update(batch(np.arange(ROWS) % 2)))
        return numbers([each.get_state() for each in two])


def saved_and_loaded(device: str, compile_mode: str) -> Any:
    """A checkpoint of one learner in another one, which trains on."""
    with all_arrays_on(device), tempfile.TemporaryDirectory() as folder:
        first, second = own(device, compile_mode), own(device, compile_mode)
        everything(first)
        first.save_to_path(folder)
        second.restore_from_path(folder)
        return everything(second)


def undone(device: str, compile_mode: str) -> Any:
    """An update with NaN leaves the learner as it was; the next one counts."""
    with all_arrays_on(device):
        learner = own(device, compile_mode)
        everything(learner)
        before = numbers(learner.get_state())
        rows = batch(np.arange(ROWS) % 2)
        rows["advantages"][:] = np.nan
        try:
            learner.update(rows)
        except PlugradError:
            assert numbers(learner.get_state()) == before
        else:
            raise AssertionError("NaN was no error")
        return everything(learner)


def arrays_of_the_other_device(device: str, compile_mode: str) -> Any:
    """A batch, weights and gradients that are committed to the other device."""
    other = next(
        each for each in [*jax.devices(), *jax.devices("cpu")] if str(each) != NAMES.get(device, device)
    )
    learner = own(device, compile_mode)
    given = jax.device_put(batch(np.arange(ROWS) % 2), other)
    given = {
        name: each if name in ("obs", "advantages") else np.asarray(each) for name, each in given.items()
    }
    weights = jax.device_put(learner.get_weights(), other)
    with all_arrays_on(device):
        learner.set_weights(weights)
        learner.update(given)
        return everything(learner)


def tensors_of_the_device(device: str, compile_mode: str) -> Any:
    """A batch of arrays of the learner's device, which are padded and standardised there, beside one of numpy."""
    config = own(device, compile_mode).config.training(normalize_advantages="minibatch")
    there, here = (config.build_learner() for _ in range(2))
    given = batch(np.arange(ROWS) % 2)
    with all_arrays_on(device):
        there.update(there._convert_batch_type(given))
        here.update(given)
    found, expected = numbers(there.get_weights()), numbers(here.get_weights())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    return everything(here)


def many_learners(device: str, compile_mode: str) -> Any:
    """The updates of several learners as one program."""
    with all_arrays_on(device):
        config = PPOConfig().framework("jax", device=device, compile=compile_mode).environment("CartPole-v1")
        config = config.training(train_batch_size=32, minibatch_size=16, num_epochs=1)
        seeds = config.rl_module(model_config={"fcnet_hiddens": [4]}).build_seeds(2)
        seeds.train()
        return numbers([each.learner_group.get_weights() for each in seeds.algorithms])


def two_threads(device: str, compile_mode: str) -> Any:
    """Learners on both devices at once, each in a thread: the numbers of the one on `device`."""
    learners = [own(each, compile_mode) for each in ("cpu", "cpu:1")]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(everything, learners))
    assert found[0] == found[1]
    return found[0]


OTHERS = (
    flax_model,
    layers_in_a_module,
    optax_optimizer,
    images,
    a_group,
    saved_and_loaded,
    undone,
    arrays_of_the_other_device,
    tensors_of_the_device,
    two_threads,
)
LIVES: dict[str, Callable[[str], Any]] = {
    **{
        f"{algorithm} {mode}": partial(update, algorithm, compile_mode=mode)
        for algorithm in ("ppo", "dqn", "sac")
        for mode in ("auto", "none", "forward_train")
    },
    **{
        f"{life.__name__} {mode}": partial(life, compile_mode=mode)
        for life in OTHERS
        for mode in ("auto", "none")
    },
    "many_learners auto": partial(many_learners, compile_mode="auto"),
}

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    device, *lives = sys.argv[1:]
    print(json.dumps({life: LIVES[life](device) for life in lives}))
