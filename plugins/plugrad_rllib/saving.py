"""`save_state` and `load_state`, of a Learner and of a LearnerGroup: checkpoints are plugrad's, whatever the name."""

import os
from typing import Any

from plugrad_rllib.overrides import beneath, older, older_method

StrPath = str | os.PathLike[str]


class OlderSaving:
    """The older methods: they write JSON and safetensors, never pickle, and read what was written so."""

    save_state = older_method("save_state", "save_to_path")
    load_state = older_method("load_state", "restore_from_path")


def cross_save(owner: Any, below: Any, path: StrPath, **settings: Any) -> str:
    """`save_to_path` by way of an overridden `save_state`."""
    with beneath(owner, save_to_path=lambda path: below(path, **settings)):
        older(owner, "save_state")(path)
    return str(path)


def cross_restore(owner: Any, below: Any, path: StrPath, **settings: Any) -> None:
    """`restore_from_path` by way of an overridden `load_state`."""
    with beneath(owner, restore_from_path=lambda path: below(path, **settings)):
        older(owner, "load_state")(path)
