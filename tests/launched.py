"""A program that a launcher starts several times: learners that train together, each with rows of its own.

    torchrun --nproc-per-node 3 tests/launched.py torch FOLDER plain

Each process does what the last arguments say, one after the other with a new group of learners each, and writes
`FOLDER/WHAT/RANK.npz`: its weights, and the results of its updates.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from learning import ppo_batch, ppo_config, quick_mode, weights

from plugrad import LearnerGroup, RLModuleSpec, SingleAgentEpisode
from plugrad.errors import PlugradError
from plugrad.types import ALL_MODULES

UPDATES = 4
NUMBERS = (7, 0, 12)
"""Rows of each process: they cannot be divided, and one has none."""
STATES = ("pi_h", "vf_h")
"""Of a GRU in each of the two networks."""


def config(backend: str, **settings: Any) -> Any:
    training = {"minibatch_size": 4, "num_epochs": 2, "shuffle_batch_per_epoch": True, **settings}
    return ppo_config(backend, **training).framework(backend, compile=quick_mode(backend)).debugging(seed=3)


def launched(backend: str, timeout_s: float = 60) -> Any:
    """Without faults a process may wait for another one that compiles on a busy machine."""
    return config(backend).learners(launcher="env", timeout_s=timeout_s, build_timeout_s=20)


def rows_of(update: int, rank: int) -> dict[str, Any]:
    """The rows of a process in an update; of a process more than three, as those of three before it."""
    number = NUMBERS[(rank + update) % len(NUMBERS)]
    return ppo_batch(number, seed=100 * update + rank) if number else {}


def scaled(update: int, rank: int) -> dict[str, Any]:
    """The same rows, of which each counts less than the one before it."""
    rows = rows_of(update, rank)
    return (
        {**rows, "loss_mask": (1.0 / np.arange(1, 1 + len(rows["obs"]))).astype(np.float32)} if rows else rows
    )


def whole(update: int, size: int, of: Any = rows_of) -> dict[str, Any]:
    """What the processes bring to an update, below each other."""
    parts = [each for rank in range(size) if (each := of(update, rank))]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def sequence_batch(count: int, steps: int, seed: int) -> dict[str, Any]:
    """Sequences of PPO [count, steps, ...]."""
    rows = ppo_batch(count * steps, seed=seed)
    columns = {name: each.reshape(count, steps, *each.shape[1:]) for name, each in rows.items()}
    return {**columns, "state_in": dict.fromkeys(STATES, np.full((count, 4), seed / 100, np.float32))}


def below_each_other(short: dict[str, Any], long: dict[str, Any]) -> dict[str, Any]:
    """Sequences of two batches, by hand: the shorter ones are padded and masked."""
    steps = [each["obs"].shape[1] for each in (short, long)]
    masks = [
        np.ones((len(each["obs"]), width), bool) for each, width in zip((short, long), steps, strict=True)
    ]

    def join(first: Any, second: Any) -> Any:
        behind = [(0, 0), (0, steps[1] - steps[0]), *[(0, 0)] * (first.ndim - 2)]
        return np.concatenate([np.pad(first, behind), second])

    state = {name: np.concatenate([short["state_in"][name], long["state_in"][name]]) for name in STATES}
    columns = {name: join(short[name], long[name]) for name in short if name != "state_in"}
    return {**columns, "loss_mask": join(*masks), "state_in": state}


def episode(length: int, seed: int) -> SingleAgentEpisode:
    """With what PPO's connectors read."""
    rng = np.random.default_rng(seed)
    return SingleAgentEpisode(
        observations=rng.normal(size=(length + 1, 3)).astype(np.float32),
        actions=rng.integers(0, 2, length),
        rewards=rng.normal(size=length),
        terminated=True,
        extra_model_outputs={
            "action_logp": np.full(length, -0.7, np.float32),
            "action_dist_inputs": np.zeros((length, 2), np.float32),
        },
    )


def plain(group: LearnerGroup, rank: int, folder: Path) -> dict[str, Any]:
    """Update, save once, and go on from what was saved."""
    found = {}
    for update in range(UPDATES):
        (results,) = group.update(rows_of(update, rank))
        found[f"loss {update}"] = results[ALL_MODULES].get(
            "total_loss", results["default_policy"]["total_loss"]
        )
        found[f"rows {update}"] = results["default_policy"]["num_module_steps_trained"]
        if update == 1:
            group.save_to_path(folder / "run")
    group.restore_from_path(folder / "run")
    for update in range(2, UPDATES):
        group.update(rows_of(update, rank))
    return found


def verbs(group: LearnerGroup, rank: int) -> dict[str, Any]:
    """Two calls of each process, of which one has no rows, and a step; then gradients or an error of one alone."""
    found, state = {}, group.get_state()
    for step in range(2):
        for call in range(2):
            group.forward_backward(scaled(2 * step + call, rank)).result()
        (results,) = group.optim_step().result()
        found[f"rows {step}"] = results["default_policy"]["num_module_steps_trained"]
    before = trained(group)
    group.forward_backward(rows_of(0, rank)).result()
    if rank == 1:
        group.drop_gradients()
    found["dropped alone"] = str(group.optim_step().exception())
    group.forward_backward(rows_of(0, rank)).result()
    if rank == 1:
        group.foreach_learner(lambda learner: setattr(learner, "compute_losses", lambda **_: 1 / 0))
    future = group.forward_backward(rows_of(1, rank))
    if rank == 1:
        group.foreach_learner(lambda learner: delattr(learner, "compute_losses"))
    found["error of a verb"] = type(future.exception()).__name__
    found["undone verb"] = trained(group).tobytes() == before.tobytes()
    group.set_state(state)
    return {**found, "weights after verbs": before}


def sequences(group: LearnerGroup, rank: int, folder: Path) -> dict[str, Any]:
    """Sequences of 3 steps in one process, and of 5 in the other."""
    for update in range(UPDATES):
        parts = [sequence_batch(4 + each, 3 + 2 * each, seed=10 * update + each) for each in range(2)]
        group.update(below_each_other(*parts) if len(group) == 1 else parts[rank])
    return {}


def episodes(group: LearnerGroup, rank: int, folder: Path) -> dict[str, Any]:
    """Two episodes in one process, and none in the other; then rows of two modules."""
    for update in range(UPDATES):
        both = [episode(6, seed=update), episode(9, seed=50 + update)]
        group.update(episodes=[] if rank else both)
    return modules(group, rank)


def modules(group: LearnerGroup, rank: int) -> dict[str, Any]:
    """Two modules, which the processes bring in opposite orders; then one process has no rows of one of them."""
    group.add_module(module_id="other", module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [4]}))
    for update in range(UPDATES):
        ids, parts = ["default_policy", "other"], []
        for each in range(2):
            batch = {name: ppo_batch(5 + each + len(name), seed=10 * update + each) for name in ids}
            parts.append(batch if update < 2 or each != update % 2 else {"other": batch["other"]})
            ids.reverse()
        group.update(rows_of_modules(parts) if len(group) == 1 else parts[rank])
    return {"weights": np.concatenate([group.foreach_learner(weights, each)[0] for each in ids])}


def rows_of_modules(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of all, module by module."""
    found: dict[str, Any] = {}
    for module_id in parts[0] | parts[1]:
        of = [each[module_id] for each in parts if module_id in each]
        found[module_id] = {name: np.concatenate([each[name] for each in of]) for name in of[0]}
    return found


def restarted(group: LearnerGroup, rank: int, folder: Path) -> dict[str, Any]:
    """The last process ends after two updates; where torchrun starts all again, they go on from what was saved."""
    begin, attempt = 0, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    if attempt:
        group.restore_from_path(folder / "run")
        begin = 2
    for update in range(begin, UPDATES):
        if update == 2 and not attempt:
            group.save_to_path(folder / "run")
            if rank == len(group) - 1:
                os._exit(1)
        group.update(rows_of(update, rank))
    return {"attempt": attempt}


def faults(group: LearnerGroup, rank: int, folder: Path) -> dict[str, Any]:
    """Verbs, other networks, refused rows, an error before rows are exchanged, one changed alone, one that ends."""
    found: dict[str, Any] = verbs(group, rank)
    try:
        launched("torch", timeout_s=5).rl_module(
            model_config={"fcnet_hiddens": [4 + (rank == 1)]}
        ).build_learner()
    except PlugradError as error:
        found["networks"] = str(error)
    group.update(rows_of(0, rank))
    group.save_to_path(folder / "run")
    before = trained(group)

    refused = rows_of(1, rank)
    if rank == 1:
        refused["actions"] = refused["actions"] + 1000
    found["refused"] = error_of(group, refused)
    found["alone"] = error_of(group, ["no batch"] if rank == 1 else rows_of(1, rank))
    found["undone"] = trained(group).tobytes() == before.tobytes()
    group.update(rows_of(1, rank))
    found["weights after errors"] = trained(group)

    if rank == 1:
        other = {name: each + 1 for name, each in group.get_weights()["default_policy"].items()}
        group.set_weights({"default_policy": other})
    found["changed"] = error_of(group, rows_of(1, rank))
    group.restore_from_path(folder / "run")
    group.update(rows_of(1, rank))
    found["weights"] = trained(group)

    if rank == len(group) - 1:
        np.savez(folder / f"{rank}.npz", **found)
        os._exit(0)
    found["ended"] = error_of(group, rows_of(1, rank))
    found["later"] = error_of(group, rows_of(1, rank))
    return found


def ended(group: LearnerGroup, rank: int, folder: Path) -> dict[str, Any]:
    """The last process ends after an update. The others update again, twice, and build another learner."""
    group.update(rows_of(0, rank))
    found: dict[str, Any] = {"weights before": trained(group)}
    if rank == len(group) - 1:
        np.savez(folder / f"{rank}.npz", **found)
        os._exit(0)
    found["ended"] = error_of(group, rows_of(1, rank))
    found["later"] = error_of(group, rows_of(1, rank))
    try:
        group.config.learners(build_timeout_s=3).build_learner()
    except PlugradError as error:
        found["missing"] = f"{type(error).__name__}: {error}"
    return found


def error_of(group: LearnerGroup, batch: Any) -> str:
    """What an update raises."""
    try:
        group.update(batch)
    except PlugradError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def trained(group: LearnerGroup) -> Any:
    """All weights in one vector."""
    return group.foreach_learner(weights)[0]


def group_for(backend: str, what: str) -> LearnerGroup:
    """The learners of all processes."""
    built = launched(backend, timeout_s=5 if what in ("ended", "faults") else 60)
    if what == "ended":
        built = built.learners(build_timeout_s=240)  # only who is gone is waited for in vain
    if what == "sequences":
        built = built.rl_module(model_config={"fcnet_hiddens": [4], "use_gru": True, "gru_cell_size": 4})
    return built.build_learner_group()


# --- the launcher of tests ---


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start(program: Sequence[str], size: int, absent: Collection[int] = ()) -> list[subprocess.Popen[str]]:
    """Start a program as torchrun does, with the variables that it sets; without the processes of `absent` ranks."""
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, *program],
            env={**os.environ, **place, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
        if rank not in absent
    ]


def main() -> None:
    backend, folder, *works = sys.argv[1:]
    if "process group" in works:
        import torch

        works.remove("process group")
        torch.distributed.init_process_group("gloo")
        ones = torch.ones(1)
        torch.distributed.all_reduce(ones)
    for what in works:
        own = Path(folder, what)
        own.mkdir(exist_ok=True)
        with group_for(backend, what) as group:
            rank = group.foreach_learner(lambda learner: learner.peers.rank)[0]
            found = globals()[what](group, rank, own)
            np.savez(own / f"{rank}.npz", **{"weights": trained(group), **found})


if __name__ == "__main__":
    main()
