"""Where a learner computes: the names of JAX's devices, and arrays, programs and eager code on one of them.

An array on the learner's device is *committed* to it, so that JAX computes there with all that it meets. Where the
process has one CPU only, nothing needs to be placed.

With `sharding="fsdp"` the learner's device is a *group*: all devices of a kind, such as "cpu:0-7". An array is on each
of them, or `plugrad_jax.sharding` has divided it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import ModuleType
from typing import Any, cast

import jax

from plugrad.ops import RULES, Ops
from plugrad_jax import ops

_config: Any = jax.config


@cache
def find() -> dict[str, Any]:
    """The devices of this process by name, its default device's kind first, such as "cuda:0", "cuda:1", "cpu"."""
    found = list(jax.local_devices())
    with suppress(RuntimeError):  # JAX_PLATFORMS=cuda: a process without a CPU device
        found += [each for each in jax.local_devices(backend="cpu") if each not in found]
    return {_name(each): each for each in found}


def _name(device: Any) -> str:
    """As JAX prints it, such as "cuda:0"; the first CPU is "cpu"."""
    if device.platform == "cpu":
        return f"cpu:{device.id}" if device.id else "cpu"
    platform = str(device).partition(":")[0] if device.platform == "gpu" else device.platform
    return f"{platform}:{device.id}"


@cache
def groups() -> dict[str, str]:
    """The name of the group that each device belongs to, such as "cpu:0-7"; a device alone belongs to none."""
    found = find()
    kinds = {name: name.partition(":")[0] for name in found}
    numbers = {
        kind: [found[name].id for name in found if kinds[name] == kind]
        for kind in dict.fromkeys(kinds.values())
    }
    return {
        name: f"{kind}:{min(numbers[kind])}-{max(numbers[kind])}"
        for name, kind in kinds.items()
        if len(numbers[kind]) > 1
    }


@cache
def mesh_of(name: str | None) -> jax.sharding.Mesh | None:
    """The devices of a group, in a row; None for a device, and where there is no name."""
    members = [find()[each] for each, group in groups().items() if group == name]
    return jax.sharding.Mesh(members, (AXIS,)) if members else None


AXIS = "devices"
"""The one axis of a group."""


def num_devices(name: str | None) -> int:
    """Of a group; 1 for a device."""
    mesh = mesh_of(name)
    return 1 if mesh is None else mesh.size


def aliases() -> dict[str, str]:
    """Other names: JAX's word for the platform, such as "gpu:0" for "cuda:0", and "gpu" and "cuda" for the first."""
    found: dict[str, str] = {}
    for name, device in find().items():
        for kind in (name.partition(":")[0], device.platform):
            found[f"{kind}:{device.id}"] = name
            found.setdefault(kind, name)
    return found


def in_host_memory() -> list[str]:
    """The CPUs."""
    cpus = [name for name, device in find().items() if device.platform == "cpu"]
    return [*cpus, *{groups()[name]: None for name in cpus if name in groups()}]


def placement(name: str | None) -> Any:
    """The device that arrays must be put on; None where the process has one CPU only, or for None."""
    found = find()
    return None if name is None or list(found) == ["cpu"] else found[_first_of(name)]


def _first_of(name: str) -> str:
    """A device; the first of a group."""
    return next((device for device, group in groups().items() if group == name), name)


def platform_of(name: str | None) -> str:
    """Such as "cpu" or "gpu"; that of the process if `name` is None."""
    platform: str = jax.default_backend() if name is None else find()[_first_of(name)].platform
    return platform


def put(x: Any, name: str | None) -> Any:
    """An array on a device, or on each of a group; it stays as it is while a program is traced, or on an only CPU.

    Args:
        x: numpy array, or tensor.
        name: of the device.
    """
    device = placement(name)
    if device is None or isinstance(x, jax.core.Tracer):
        return x
    if (mesh := mesh_of(name)) is not None:
        on_each = jax.sharding.PartitionSpec()  # type: ignore[no-untyped-call]
        return jax.device_put(x, jax.sharding.NamedSharding(mesh, on_each))
    is_there = isinstance(x, jax.Array) and x.committed and x.devices() == {device}
    return x if is_there else jax.device_put(x, device)


def compiled(function: Callable[..., Any], name: str | None) -> Any:
    """`jax.jit` of a function whose arguments and results are on a device; those of a group say themselves where."""
    device = placement(name)
    if device is None or mesh_of(name) is not None:
        return jax.jit(function)
    place = jax.sharding.SingleDeviceSharding(device)
    return jax.jit(function, in_shardings=place, out_shardings=place)


@contextmanager
def computing_on(name: str | None) -> Iterator[None]:
    """While it lasts, JAX makes new arrays on a device, and multiplies float32 matrices in float32.

    JAX's default on a GPU is TF32, which keeps 10 of 23 bits. A user's `jax_default_matmul_precision` stays.
    """
    device = placement(name)
    if platform_of(name) != "cpu" and _config.jax_default_matmul_precision is None:
        with jax.default_device(device), jax.default_matmul_precision("highest"):
            yield
    elif device is not None:
        with jax.default_device(device):
            yield
    else:
        yield


@cache
def ops_on(name: str | None) -> Ops:
    """`plugrad_jax.ops`, whose ops that make tensors of none make them on a device.

    Ops that ask for a platform, as convolutions do, compute in the way that is fast there.
    """
    if placement(name) is None:
        return ops
    bound = ModuleType(f"{ops.__name__} on {name}")
    vars(bound).update({key: value for key, value in vars(ops).items() if not key.startswith("__")})
    for key, rule in RULES.items():
        op: Any = getattr(ops, key, None)
        if not rule.tensors:
            setattr(bound, key, _placed(op, name))
        elif "platform" in getattr(op, "__annotations__", {}):
            setattr(bound, key, partial(op, platform=platform_of(name)))
    return cast(Ops, bound)


def _placed(function: Any, name: str | None) -> Any:
    def on_device(*args: Any, **kwargs: Any) -> Any:
        with computing_on(name):
            return put(function(*args, **kwargs), name)

    return on_device


def free_memory(name: str) -> int | None:
    """The bytes that JAX may still take on a device; None where it does not say, as of a CPU or of a group."""
    device = find().get(name)
    stats = None if device is None else device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
