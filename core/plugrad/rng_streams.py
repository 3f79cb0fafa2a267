"""Random streams that depend only on a seed and names.

They do not depend on the order in which they are made, the hash seed, the clock or the process.
"""

import hashlib

import numpy as np


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
