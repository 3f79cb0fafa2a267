"""Weights that count how often they are encoded on their way to env runners."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.env_runners.remote_env_runners import RemoteEnvRunners


class Counted(np.ndarray):
    """An array that counts, and arrives as an ordinary one."""

    encoded = 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        Counted.encoded += 1
        return np.ndarray.copy, (np.asarray(self),)


def _counted(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: _counted(each) for name, each in values.items()}
    return values.view(Counted) if isinstance(values, np.ndarray) else values


def _count(values: Any) -> int:
    return sum(map(_count, values.values())) if isinstance(values, Mapping) else isinstance(values, Counted)


def encodings(config: Any, num_env_runners: int, versions: int) -> tuple[list[int], int]:
    """How often arrays of the weights are encoded, after each version; each version acts in two samples.

    Returns:
        The numbers, and how many arrays there are.
    """
    state = _counted(config.build_learner().get_state(("rl_module", "coefficients")))
    present = [0]
    config = config.env_runners(num_env_runners=num_env_runners)
    config = config.learners(num_learners=0)
    runners = RemoteEnvRunners(config, lambda: (present[0], state), lambda: present[0], {})
    found = []
    try:
        for version in range(versions):
            present[0], Counted.encoded = version, 0
            for _ in range(2):
                runners.sample(2)
            found.append(Counted.encoded)
    finally:
        runners.close()
    return found, _count(state)
