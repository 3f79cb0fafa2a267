"""`save_state` and `load_state`, of a Learner and of a LearnerGroup: checkpoints are plugrad's, whatever the name."""

import os
from typing import Any

from plugrad.legacy.overrides import beneath, newer, older

StrPath = str | os.PathLike[str]


class LegacySaving:
    """The older methods."""

    def save_state(self, path: StrPath) -> None:
        """`save_to_path`: JSON and safetensors, never pickle."""
        newer(self, "save_to_path", "save_state")(path)

    def load_state(self, path: StrPath) -> None:
        """`restore_from_path`: reads what `save_state` wrote."""
        newer(self, "restore_from_path", "load_state")(path)


def cross_save(owner: Any, below: Any, path: StrPath, **settings: Any) -> str:
    """`save_to_path` by way of an overridden `save_state`."""
    with beneath(owner, save_to_path=lambda path: below(path, **settings)):
        older(owner, "save_state")(path)
    return str(path)


def cross_restore(owner: Any, below: Any, path: StrPath, **settings: Any) -> None:
    """`restore_from_path` by way of an overridden `load_state`."""
    with beneath(owner, restore_from_path=lambda path: below(path, **settings)):
        older(owner, "load_state")(path)
