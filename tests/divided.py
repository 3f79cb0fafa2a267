"""A program that a launcher starts 2, 3 or 8 times: learners divided over processes, `learners(sharding="fsdp")`.

    torchrun --nproc-per-node 2 tests/divided.py FOLDER

Each process writes `FOLDER/RANK.npz`: what its learners computed and kept.
"""

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from learning import ppo_batch, weights

import plugrad
from plugrad.errors import PlugradError
from plugrad.optimizers import Adam

P = "default_policy"
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
UPDATES, ROWS = 10, 12
SEEN: list[Any] = []
"""What hooks were called with: names and shapes of gradients."""


def own_model() -> Any:
    """A user's own model, with a buffer."""
    import torch

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(3)
            self.register_buffer("scale", torch.full((3,), 0.5))
            self.body, self.pi, self.vf = (torch.nn.Linear(*each) for each in ((3, 5), (5, 2), (5, 1)))

        def forward(self, obs: Any) -> Any:
            body = torch.tanh(self.body(self.norm(obs) * self.scale))
            return self.pi(body), self.vf(body)[:, 0]

    torch.manual_seed(0)
    return Own()


def config_of(algorithm: str, **learners: Any) -> Any:
    """Adam with clipping by the global norm; in each update two steps."""
    config = plugrad.get_algorithm(algorithm)().framework("torch", compile="none").debugging(seed=0)
    config = config.training(minibatch_size=ROWS // 2, grad_clip=0.05, grad_clip_by="global_norm")
    if algorithm == "ppo":
        config = config.training(num_epochs=1)
    config = config.learners(timeout_s=60, build_timeout_s=240, collective="gloo", **learners)
    return config.rl_module(model_config={"fcnet_hiddens": [5]})


def learner_of(algorithm: str, *, own: bool = False, **learners: Any) -> Any:
    """A learner that notes what its hooks see."""
    config = config_of(algorithm, **learners)
    space = gym.spaces.Discrete(2) if algorithm == "ppo" else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    base: Any = config.get_default_learner_class()

    class Noting(base):
        fails_in: ClassVar[list[str]] = []

        def postprocess_gradients(self, gradients: Any) -> Any:
            SEEN.append(sorted((ref, tuple(each.shape)) for ref, each in gradients.items()))
            if self.fails_in and (fails := self.fails_in.pop(0)):
                raise ZeroDivisionError(fails)
            return super().postprocess_gradients(gradients)

    if own:
        config = config.environment(observation_space=OBS, action_space=space)
        learner = Noting(config=config, module=own_model())
        learner.build()
        return learner
    return config.learners(learner_class=Noting).build_learner(spaces={P: (OBS, space)})


def rows_of(algorithm: str, update: int) -> dict[str, Any]:
    """What all processes bring to an update."""
    rows: dict[str, Any] = ppo_batch(ROWS, seed=update)
    if algorithm != "ppo":
        rng = np.random.default_rng(update)
        rows = {
            "obs": rows["obs"],
            "new_obs": rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
            "actions": rng.uniform(-0.9, 0.9, (ROWS, 1)).astype(np.float32),
            "rewards": rng.normal(size=ROWS).astype(np.float32),
            "terminateds": np.arange(ROWS) % 5 == 0,
        }
    return rows


SHARES = {2: (7, 5), 3: (7, 5, 0), 8: (3, 0, 2, 1, 2, 1, 2, 1)}
"""Rows that each process brings to an update, by the number of processes."""


def own_rows(rows: dict[str, Any], rank: int) -> dict[str, Any]:
    """Those of a process."""
    shares = SHARES[int(os.environ["WORLD_SIZE"])]
    begin = sum(shares[:rank])
    return {name: each[begin : begin + shares[rank]] for name, each in rows.items()}


def trained(learner: Any, algorithm: str, updates: Any, rank: int | None = None) -> list[float]:
    """The losses of updates, with a new learning rate halfway."""
    losses = []
    for n in updates:
        if n == UPDATES // 2:
            for registered in learner.registered_optimizers.values():
                learner._set_optimizer_lr(registered.optimizer, 2e-3)
        rows = rows_of(algorithm, n)
        results = learner.update(rows if rank is None else own_rows(rows, rank))
        losses.append(results[P]["total_loss"])
    return losses


def numbers(tree: Any) -> Any:
    """All numbers in nested dicts, in one vector."""
    if isinstance(tree, dict):
        return np.concatenate([np.zeros(0), *(numbers(tree[key]) for key in sorted(tree))])
    return np.ravel(np.asarray(tree, np.float64))


def state_of(learner: Any) -> Any:
    """All that is divided."""
    state = learner.get_state()
    return numbers({name: state[name] for name in ("rl_module", "optimizer", "targets")})


def bytes_kept(learner: Any) -> int:
    """Bytes of parameters, gradients, slots and target networks in this process, each storage once."""
    storages: dict[int, int] = {}

    def count(tensor: Any) -> None:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()

    for registered in learner.registered_optimizers.values():
        parameters = registered.optimizer_adapter.parameters
        for each in (parameters._flat, parameters.gradient):
            count(each)
        for param in parameters.params:
            count(param.data)
            if param.grad is not None:
                count(param.grad)
        for slot in getattr(
            registered.optimizer_adapter, "optimizer", registered.optimizer_adapter
        ).slots.values():
            count(slot.value)
    for target in learner.targets.values():
        count(target.variable.value)
    return sum(storages.values())


def life(algorithm: str, rank: int, folder: Path, *, own: bool = False) -> dict[str, Any]:
    """Updates, a checkpoint halfway, acting, an update that is undone, weights that are set."""
    SEEN.clear()
    learner = learner_of(algorithm, own=own, launcher="env", sharding="fsdp")
    found: dict[str, Any] = {"bytes at first": bytes_kept(learner)}
    losses = trained(learner, algorithm, range(UPDATES // 2), rank)
    learner.save_to_path(folder / "half")
    found["bytes between"] = bytes_kept(learner)
    losses += trained(learner, algorithm, range(UPDATES // 2, UPDATES), rank)
    found |= {"losses": losses, "seen": str(SEEN[0]), "state": state_of(learner)}
    obs = rows_of(algorithm, 99)["obs"]
    found["acted"] = learner.compute_actions(obs, explore=False)["action_dist_inputs"]
    found["bytes acting"] = bytes_kept(learner)

    learner.fails_in[:] = ["", "this one"] if rank == 1 else []  # after its first minibatch
    found["failed"] = error_of(lambda: learner.update(own_rows(rows_of(algorithm, 0), rank)))
    found["bytes undone"] = bytes_kept(learner)
    found["undone"] = state_of(learner)

    learner.set_weights({P: {name: each + 1 for name, each in learner.get_weights()[P].items()}})
    found["set"] = numbers(learner.get_weights())
    learner.restore_from_path(folder / "half")
    found["losses again"] = trained(learner, algorithm, range(UPDATES // 2, UPDATES), rank)
    found["bytes at last"] = bytes_kept(learner)
    found["state again"] = state_of(learner)
    if algorithm == "ppo" and not own:
        learner.restore_from_path(folder.parent / "whole")
        for _ in range(2):
            learner.forward_backward(own_rows(rows_of(algorithm, 3), rank)).result()
        learner.optim_step().result()
        found["verbs"] = weights(learner)
    learner.shutdown()
    return found


def error_of(call: Any) -> str:
    """What a call raises."""
    try:
        call()
    except (PlugradError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refused(rank: int) -> dict[str, Any]:
    """What does not go with it."""
    spaces = {P: (OBS, gym.spaces.Discrete(2))}
    config = config_of("ppo", launcher="env", sharding="fsdp")

    class OwnAdam(Adam):
        pass

    class WithOwn(config.get_default_learner_class()):  # type: ignore[misc]
        def configure_optimizers(self) -> None:
            params = self.get_parameters(self.module[P])
            self.register_optimizer(module_id=P, optimizer=OwnAdam(), params=params)

    return {
        "refused compiled": error_of(
            lambda: config.framework("torch", compile="complete_update").build_learner(spaces=spaces)
        ),
        "refused optimizer": error_of(
            lambda: config.learners(learner_class=WithOwn).build_learner(spaces=spaces)
        ),
        "refused undo": error_of(lambda: config.training(undo=False).build_learner(spaces=spaces)),
    }


def main() -> None:
    folder, rank, found = Path(sys.argv[1]), int(os.environ["RANK"]), {}
    for name, own in (("ppo", False), ("sac", False), ("ppo own", True)):
        place = folder / name
        place.mkdir(exist_ok=True)
        each = life(name.split()[0], rank, place, own=own)
        found |= {f"{name} {key}": value for key, value in each.items()}
    np.savez(folder / f"{rank}.npz", **found, **refused(rank))


if __name__ == "__main__":
    main()
