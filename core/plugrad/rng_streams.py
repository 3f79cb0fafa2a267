"""Random streams that depend only on a seed and names; and whose a name is.

They do not depend on the order in which they are made, the hash seed, the clock or the process.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from plugrad.types import ModuleID


def fresh_seed() -> int:
    """A random seed from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)


def stream(seed: int, *names: str) -> np.random.Generator:
    """A generator that is determined by a seed and names, such as `stream(0, "default_policy", "weights")`.

    Args:
        seed: >= 0.
        *names: any number of names; different names give independent generators.

    Returns:
        A new PCG64 generator.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng([seed, *words])


def owner_of(path: str, module_ids: Iterable[ModuleID]) -> ModuleID | None:
    """The module of a path.

    Args:
        path: `<module id>/<name>`, such as the name of a random stream. Both may have slashes.
        module_ids: the possible modules.

    Returns:
        The longest id that fits; None if none does.
    """
    return max((each for each in module_ids if path.startswith(f"{each}/")), key=len, default=None)
