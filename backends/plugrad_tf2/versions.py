"""The names of TensorFlow that plugrad uses and that are not public, and what each version goes without.

Imports no TensorFlow: `plugrad doctor` runs this file by itself.
"""

from plugrad.hooks.private_names import PrivateName, lacking, lacking_in_files

KNOWN_FLAGS = ("2.18.", "2.19.", "2.20.", "2.21.")
"""Versions of TensorFlow with the flags that plugrad sets; others end the process when they meet an unknown one."""

TURN_NAN_INTO_NUMBERS = ("2.18.", "2.20.")
"""Versions that were seen, of which a function of XLA gives a number for NaN."""

_CONCRETE = "tensorflow.python.eager.polymorphic_function.concrete_function"
CALL_FLAT = PrivateName(
    _CONCRETE,
    "ConcreteFunction._call_flat",
    "TensorFlow binds the arguments of each update by name, 0.1 to 0.3 ms slower",
)
EXECUTE = PrivateName(
    "tensorflow.python.eager.execute", "execute", "variables are read one by one, not in one call"
)
CONTEXT = PrivateName(
    "tensorflow.python.eager.context",
    "context",
    "variables are read one by one, and TensorFlow's seed stays set after a module is made",
)
NAMES = (CALL_FLAT, EXECUTE, CONTEXT)


def what_is_lost(version: str) -> str:
    """What a version of TensorFlow goes without; its private names are looked up in its files.

    Args:
        version: such as "2.18.0".

    Returns:
        In words; "" if nothing.
    """
    return "; ".join(filter(None, (lost_flags(version), lost_nan(version), lacking_in_files(NAMES))))


def with_what_is_lost(reason: str, version: str) -> str:
    """The reason of an update mode, with what it goes without in a version of TensorFlow."""
    return "; ".join(filter(None, (reason, lost_flags(version), lacking(NAMES))))


def lost_nan(version: str) -> str:
    """What a version goes without because its XLA gives a number for NaN; "" if nothing."""
    if not version.startswith(TURN_NAN_INTO_NUMBERS):
        return ""
    return (
        f"XLA of TensorFlow {version} turns some NaN into numbers, so one inside a network may not be found"
    )


def lost_flags(version: str) -> str:
    """What a version goes without because plugrad sets it no flags; "" if nothing."""
    if version.startswith(KNOWN_FLAGS):
        return ""
    known = ", ".join(f"{each}x" for each in KNOWN_FLAGS)
    return (
        f"TensorFlow {version} keeps no compiled programs on disk and no order of operations for one thread: plugrad "
        f"sets both for {known} only"
    )
