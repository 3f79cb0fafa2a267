"""States of replay buffers that plugrad wrote before rows were blocks: whole columns, by place."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.replay.storage import check_parts


def in_order_of_age(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of a replay buffer as it is written today.

    Args:
        state: of any version of `get_state`.

    Returns:
        The same rows and priorities, the oldest first.

    Raises:
        RestoreMismatchError: the columns do not fit each other or the number of added rows.
    """
    if "columns" not in state:
        return state
    parts = {"": state["columns"]} if state["columns"] else {}
    number = check_parts(parts, state["added"])
    oldest = -(state["added"] % number) if number else 0
    columns = {name: np.roll(values, oldest, axis=0) for name, values in state["columns"].items()}
    rolled: dict[str, Any] = {"rows": {"": columns} if columns else {}}
    if "priorities" in state:
        rolled["priorities"] = np.roll(state["priorities"], oldest)
    return {**state, **rolled}
