"""What a collective says of itself, and its sums: those of numpy, for all the same."""

import platform
from collections.abc import Sequence
from concurrent.futures import wait
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from plugrad.collective import Collective, Place
from plugrad.testing import member_process
from plugrad.testing.members import LONG_S, Members, answers
from plugrad.types import Array

__all__ = [
    "test_a_large_array_is_summed",
    "test_a_process_alone_gets_what_it_brought",
    "test_all_get_the_same_bits",
    "test_answers_are_arrays_of_their_own",
    "test_arrays_of_every_layout_are_summed_and_not_changed",
    "test_each_process_counts_once",
    "test_it_says_what_it_needs",
    "test_it_says_where_it_can_be_used",
    "test_many_sums_in_a_row",
    "test_nobody_passes_a_barrier_alone",
    "test_the_sum_is_that_of_numpy",
]


def test_it_says_where_it_can_be_used(collective_class: type[Collective]) -> None:
    """`why_not` gives None or a sentence, of every place, without an error."""
    machines = {platform.machine(), "x86_64", "aarch64", ""}
    for processes, hosts, machine, gpus in product((1, 2, 64), (1, 3), sorted(machines), (0.0, 0.5, 1.0)):
        place = Place(processes, hosts, machine, gpus)
        reason = collective_class.why_not(place)
        words = f"why_not({place}) gives {reason!r}: it must be None, or a reason in words with what to type instead"
        assert reason is None or (isinstance(reason, str) and " " in reason.strip()), words


def test_it_says_what_it_needs(collective_class: type[Collective]) -> None:
    """`requires` is the name of a distribution or None, and `devices` a frozen set of names."""
    requires, devices = collective_class.requires, collective_class.devices
    assert requires is None or (isinstance(requires, str) and requires), f"requires is {requires!r}"
    assert isinstance(devices, frozenset), f"devices is {devices!r}, not a frozenset"
    assert all(isinstance(each, str) for each in devices), f"devices is {devices!r}, not names"


SHAPES = [(), (1,), (0,), (3,), (7, 5), (2, 0, 3), (1031,), (3, 30_011)]
DTYPES = ["float16", "float32", "float64", "uint8", "int32", "int64"]


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of a dtype whose sums stay in its range."""
    if np.dtype(dtype).kind == "f":
        return np.asarray(rng.normal(size=shape)).astype(dtype)
    return np.asarray(rng.integers(0, 50, shape)).astype(dtype)


def check_sums(found: Sequence[Array], arrays: Sequence[Array]) -> None:
    """The same bits for all, and the sum: of integers exactly, of floats but for the rounding of each addition."""
    shape, dtype = arrays[0].shape, arrays[0].dtype
    for rank, total in enumerate(found):
        where = f"the sum of {dtype} {shape} that rank {rank} of {len(found)} gets"
        assert isinstance(total, np.ndarray), f"{where} is a {type(total).__name__}, not an array"
        assert (total.shape, total.dtype) == (shape, dtype), f"{where} is {total.dtype} {total.shape}"
        assert total.tobytes() == found[0].tobytes(), f"{where} has other bits than that of rank 0"
    wide = np.stack(arrays).astype(np.longdouble if dtype.kind == "f" else np.int64)
    rounding = len(arrays) * np.finfo(dtype).eps * np.abs(wide).sum(0) if dtype.kind == "f" else 0
    error = np.abs(found[0].astype(wide.dtype) - wide.sum(0))
    assert np.all(error <= rounding), f"the sum of {dtype} {shape} is wrong by {error.max()}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_that_of_numpy(members: Members, dtype: str) -> None:
    """Of three processes, in every shape: a single number, nothing, odd sizes."""
    epoch, rng = members.enter(3), np.random.default_rng(0)
    for shape in SHAPES:
        arrays = [draw(rng, shape, dtype) for _ in range(3)]
        check_sums(epoch.sum(arrays), arrays)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_get_the_same_bits(members: Members, size: int) -> None:
    """Also where another order of additions gives another sum."""
    epoch = members.enter(size)
    for dtype, large in (("float32", 1e8), ("float64", 1e17)):
        rows = list(permutations([large, 1.0, -large, 3.0][:size]))
        arrays = [np.array([row[rank] for row in rows] * 50, dtype) for rank in range(size)]
        check_sums(epoch.sum(arrays), arrays)


def test_each_process_counts_once(members: Members) -> None:
    """In its own place: rank r brings a 1 at position r, and 2 to the power of r behind it."""
    epoch = members.enter(4)
    arrays = [np.append(np.eye(4)[rank], 2.0**rank) for rank in range(4)]
    for rank, total in enumerate(epoch.sum(arrays)):
        words = f"rank {rank} gets {total.tolist()}: each process must count once, with what it brought"
        assert total.tolist() == [1.0, 1.0, 1.0, 1.0, 15.0], words


def test_a_process_alone_gets_what_it_brought(members: Members) -> None:
    """A collective may have one process."""
    epoch, array = members.enter(1), np.linspace(-1.0, 1.0, 11, dtype=np.float32)
    check_sums(epoch.sum([array]), [array])


def test_a_large_array_is_summed(members: Members) -> None:
    """10 MB, and once more a small one behind it."""
    epoch, rng = members.enter(2), np.random.default_rng(0)
    for size in (2_500_003, 5, 2_500_003):
        arrays = [draw(rng, (size,), "float32") for _ in range(2)]
        check_sums(epoch.sum(arrays), arrays)


def test_many_sums_in_a_row(members: Members) -> None:
    """Of changing sizes, as fast as they can: none gets a number of another one."""
    epoch = members.enter(3)
    for rank, wrong in enumerate(answers(epoch.ask(member_process.many_sums, 200), LONG_S)):
        assert not wrong, f"rank {rank} got a wrong sum in turns {wrong[:10]} of 200"


def test_arrays_of_every_layout_are_summed_and_not_changed(members: Members) -> None:
    """Transposed, strided, read-only, broadcast: the sum is right, and the array stays as it was."""
    epoch = members.enter(2)
    for rank, kinds in enumerate(answers(epoch.ask(member_process.kinds_of_input), LONG_S)):
        for what, array, total in kinds:
            words = f"the sum that rank {rank} gets of an array, {what}"
            np.testing.assert_array_equal(total, 3 / (rank + 1) * array, err_msg=words)


def test_answers_are_arrays_of_their_own(members: Members) -> None:
    """Two answers share no memory, and may be written to."""
    epoch = members.enter(2)
    for rank, faults in enumerate(answers(epoch.ask(member_process.answers_of_ones_own), LONG_S)):
        assert not faults, f"rank {rank}: {'; '.join(faults)}"


def test_nobody_passes_a_barrier_alone(members: Members) -> None:
    """A process waits in it, and in a sum of nothing, until the last one has come."""
    epoch = members.enter(3)
    calls: list[tuple[Any, ...]] = [
        (member_process.barrier, epoch.key),
        (member_process.all_reduce, epoch.key, np.zeros(0)),
    ]
    last, *others = epoch.members
    for call in calls:
        early = [each.ask(*call) for each in others]
        passed, _ = wait(early, 0.3)
        assert not passed, "a process passes before all have come"
        answers([*early, last.ask(*call)], LONG_S)
