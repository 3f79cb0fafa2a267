"""Weights from a driver to env runners on two Ray nodes of this machine: sent to each, and sent once per node.

    python benchmarks/weights_sent.py --env-runners 50

It prints bytes and seconds of both. The nodes share the machine's memory, so that seconds have no network in them.
"""

import argparse
from time import perf_counter
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.experimental import get_object_locations

from plugrad.env_runners.workers import RayWorkers
from plugrad_ppo import PPOConfig


def main() -> None:
    """Start the nodes and the env runners, send to them in both ways, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env-runners", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=4.0, help="of the weights")
    parser.add_argument("--rounds", type=int, default=5, help="the median counts")
    options = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=(options.env_runners + 1) // 2, object_store_memory=200_000_000)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        _measure(options)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _measure(options: argparse.Namespace) -> None:
    number = options.env_runners
    config = PPOConfig().env_runners(
        num_env_runners=number, env_runner_backend="ray", env_runner_placement="spread"
    )
    workers = RayWorkers(config)
    actors = list(workers.start(range(number)).values())
    weights = {
        "rl_module": {"default_policy": {"weight": np.ones(int(options.megabytes * 250_000), np.float32)}}
    }
    size = sum(each.nbytes for each in weights["rl_module"]["default_policy"].values())
    version = 0
    seconds: dict[str, list[float]] = {"to each": [], "once per node": []}
    sent = {"to each": size * number}
    for _ in range(options.rounds):
        for way in seconds:
            version += 1
            begun = perf_counter()
            value: Any = workers.put(weights) if way == "once per node" else weights
            ray.get([each.call("set_weights", version, value, control=True) for each in actors])
            seconds[way].append(perf_counter() - begun)
            if way == "once per node":
                at = get_object_locations([value])[value]
                nodes = {actor.node for actor in actors}
                sent[way] = size * len(nodes & set(at["node_ids"]))
    workers.stop(actors)
    for way, each in seconds.items():
        print(
            f"{way:<14} {sent[way] / 1e6:8.1f} MB to {number} env runners on 2 nodes in {np.median(each):.3f} s"
        )


if __name__ == "__main__":
    main()
