"""Samples that nobody has collected yet, as part of a checkpoint."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.env_runners.actor import Answer
from plugrad.sampling.sample import sample_from_state


def state_of_answer(answer: Answer, weights_version: int) -> dict[str, Any]:
    """The state of an answer, for `answer_of_state`.

    Args:
        answer: of an env runner.
        weights_version: the present one.

    Returns:
        Nested dicts and lists of arrays and plain values.
    """
    return {
        "sample": answer.sample.get_state(weights_version),
        "num_episodes": answer.num_episodes,
        "finished_returns": np.array([each[0] for each in answer.finished], np.float64),
        "finished_lengths": np.array([each[1] for each in answer.finished], np.int64),
        "statistics": dict(answer.statistics),
        "returns_by_name": {name: np.array(each) for name, each in answer.returns_by_name.items()},
        "steps_by_name": dict(answer.steps_by_name),
    }


def answer_of_state(state: Mapping[str, Any], weights_version: int) -> Answer:
    """The answer of a state of `state_of_answer`.

    Args:
        state: the state.
        weights_version: of the weights with which the run is resumed.

    Returns:
        The answer, whose sample is as many versions old as it was.
    """
    pairs = zip(state["finished_returns"].tolist(), state["finished_lengths"].tolist(), strict=True)
    returns = {name: each.tolist() for name, each in state["returns_by_name"].items()}
    counts = state["num_episodes"], list(pairs), state["statistics"], returns, state["steps_by_name"]
    return Answer(sample_from_state(state["sample"], weights_version), *counts)
