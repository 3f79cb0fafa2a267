"""Schedules against numpy's interpolation, and how changing settings reach a loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugrad import AlgorithmConfig
from plugrad.config import field
from plugrad.errors import ConfigError
from plugrad.schedules import Coefficients, Schedule

values = st.floats(-1e3, 1e3)
points = (
    st.lists(st.tuples(st.integers(1, 10**7), values), max_size=5, unique_by=lambda point: point[0])
    .map(sorted)
    .flatmap(lambda rest: values.map(lambda first: [[0, first], *map(list, rest)]))
)


@given(points, st.integers(0, 2 * 10**7))
def test_a_schedule_is_piecewise_linear_and_constant_after_its_last_point(setting, timestep):
    schedule = Schedule.of(setting)
    expected = np.interp(timestep, [point[0] for point in setting], [point[1] for point in setting])
    np.testing.assert_allclose(schedule.at(timestep), expected, rtol=1e-9, atol=1e-9)
    assert schedule.is_constant == (len(setting) == 1)


@given(points)
def test_a_schedule_meets_its_points_exactly(setting):
    schedule = Schedule.of(setting)
    assert [schedule.at(timestep) for timestep, _ in setting] == [value for _, value in setting]
    assert schedule.at(setting[-1][0] + 1) == setting[-1][1]


@pytest.mark.parametrize("number", [3, 0.5, np.float32(0.5), np.float64(0.25), np.int64(2)])
def test_a_number_is_a_constant(number):
    schedule = Schedule.of(number)
    assert schedule.is_constant
    assert {schedule.at(timestep) for timestep in (0, 1, 10**9)} == {float(number)}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ([], r"must begin at 0 and increase, got \[\]"),
        ([[1, 0.5], [2, 0.1]], r"must begin at 0 and increase, got \[1, 2\]"),
        ([[0, 0.5], [10, 0.1], [10, 0.2]], r"must begin at 0 and increase, got \[0, 10, 10\]"),
        ([[0, 0.5], [20, 0.1], [10, 0.2]], r"must begin at 0 and increase, got \[0, 20, 10\]"),
        ([0.5, 0.1], r"is a number or \[\[0, value\], .*got \[0.5, 0.1\]"),
        ("fast", "is a number or .*got 'fast'"),
        ([[0, None]], r"is a number or .*got \[\[0, None\]\]"),
    ],
)
def test_what_is_no_schedule_is_refused(setting, words):
    with pytest.raises(ConfigError, match=words):
        Schedule.of(setting)


# --- coefficients -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config(AlgorithmConfig):
    clip: Any = field(0.2, schedulable=True, help="follows a schedule")
    bonus: Any = field(0.5, schedulable=True, help="constant here")
    limit: Any = field(None, schedulable=True, help="not set")
    kl_coeff: float = field(0.3, variable=True, help="moved by the algorithm")
    cap: float = field(2.0, help="never changes")


class Tensor:
    """What a backend's variable would be."""

    def __init__(self, value: float) -> None:
        self.value = value

    def read(self) -> float:
        return self.value

    def assign(self, value: float) -> None:
        self.value = value


CONFIG = Config().training(lr=[[0, 1.0], [10, 0.0]], clip=[[0, 0.2], [100, 0.1]])


def test_scheduled_and_variable_fields_become_variables_and_no_others():
    coefficients = Coefficients(CONFIG, Tensor)
    assert set(coefficients.variables) == {"clip", "bonus", "kl_coeff"}  # lr is the optimizers'
    assert coefficients["clip"].read() == 0.2


def test_a_loss_reads_the_value_of_the_moment():
    coefficients = Coefficients(CONFIG, Tensor)
    view = coefficients.view
    assert (view.clip, view.bonus, view.kl_coeff, view.cap, view.limit) == (0.2, 0.5, 0.3, 2.0, None)
    coefficients.move_to(50)
    coefficients["kl_coeff"].assign(0.45)
    assert view.clip == pytest.approx(0.15)
    assert (view.bonus, view.kl_coeff, view.cap) == (0.5, 0.45, 2.0)


def test_a_schedule_moves_no_variable_that_the_algorithm_moves():
    coefficients = Coefficients(CONFIG, Tensor)
    coefficients["kl_coeff"].assign(0.9)
    coefficients["bonus"].assign(0.7)
    coefficients.move_to(1000)
    assert [coefficients[name].read() for name in ("clip", "kl_coeff", "bonus")] == [0.1, 0.9, 0.7]


def test_a_setting_that_a_config_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="clipp"):
        _ = Coefficients(CONFIG, Tensor).view.clipp
