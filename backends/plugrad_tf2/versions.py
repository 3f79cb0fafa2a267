"""What each version of TensorFlow goes without. Imports nothing: `plugrad doctor` runs this file by itself."""

KNOWN_FLAGS = ("2.21.",)
"""Versions of TensorFlow with the flags that plugrad sets; others end the process when they meet an unknown one."""


def what_is_lost(version: str) -> str:
    """What a version of TensorFlow goes without.

    Args:
        version: such as "2.18.0".

    Returns:
        In words; "" if nothing.
    """
    if version.startswith(KNOWN_FLAGS):
        return ""
    known = " and ".join(f"{each}x" for each in KNOWN_FLAGS)
    return (
        f"TensorFlow {version} keeps no compiled programs on disk and no order of operations for one thread: plugrad "
        f"sets both for {known} only"
    )
