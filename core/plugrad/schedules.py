"""Values that change during training: piecewise-linear schedules, and the coefficients that a loss reads.

A scheduled field of the config reaches the loss as the tensor of a variable, so that a traced program reads its
current value.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any

from plugrad.config.fields import config_fields
from plugrad.errors import ConfigError
from plugrad.ops import Variable
from plugrad.types import Tensor


@dataclass(frozen=True)
class Schedule:
    """Piecewise linear between `[timestep, value]` points, constant after the last.

    Args:
        points: `((0, value), (timestep, value), ...)`, timesteps (environment steps) increasing.

    Raises:
        ConfigError: the timesteps do not begin at 0 or do not increase.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        timesteps = [timestep for timestep, _ in self.points]
        if timesteps[:1] != [0] or any(a >= b for a, b in pairwise(timesteps)):
            raise ConfigError(f"a schedule's timesteps must begin at 0 and increase, got {timesteps}")

    @classmethod
    def of(cls, setting: Any) -> "Schedule":
        """Make a schedule from a number, which is constant, or a list of points.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(setting, Real):
            return cls(((0, float(setting)),))
        try:
            points = tuple((int(timestep), float(value)) for timestep, value in setting)
        except (TypeError, ValueError):
            raise ConfigError(
                f"a schedule is a number or [[0, value], [timestep, value], ...], got {setting!r}"
            ) from None
        return cls(points)

    @property
    def is_constant(self) -> bool:
        """Whether the value never changes."""
        return len(self.points) == 1

    def at(self, timestep: int) -> float:
        """The value at a timestep."""
        if self.is_constant:
            return self.points[0][1]
        after = bisect_right([point[0] for point in self.points], timestep)
        if after == len(self.points):
            return self.points[-1][1]
        if after == 0:
            return self.points[0][1]
        (t0, v0), (t1, v1) = self.points[after - 1], self.points[after]
        return v0 + (v1 - v0) * (timestep - t0) / (t1 - t0)


class Coefficients:
    """One module's config fields that change between updates, as variables of the backend.

    Args:
        config: the module's config. Fields declared `schedulable` follow their schedule; those declared `variable`
            keep what the algorithm assigns (PPO's KL coefficient).
        variable: makes a variable from a float.

    Attributes:
        view: the config as a loss sees it.
    """

    def __init__(self, config: Any, variable: Callable[[float], Variable]) -> None:
        self._schedules: dict[str, Schedule] = {}
        self.variables: dict[str, Variable] = {}
        for name, info in config_fields(type(config)).items():
            setting = getattr(config, name)
            if not (info.schedulable or info.variable) or name == "lr" or setting is None:
                continue
            schedule = Schedule.of(setting)
            self.variables[name] = variable(schedule.at(0))
            if not schedule.is_constant:
                self._schedules[name] = schedule
        self.view = ConfigView(config, self.variables)

    def __getitem__(self, name: str) -> Variable:
        return self.variables[name]

    def move_to(self, timestep: int) -> None:
        """Set every scheduled coefficient to its value at a timestep."""
        for name, schedule in self._schedules.items():
            self.variables[name].assign(schedule.at(timestep))


class ConfigView:
    """A config whose changing fields are scalar tensors; all others are as they are.

    Args:
        config: a module's config.
        variables: `{field: variable}` of the fields that change.
    """

    def __init__(self, config: Any, variables: Mapping[str, Variable]) -> None:
        self._config = config
        self._variables = variables
        vars(self).update({name: getattr(config, name) for name in config.fields() if name not in variables})

    def over(self, config: Any) -> "ConfigView":
        """The view of another config, with the fields that change as they are here; None: this one."""
        return self if config is None else ConfigView(config, self._variables)

    def __getattr__(self, name: str) -> Any | Tensor:
        variable = self._variables.get(name)
        return getattr(self._config, name) if variable is None else variable.read()
