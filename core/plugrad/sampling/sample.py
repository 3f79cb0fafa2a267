"""`Sample`: what one env runner sampled in answer to one request."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from plugrad.episodes import episode_from_state

if TYPE_CHECKING:
    from plugrad.sampling.tensor_env_runner import TensorSample


class Sample(NamedTuple):
    """What one env runner sampled in answer to one request.

    Args:
        rank: of the env runner.
        weights_version: `LearnerGroup.weights_version` of the weights that acted.
        episodes: whole ones and chunks.
        num_env_steps: environment steps in them.
        tensors: in place of episodes, what environments of tensors gave; no part of the state.
    """

    rank: int
    weights_version: int
    episodes: list[Any]
    num_env_steps: int
    tensors: "TensorSample | None" = None

    def get_state(self, weights_version: int) -> dict[str, Any]:
        """The sample for a checkpoint: nested dicts and lists of arrays and plain values.

        Args:
            weights_version: the present one; the state has the sample's age, since a resumed run counts anew.
        """
        return {
            "rank": self.rank,
            "staleness": weights_version - self.weights_version,
            "episodes": [episode.get_state() for episode in self.episodes],
            "num_env_steps": self.num_env_steps,
        }


def sample_from_state(state: Mapping[str, Any], weights_version: int) -> Sample:
    """The sample of a state of `Sample.get_state`.

    Args:
        state: the state.
        weights_version: of the weights with which the run is resumed.

    Returns:
        The sample, which is as many versions old as it was.
    """
    episodes = [episode_from_state(each) for each in state["episodes"]]
    return Sample(state["rank"], weights_version - state["staleness"], episodes, state["num_env_steps"])
