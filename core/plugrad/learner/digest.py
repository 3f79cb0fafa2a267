"""A learner's whole state in sixteen bytes: equal for two learners only if they are. Knows no framework."""

from hashlib import blake2b
from typing import Any

from plugrad.learner.undo import state_variables


def digest(learner: Any) -> str:
    """Of weights, slots, learning rates, coefficients, counters and random streams, to the bit.

    Flat vectors are hashed as they lie: a few megabytes cost a few milliseconds, names cost nothing.
    """
    found = blake2b(digest_size=16)
    for variable in state_variables(learner):
        found.update(variable.numpy().tobytes())
    for module_id in sorted(set(learner.module) - set(learner.trainable_module_ids)):
        for value in learner.module[module_id].get_state().values():
            found.update(value.tobytes())
    streams = {name: rng.bit_generator.state for name, rng in learner.streams.items()}
    names = (list(learner.module), list(learner.registered_optimizers))
    found.update(repr((names, sorted(learner.counters.items()), sorted(streams.items()))).encode())
    return found.hexdigest()
