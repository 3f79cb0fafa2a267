"""One of two plugrad learners of `deadlock.py`, in a process of its own with rows of its own.

python benchmarks/deadlock_plugrad.py "opposite orders" RANK PORT
"""

import json
import os
import sys
from time import perf_counter
from typing import Any

import numpy as np
from contestant_plugrad import make_config, use_one_thread
from deadlock_rows import CASES, UPDATES, hiddens, rows
from workload import SMALL, Batch

from plugrad import Learner, MultiRLModuleSpec, RLModuleSpec


def main() -> None:
    case, rank, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    use_one_thread("torch")
    with config(case).learners(launcher="env").build_learner_group() as group:
        start = perf_counter()
        for update in range(UPDATES):
            group.update(rows(case, rank, update))
        seconds, found = perf_counter() - start, group.foreach_learner(weights)[0]
    one = config(case).build_learner()
    for update in range(UPDATES):
        one.update(together([rows(case, each, update) for each in range(2)]))
    off = float(np.abs(found - weights(one)).max())
    print(json.dumps({"seconds": seconds, "weights": found.tolist(), "off": off}))


def config(case: str) -> Any:
    base = make_config(SMALL, 0, "torch", "none").training(minibatch_size=None, num_epochs=1)
    specs = {
        module_id: RLModuleSpec(
            observation_space=base.observation_space,
            action_space=base.action_space,
            model_config={"fcnet_hiddens": [width]},
        )
        for module_id, width in hiddens(case).items()
    }
    return base.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))


def together(shares: list[dict[str, Batch]]) -> dict[str, Batch]:
    """The rows of both learners below each other."""
    found = {}
    for module_id in shares[0]:
        parts = [each[module_id] for each in shares if module_id in each]
        found[module_id] = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
    return found


def weights(learner: Learner) -> Any:
    modules = learner.get_weights()
    return np.concatenate([np.ravel(each) for name in sorted(modules) for each in modules[name].values()])


if __name__ == "__main__":
    assert sys.argv[1] in CASES
    main()
