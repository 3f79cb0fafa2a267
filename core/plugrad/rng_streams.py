"""Random streams that depend on a seed and on names, never on the order in which things were made.

Module `b` has its own stream whatever happens to module `a`; hash seed, clock and process play no part.
"""

import hashlib

import numpy as np


def fresh_seed() -> int:
    """A seed from the operating system's entropy, for who gave none."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)


def stream(seed: int, *names: str) -> np.random.Generator:
    """The PCG64 generator of this seed and these names, such as `stream(0, "default_policy", "weights")`."""
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng([seed, *words])
