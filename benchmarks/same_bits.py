"""Whether two revisions give the same bits: the whole state after a few updates of every algorithm.

    python benchmarks/same_bits.py 51c2a0d .
    python benchmarks/same_bits.py 51c2a0d . --backends numpy torch --modes none --algorithms ppo sac

Each revision trains each algorithm on the tiny task of `plugrad.testing` for a few iterations: with minibatches,
epochs, target networks, replay or recorded episodes. A cell hashes weights, optimizers and target networks, and says
`equal`, `different`, or that both raise. Leaves with 1 if a cell is not equal. Compare on one machine only.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from house import checked_out
from report import table

ROOTS = ("core", "backends", "plugins")
ALGORITHMS = ("ppo", "bc", "marwil", "dqn", "sac", "td3", "cql", "iql", "impala", "appo")
BACKENDS = ("numpy", "torch", "tf2", "jax")
MODES = ("none", "auto", "complete_update")
ITERATIONS = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs=2)
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--modes", nargs="+", default=MODES)
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    parser.add_argument("--train", help=argparse.SUPPRESS)  # what this script calls itself with
    given = parser.parse_args()
    if given.train:
        for mode in given.modes if given.train != "numpy" else ["none"]:
            for algorithm in given.algorithms:
                print(
                    json.dumps([f"{algorithm} {given.train} {mode}", trained(algorithm, given.train, mode)])
                )
        return
    with ExitStack() as stack:
        folders = [stack.enter_context(checked_out(each)) for each in given.revisions]
        found = [{**_all(folder, given)} for folder in folders]
    rows = [(cell, said(before, found[1].get(cell, "missing"))) for cell, before in found[0].items()]
    print(table(("cell", f"{given.revisions[0]} and {given.revisions[1]}"), rows))
    sys.exit(any(word != "equal" for _, word in rows))


def said(before: str, after: str) -> str:
    """What a cell says."""
    if before == after:
        return f"both raise {before}" if before.startswith("error") else "equal"
    return f"different: {before} and {after}"


def _all(folder: Path, given: argparse.Namespace) -> Mapping[str, str]:
    return dict(pair for backend in given.backends for pair in _of_backend(folder, backend, given))


def _of_backend(folder: Path, backend: str, given: argparse.Namespace) -> Iterator[tuple[str, str]]:
    roots = [str(folder / root) for root in ROOTS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "-", "-", "--train", backend]
    chosen = ["--modes", *given.modes, "--algorithms", *given.algorithms]
    done = subprocess.run([*command, *chosen], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("["):
            cell, digest = json.loads(line)
            yield cell, digest


def trained(algorithm: str, backend: str, mode: str) -> str:
    """Train an algorithm, in this process.

    Returns:
        The hash of what its learner has learned, or "error: ...".
    """
    from plugrad.algorithm_config import OffPolicyConfig
    from plugrad.hooks.registry import get_algorithm
    from plugrad.testing.tiny_task import TASKS, record_demonstrations

    task = TASKS["continuous" if algorithm in ("td3", "sac", "cql", "iql") else "discrete"]
    config = get_algorithm(algorithm)().framework(backend, compile=mode).debugging(seed=1)
    config = config.environment(task).rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.env_runners(num_envs_per_env_runner=4)
    config = config.training(train_batch_size=32, minibatch_size=16, num_epochs=2, lr=0.01, grad_clip=0.5)
    if isinstance(config, OffPolicyConfig):
        early = {"num_steps_sampled_before_learning_starts": 16, "random_steps": 0}
        config = config.env_runners(rollout_fragment_length=4).training(**early)
    with tempfile.TemporaryDirectory() as folder:
        if config.is_offline and "input_" in config.fields():
            record_demonstrations(task, Path(folder, "demonstrations"))
            config = config.training(input_=str(Path(folder, "demonstrations")))
        try:
            algo = config.build_algo()
            for _ in range(ITERATIONS):
                algo.train()
            state = algo.learner_group.get_state()
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"[:200]
        algo.stop()
    digest = hashlib.sha256()
    for path, array in _arrays(state):
        if path.split("/")[1] in ("rl_module", "optimizer", "targets"):
            digest.update(f"{path}{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def _arrays(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from _arrays(tree[key], f"{path}/{key}")
    elif isinstance(tree, np.ndarray):
        yield path, tree


if __name__ == "__main__":
    main()
