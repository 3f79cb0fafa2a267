"""Where env runners run: in Ray actors, or in processes of this machine."""

import os
import pickle
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from plugrad.config import Config
from plugrad.env_runners.actor import EnvRunnerActor
from plugrad.errors import PlugradError
from plugrad.workers.actors import Actor, RayCalls, kill_all
from plugrad.workers.answers import Calls, LostActor, gather
from plugrad.workers.placement import Placement
from plugrad.workers.process import ProcessCalls, WorkerProcess
from plugrad.workers.ray_cluster import get_ray, num_cpus_to_reserve, put

SHUTDOWN_S = 3.0
Worker = Actor | WorkerProcess


class EnvRunnerWorkers(Protocol):
    """Starts and ends the processes of `EnvRunnerActor`s, and says how they are called.

    Attributes:
        calls: how their answers are received.
    """

    calls: Calls

    def start(self, ranks: Iterable[int]) -> Mapping[int, Worker]:
        """Start processes of these ranks, whose env runners are not built yet."""
        ...

    def put(self, value: Any) -> Any:
        """A stand-in for a value that several calls take as an argument."""
        ...

    def stop(self, workers: Collection[Any]) -> None:
        """End the processes of these workers."""
        ...


def make_workers(config: Config) -> EnvRunnerWorkers:
    """The workers that `config.env_runner_backend` names.

    "auto" is "ray" where learners are remote, where Ray is initialised, or where RAY_ADDRESS names a cluster.

    Raises:
        MissingFrameworkError: they are Ray's, and Ray is not installed.
    """
    backend = config.env_runner_backend
    if backend == "auto":
        backend = "ray" if config.num_learners or _ray_is_in_use() else "process"
    return RayWorkers(config) if backend == "ray" else ProcessWorkers(config)


def _ray_is_in_use() -> bool:
    ray = sys.modules.get("ray")
    return bool(os.environ.get("RAY_ADDRESS")) or (ray is not None and ray.is_initialized())


class ProcessWorkers:
    """Processes of this machine."""

    def __init__(self, config: Config) -> None:
        self.calls: Calls = ProcessCalls()
        self._timeout_s = config.timeout_s

    def start(self, ranks: Iterable[int]) -> Mapping[int, Worker]:
        """See `EnvRunnerWorkers`."""
        return {
            rank: WorkerProcess(EnvRunnerActor, rank, sys.path, timeout_s=self._timeout_s) for rank in ranks
        }

    def put(self, value: Any) -> Any:
        """See `EnvRunnerWorkers`: the value, encoded once."""
        return _Encoded(value)

    def stop(self, workers: Collection[Any]) -> None:
        """See `EnvRunnerWorkers`. Environments are closed, unless a worker is busy for longer than `SHUTDOWN_S`."""
        gather(self.calls, {i: each.call("close") for i, each in enumerate(workers)}, SHUTDOWN_S)
        for each in workers:
            each.kill()


class _Encoded:
    """A value that is encoded once however often it is sent; who receives it gets the value."""

    def __init__(self, value: Any) -> None:
        self._encoded = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._encoded,)


class RayWorkers:
    """Ray actors.

    Raises:
        MissingFrameworkError: Ray is not installed.
    """

    def __init__(self, config: Config) -> None:
        self._ray = get_ray(f"num_env_runners={config.num_env_runners}")
        self.calls: Calls = RayCalls(self._ray)
        self._timeout_s = config.build_timeout_s
        self._number = config.num_env_runners
        self._placement = Placement(
            self._ray,
            config.env_runner_placement,
            {"num_cpus": num_cpus_to_reserve(self._ray, 1)},
            what=f"env_runner_placement={config.env_runner_placement!r}",
            smaller="env_runners(num_env_runners=...) with fewer",
            timeout_s=config.timeout_s,
        )

    def start(self, ranks: Iterable[int]) -> Mapping[int, Worker]:
        """See `EnvRunnerWorkers`.

        Raises:
            ConfigError: the cluster has no place for them as `env_runner_placement` asks.
            PlugradError: a worker was lost while it was started.
        """
        self._placement.reserve(self._number)
        new = {rank: self._placement.start(EnvRunnerActor, (rank, sys.path)) for rank in ranks}
        refs = {rank: actor.locate() for rank, actor in new.items()}
        for rank, location in gather(self.calls, refs, self._timeout_s).items():
            if isinstance(location, LostActor):
                kill_all(new.values(), SHUTDOWN_S)
                raise PlugradError(f"env runner {rank} {location.reason}", rank=rank)
            new[rank].location = location
        return new

    def put(self, value: Any) -> Any:
        """See `EnvRunnerWorkers`: a reference to the value in Ray's store."""
        return put(self._ray, value)

    def stop(self, workers: Collection[Any]) -> None:
        """See `EnvRunnerWorkers`."""
        kill_all(workers, SHUTDOWN_S)
        self._placement.release()
