"""Numbers of `info` as metrics of whole episodes: the setting `env_runners(info_metrics=...)`.

`numbers_of_info` reads those of one environment, `numbers_of_infos` those of a vectorised one. `InfoMetrics` makes one
number per episode of them.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from plugrad.errors import EnvContractError
from plugrad.sampling.env_checker import describe
from plugrad.types import Array

_log = logging.getLogger("plugrad")

INFO_METRICS = "info_metrics"
"""In the infos of a vector step: float64 [N, names], the numbers of that step; NaN where there is none."""

_COMBINED: Mapping[str, Any] = {
    "mean": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "last": lambda before, value: value,
}


def _metric_name(name: str) -> str:
    """The name of a metric among those of episodes: `info/<name>`."""
    return f"info/{name}"


def numbers_of_info(names: Sequence[str], info: Any, where: object) -> list[float]:
    """The numbers of one info.

    Args:
        names: of the numbers.
        info: of a step.
        where: the environment, for the error.

    Returns:
        One for each name; NaN where the info has none.

    Raises:
        EnvContractError: what it has is no number.
    """
    return [_number(name, info[name], where) if name in info else np.nan for name in names]


def _number(name: str, value: Any, where: object) -> float:
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise EnvContractError(
            f"{where}: info[{name!r}] is {describe(value)}; expected: one number, since info_metrics names it",
            found=describe(value),
            expected="one number",
        )
    return float(found.item())


def numbers_of_infos(
    names: Sequence[str],
    infos: Mapping[str, Any],
    ended: Array,
    name_of_env: str,
    *,
    resets_in_same_step: bool,
) -> Array:
    """The numbers of a step of a vectorised environment.

    Args:
        names: of the numbers.
        infos: of the step, as Gymnasium's vector environments give them: arrays [N], and `_<name>`, which says where
            there is a number.
        ended: bool [N]: where the step ended an episode.
        name_of_env: for the error.
        resets_in_same_step: whether `infos` are of the next episode where one ended; then those of `final_info` count.

    Returns:
        float64 [N, names]; NaN where there is no number.

    Raises:
        EnvContractError: what there is is no number.
    """
    found = np.full((len(ended), len(names)), np.nan)
    final = infos.get("final_info")
    for column, name in enumerate(names):
        has_final = resets_in_same_step and isinstance(final, Mapping)
        sources = [(infos, ~ended), (final, ended)] if has_final else [(infos, np.ones_like(ended))]
        for source, rows in sources:
            if source is None or name not in source:
                continue
            given = np.asarray(source.get(f"_{name}", rows), np.bool_) & rows
            for row in np.flatnonzero(given).tolist():
                where = f"environment {row} of {name_of_env}"
                found[row, column] = _number(name, source[name][row], where)
    return found


class InfoMetrics:
    """Makes one number per episode of the numbers of its steps.

    Args:
        reductions: `{name: "mean", "last", "sum", "min" or "max"}` over the steps that have the number.
        num_envs: how many environments step together.
        next_step_autoreset: the step after an episode's end only resets the environment.
    """

    def __init__(
        self, reductions: Mapping[str, str], num_envs: int, *, next_step_autoreset: bool = False
    ) -> None:
        self._reductions, self._next_step_autoreset = reductions, next_step_autoreset
        self._totals = np.zeros((num_envs, len(reductions)))
        self._counts = np.zeros((num_envs, len(reductions)), np.int64)
        self._only_resets = np.zeros(num_envs, np.bool_)

    def step(self, numbers: Array, ended: Array) -> dict[int, dict[str, float]]:
        """Take the numbers of one step of all environments.

        Args:
            numbers: float64 [N, names]; what is not finite is no number.
            ended: bool [N]: where the step ended an episode.

        Returns:
            The metrics of the episodes that ended, by environment.
        """
        given = np.isfinite(numbers) & ~self._only_resets[:, None]
        for column, reduction in enumerate(self._reductions.values()):
            before, value = self._totals[:, column], numbers[:, column]
            with np.errstate(invalid="ignore"):  # where there is no number
                after = np.where(self._counts[:, column] > 0, _COMBINED[reduction](before, value), value)
            self._totals[:, column] = np.where(given[:, column], after, before)
        self._counts += given
        found = {env: self.of(env) for env in np.flatnonzero(ended).tolist()}
        self._counts[ended] = 0
        if self._next_step_autoreset:
            self._only_resets = ended.copy()
        return found

    def of(self, env: int) -> dict[str, float]:
        """The metrics of an environment's running episode so far, without those of which no step had a number."""
        return {
            _metric_name(name): float(total / count if reduction == "mean" else total)
            for (name, reduction), total, count in zip(
                self._reductions.items(), self._totals[env], self._counts[env], strict=True
            )
            if count
        }

    def reset(self) -> None:
        """Begin new episodes everywhere."""
        self._counts[:] = 0
        self._only_resets[:] = False

    def reset_one(self, env: int) -> None:
        """Begin a new episode in one environment."""
        self._counts[env] = 0

    def get_state(self) -> dict[str, Any]:
        """What the running episodes have so far, `{name: {"total": float64 [N], "count": int64 [N]}}`; copies."""
        return {
            name: {"total": self._totals[:, column].copy(), "count": self._counts[:, column].copy()}
            for column, name in enumerate(self._reductions)
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue running episodes with a state of `get_state`; what it does not have begins anew."""
        self.reset()
        for column, name in enumerate(self._reductions):
            if name in state:
                self._totals[:, column] = state[name]["total"]
                self._counts[:, column] = state[name]["count"]


def warn_of_missing(names: Sequence[str], metrics: Mapping[str, float]) -> None:
    """Say once which names no info has had, if an episode has ended.

    Args:
        names: of the setting.
        metrics: of an env runner.
    """
    if "episode_return_mean" in metrics:
        for name in names:
            key = _metric_name(name)
            if not any(each == key or each.startswith(f"{key}/") for each in metrics):
                _say_missing(name)


@cache
def _say_missing(name: str) -> None:
    _log.warning(
        "info_metrics names %r, but no info of the episodes that have ended has such a number: nothing is reported "
        "under %s",
        name,
        _metric_name(name),
    )
