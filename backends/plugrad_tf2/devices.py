"""Where a learner computes: the names of TensorFlow's devices, and operations on one of them.

TensorFlow runs a program, and an operation by itself, on its first device, and copies in silence what is on another.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import tensorflow as tf


def find() -> tuple[str, ...]:
    """The devices of this process, GPUs first; several CPUs where a user has divided one."""
    gpus = [f"gpu:{n}" for n, _ in enumerate(tf.config.list_physical_devices("GPU"))]
    return (*gpus, *in_host_memory())


def in_host_memory() -> list[str]:
    """The CPUs. Asked of the settings: to list logical devices would make those of GPUs, which are then fixed."""
    parts = [
        part
        for each in tf.config.list_physical_devices("CPU")
        for part in tf.config.get_logical_device_configuration(each) or [None]
    ]
    return ["cpu", *(f"cpu:{n}" for n in range(1, len(parts)))]


@cache  # asked at every call of a learner
def is_first(device: str) -> bool:
    """Whether it is the device on which TensorFlow computes by itself.

    Args:
        device: plugrad's name, or that of a tensor.
    """
    return device.lower().endswith(("cpu", "cpu:0")) and not tf.config.list_physical_devices("GPU")


def computing_on(device: str) -> AbstractContextManager[None]:
    """While it lasts, TensorFlow computes on a device."""
    found: AbstractContextManager[None] = nullcontext() if is_first(device) else tf.device(device)
    return found
