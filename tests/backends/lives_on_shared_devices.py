"""Learners on one CPU of JAX and on eight: `python lives_on_shared_devices.py` prints what they compute and keep.

test_sharding.py runs this: JAX sees several CPUs only in a process that asks for them before anything else.
"""

import gc
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import optax
from lives_on_jax_devices import OBS, ROWS, P, batch

import plugrad
from plugrad.errors import ConfigError, PlugradError
from plugrad_jax.devices import put
from plugrad_jax.sharding import ShardedVariable
from plugrad_jax.testing import NormedModel

UPDATES = 20
SEEN: list[Any] = []
"""What hooks were called with: names and shapes of gradients."""


def config_of(algorithm: str, sharding: str | None) -> Any:
    """Adam with clipping by the global norm; in each update two minibatches, of 8 and 8 rows."""
    config = plugrad.get_algorithm(algorithm)().framework("jax").debugging(seed=0)
    config = config.training(minibatch_size=8, grad_clip=0.05, grad_clip_by="global_norm")
    return config.rl_module(model_config={"fcnet_hiddens": [37]}).learners(sharding=sharding)


def learner_of(algorithm: str, sharding: str | None) -> Any:
    """A learner that notes what its hooks see."""
    config = config_of(algorithm, sharding)
    space = gym.spaces.Discrete(2) if algorithm == "ppo" else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    class Noting(config.get_default_learner_class()):  # type: ignore[misc]
        def postprocess_gradients(self, gradients: Any) -> Any:
            SEEN.append({ref: list(each.shape) for ref, each in gradients.items()})
            return super().postprocess_gradients(gradients)

    return config.learners(learner_class=Noting).build_learner(spaces={P: (OBS, space)})


def rows_of(algorithm: str) -> dict[str, Any]:
    """A batch."""
    return batch(
        np.arange(ROWS) % 2 if algorithm == "ppo" else np.linspace(-0.9, 0.9, ROWS, dtype=np.float32)[:, None]
    )


@cache
def trained(algorithm: str, sharding: str | None) -> tuple[Any, Any]:
    """A learner after its updates, and what each reported. Its learning rate is set halfway."""
    SEEN.clear()
    learner, results = learner_of(algorithm, sharding), []
    for n in range(UPDATES):
        if n == UPDATES // 2:
            for registered in learner.registered_optimizers.values():
                learner._set_optimizer_lr(registered.optimizer, 2e-3)
        results.append(dict(learner.update(rows_of(algorithm))[P]))
    return learner, results


def numbers(tree: Any) -> list[float]:
    """All numbers in a tree, in its order."""
    leaves = [np.asarray(each) for each in jax.tree.leaves(tree)]
    return [float(number) for each in leaves if each.dtype.kind in "biuf" for number in each.ravel()]


def state_of(learner: Any) -> list[float]:
    """All that a checkpoint has of weights and optimizers."""
    state = learner.get_state()
    return numbers([state["rl_module"], state["optimizer"]])


def life(algorithm: str, sharding: str | None) -> dict[str, Any]:
    """What a learner computed."""
    learner, results = trained(algorithm, sharding)
    state = learner.get_state()
    results = [
        {name: value for name, value in each.items() if not name.startswith("time")} for each in results
    ]
    return {
        "device": learner.device,
        "mode": learner.update_mode,
        "results": [{name: float(value) for name, value in sorted(each.items())} for each in results],
        "weights": numbers(state["rl_module"]),
        "slots": numbers(state["optimizer"]),
        "acted": numbers(learner.compute_actions(rows_of(algorithm)["obs"])),
        "refs": sorted(map(learner.get_param_ref, learner.get_parameters(learner.module[P]))),
        "gradients": SEEN[0],
    }


def bytes_of(learner: Any) -> dict[str, dict[str, int]]:
    """Bytes of the parameters, slots and target networks of a learner on each device."""
    found: dict[str, dict[str, int]] = {}
    variables = {
        f"{name}/{n}": each
        for name, registered in learner.registered_optimizers.items()
        for n, each in enumerate(registered.optimizer_adapter.variables)
    }
    variables |= {f"{name}/target": each.variable for name, each in learner.targets.items() if each}
    for name, each in variables.items():
        if each.shape:
            shards = jax.numpy.asarray(each.value).addressable_shards
            found[name] = {str(shard.device): shard.data.nbytes for shard in shards}
    return found


def all_bytes(algorithm: str, sharding: str | None) -> list[int]:
    """Bytes on each device that are there because of a learner which has been updated."""
    gc.collect()
    before = {id(each) for each in jax.live_arrays()}
    learner = learner_of(algorithm, sharding)
    learner.update(rows_of(algorithm))
    gc.collect()
    found = dict.fromkeys(jax.devices(), 0)
    for each in jax.live_arrays():
        if id(each) not in before:
            for shard in each.addressable_shards:
                found[shard.device] += shard.data.nbytes
    return list(found.values())


def a_slot_that_is_left_whole() -> dict[str, dict[str, int]]:
    """The bytes of a learner of which each device keeps a whole slot."""
    learner = learner_of("ppo", "fsdp")
    (registered,) = learner.registered_optimizers.values()
    slot = registered.optimizer_adapter.slots["m"]
    assert type(slot) is ShardedVariable
    slot.value = put(slot.value, learner.device)
    return bytes_of(learner)


def checkpoints_that_cross() -> None:
    """A learner goes on from the checkpoint of the other one, and saves the same."""
    for there, here in (("fsdp", None), (None, "fsdp")):
        first, second = trained("ppo", there)[0], learner_of("ppo", here)
        with tempfile.TemporaryDirectory() as folder:
            first.save_to_path(folder)
            second.restore_from_path(folder)
        assert second.device != first.device
        assert state_of(second) == state_of(first)
        rows = rows_of("ppo")
        first.update(rows), second.update(rows)
        np.testing.assert_allclose(
            numbers(second.get_state()["optimizer"]),
            numbers(first.get_state()["optimizer"]),
            rtol=0,
            atol=1e-6,
        )


def an_update_that_is_undone() -> None:
    """NaN leaves a learner as it was, divided."""
    learner = trained("ppo", "fsdp")[0]
    before, bytes_before = state_of(learner), bytes_of(learner)
    rows = rows_of("ppo")
    rows["advantages"][:] = np.nan
    try:
        learner.update(rows)
    except PlugradError:
        assert state_of(learner) == before
        assert bytes_of(learner) == bytes_before
    else:
        raise AssertionError("NaN was no error")


def two_halves() -> None:
    """`forward_backward` and `optim_step` are one step."""
    one, halves = learner_of("ppo", None), learner_of("ppo", "fsdp")
    rows = rows_of("ppo")
    one.update(rows, num_epochs=1)
    halves.forward_backward(rows)
    halves.forward_backward(rows)
    halves.optim_step()
    np.testing.assert_allclose(numbers(halves.get_weights()), numbers(one.get_weights()), rtol=0, atol=1e-6)


def weights_that_are_set() -> None:
    """`set_weights` reaches the vector, and leaves nothing whole."""
    learner = learner_of("ppo", "fsdp")
    bytes_before = bytes_of(learner)
    weights = jax.tree.map(lambda each: each + 1, learner.get_weights())
    learner.set_weights(weights)
    assert numbers(learner.get_weights()) == numbers(weights)
    learner.update(rows_of("ppo"))
    assert numbers(learner.get_weights()) != numbers(weights)
    assert bytes_of(learner) == bytes_before


def refused(build: Callable[[], Any]) -> str:
    """The error at build."""
    try:
        build()
    except ConfigError as error:
        return str(error)
    return "built"


def refusals() -> dict[str, str]:
    """What cannot be sharded."""
    config = config_of("ppo", "fsdp").environment(observation_space=OBS, action_space=gym.spaces.Discrete(2))

    class WithOptax(config.get_default_learner_class()):  # type: ignore[misc]
        def configure_optimizers(self) -> None:
            adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
            self.register_optimizer(module_id=P, optimizer=adam, params=self.get_parameters(self.module[P]))

    own = config.get_default_learner_class()(config=config, module=NormedModel())
    return {
        "own layers": refused(own.build),
        "own optimizer": refused(config.learners(learner_class=WithOptax).build_learner),
        "seeds": refused(lambda: config.environment("CartPole-v1").build_seeds(2)),
    }


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    for check in (checkpoints_that_cross, an_update_that_is_undone, two_halves, weights_that_are_set):
        check()
        print(check.__name__, file=sys.stderr)
    found = {
        "lives": {
            f"{name} {kind}": life(name, sharding)
            for name in ("ppo", "sac")
            for kind, sharding in (("alone", None), ("shared", "fsdp"))
        },
        "bytes": {name: bytes_of(trained(name, "fsdp")[0]) for name in ("ppo", "sac")},
        "all bytes": [all_bytes("ppo", sharding) for sharding in (None, "fsdp")],
        "left whole": a_slot_that_is_left_whole(),
        "refusals": refusals(),
    }
    print(json.dumps(found))
