"""Random streams that depend on a seed and on names only.

They do not depend on the order in which they are made, nor on hash seed, clock or process.
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
        *names: in any number; other names give an independent generator.

    Returns:
        A new PCG64 generator.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng([seed, *words])
