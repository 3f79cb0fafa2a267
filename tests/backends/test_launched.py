"""Learners in processes that something else has started: torchrun, or whoever sets the variables that it sets."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import launched
import needs
import numpy as np
import pytest
from learning import weights
from one_node_slurm import one_node_slurm
from pages import BLOCK, DOCS
from worker_forks import forked_workers

from plugrad import LearnerGroup
from plugrad.errors import ConfigError

TESTS = Path(launched.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    """Processes with launched.py import nothing again, where tests compile quickly."""
    with (
        TemporaryDirectory(prefix="plugrad-") as folder,
        pytest.MonkeyPatch.context() as environment,
        forked_workers(os.path.join(folder, "workers"), environment),
    ):
        yield


def started(
    backend: str, folder: Path, what: str, size: int = 3, absent: tuple[int, ...] = (), fails: bool = False
) -> list[Any]:
    """What each of several processes found, or said if it fails; started by variables as torchrun sets them."""
    command = [str(TESTS / "launched.py"), backend, str(folder), what]
    processes = launched.start(command, size=size, absent=absent)
    said = [each.communicate(timeout=240)[0] for each in processes]
    if fails:
        assert all(each.returncode for each in processes)
        return said
    assert [each.returncode for each in processes] == [0] * len(processes), "\n".join(said)
    return found_by_all(folder / what)


def found_by_all(folder: Path) -> list[Any]:
    return [dict(np.load(folder / name)) for name in sorted(os.listdir(folder)) if name.endswith(".npz")]


def one_learner(backend: str, size: int, updates: int) -> Any:
    """One learner, with the rows of all."""
    learner = launched.config(backend).build_learner()
    for update in range(updates):
        learner.update(launched.whole(update, size))
    return learner


def test_each_process_with_its_own_rows_is_one_learner_with_all(backend: str, tmp_path: Path) -> None:
    found = started(backend, tmp_path, "plain")
    one = one_learner(backend, 3, launched.UPDATES)
    assert len(found) == 3
    for each in found:
        np.testing.assert_allclose(each["weights"], weights(one), rtol=0, atol=1e-6)
        assert each["weights"].tobytes() == found[0]["weights"].tobytes()
        assert [int(each[f"rows {n}"]) for n in range(launched.UPDATES)] == [
            sum(launched.NUMBERS)
        ] * launched.UPDATES
    alone = LearnerGroup.from_checkpoint(tmp_path / "plain" / "run")  # which no launcher has started
    for update in range(2, launched.UPDATES):
        alone.update(launched.whole(update, 3))
    np.testing.assert_allclose(alone.foreach_learner(weights)[0], weights(one), rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What three processes found that take steps by the verbs, and then have one trouble after the other."""
    needs.backend("torch")
    return started("torch", tmp_path_factory.mktemp("troubled"), "faults")


def test_the_verbs_of_each_process_are_those_of_one_learner_with_all_rows(troubled: list[Any]) -> None:
    one = launched.config("torch").build_learner()
    for step in range(2):
        for call in range(2):
            one.forward_backward(launched.whole(2 * step + call, 3, launched.scaled))
        one.optim_step()
    for rank, each in enumerate(troubled):
        np.testing.assert_allclose(each["weights after verbs"], weights(one), rtol=0, atol=1e-6)
        assert [int(each[f"rows {step}"]) for step in range(2)] == [2 * sum(launched.NUMBERS)] * 2
        assert (
            f"accumulated_calls={1 if rank == 1 else 0} on" in str(each["dropped alone"]).partition("and")[2]
        )
        assert each["error of a verb"] == ("ZeroDivisionError" if rank == 1 else "CollectiveError")
        assert each["undone verb"]


def test_an_error_is_raised_and_undone_in_all_and_what_cannot_be_mended_names_the_process(
    troubled: list[Any],
) -> None:
    one = one_learner("torch", 3, 2)
    for rank, each in enumerate(troubled):
        assert "learner 1 has other networks than learner 0" in str(each["networks"])
        assert "is float32[3, 5], and float32[3, 4] on learner 0" in str(each["networks"])
        assert "column 'actions'" in str(each["refused"])
        assert ("found list" if rank == 1 else "learner 1 cannot use its rows: BatchError") in str(
            each["alone"]
        )
        assert each["undone"]
        for name in ("weights after errors", "weights"):
            np.testing.assert_allclose(each[name], weights(one), rtol=0, atol=1e-6)
        assert "learner 1 is not equal to learner 0" in str(each["changed"])
    for each in troubled[:2]:
        assert "learner 2" in str(each["ended"])
        assert str(each["later"]).startswith("LearnerGroupDeadError: learner 2 of 3 did not come within 5 s")


def test_a_process_that_never_came_is_named(tmp_path: Path) -> None:
    needs.backend("torch")
    said = started("torch", tmp_path, "plain", absent=(1,), fails=True)
    assert all("LearnerTimeoutError: learner 1 of 3 did not come within" in each for each in said)


def test_a_process_that_ends_or_is_missing_is_named_within_the_timeouts(backend: str, tmp_path: Path) -> None:
    needs.backend("torch")
    found, _ = started(backend, tmp_path, "ended", size=2)
    assert "learner 1 " in str(found["ended"])
    assert str(found["later"]).startswith("LearnerGroupDeadError: learner 1 of 2 did not come within 5 s")
    assert str(found["missing"]).startswith("LearnerTimeoutError: learner 1 of 2 did not come within 3 s")
    np.testing.assert_array_equal(found["weights"], found["weights before"])


ALSO_LONG = ["torch", *(pytest.param(each, marks=pytest.mark.long) for each in ("tf2", "jax"))]


def by_torchrun_in(folder: Path, *arguments: str) -> None:
    """Two processes; both are started once more if one fails."""
    needs.backend("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "--monitor-interval", "0.1", str(TESTS / "launched.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=ALSO_LONG)
def by_torchrun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A backend, and where two processes wrote what they found with one group of learners after the other."""
    needs.backend(request.param)
    folder = tmp_path_factory.mktemp("torchrun")
    by_torchrun_in(folder, request.param, ".", "process group", "plain", "sequences", "episodes")
    return request.param, folder


def assert_is_one_learner(backend: str, size: int, found: list[Any]) -> None:
    """With the rows of all."""
    one = weights(one_learner(backend, size, launched.UPDATES))
    assert len(found) == size
    for each in found:
        np.testing.assert_allclose(each["weights"], one, rtol=0, atol=1e-6)


def test_torchrun_starts_them_also_where_the_program_has_a_process_group_of_its_own(
    by_torchrun: tuple[str, Path],
) -> None:
    backend, folder = by_torchrun
    assert_is_one_learner(backend, 2, found_by_all(folder / "plain"))


@pytest.mark.parametrize("backend", ALSO_LONG)
def test_what_torchrun_starts_again_goes_on_from_the_checkpoint_and_meets_none_of_its_former_life(
    backend: str, tmp_path: Path
) -> None:
    """TorchRL's case of a restart that begins a new generation."""
    needs.backend(backend)
    by_torchrun_in(tmp_path, backend, ".", "restarted")
    found = found_by_all(tmp_path / "restarted")
    assert [int(each["attempt"]) for each in found] == [1, 1]
    assert_is_one_learner(backend, 2, found)


TWO_AND_MORE = [2, pytest.param(4, marks=pytest.mark.long)]
"""Processes of a launcher. Four show what two do, and that nothing hangs on two; they cost the double."""


@pytest.mark.parametrize("size", TWO_AND_MORE)
def test_open_mpi_starts_them(size: int, backend: str, tmp_path: Path) -> None:
    needs.backend("torch")
    needs.launcher("mpirun")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(size)]
    assert_is_one_learner(backend, size, found_of(command, backend, tmp_path))


@pytest.mark.parametrize("size", TWO_AND_MORE)
def test_slurm_starts_them(size: int, backend: str, tmp_path: Path) -> None:
    """On one node, of which each test is the only user."""
    needs.backend("torch")
    needs.launcher("srun", "slurmctld", "slurmd")
    needs.root()
    with one_node_slurm(tmp_path) as variables:
        found = found_of(["srun", "-n", str(size)], backend, tmp_path, variables)
    assert_is_one_learner(backend, size, found)


def found_of(
    launcher: list[str], backend: str, folder: Path, variables: Mapping[str, str] | None = None
) -> list[Any]:
    """What processes found that a launcher has started."""
    command = [*launcher, sys.executable, str(TESTS / "launched.py"), backend, str(folder), "plain"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return found_by_all(folder / "plain")


@pytest.mark.parametrize("what", ["sequences", "episodes"])
def test_so_are_sequences_of_other_lengths_and_episodes_and_modules_in_another_order(
    what: str, by_torchrun: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of one process that is launched alone. RLlib hangs at modules in opposite orders: ray#63819."""
    backend, folder = by_torchrun
    place = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(launched.free_port()),
    }
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with launched.group_for(backend, what) as group:
        found = getattr(launched, what)(group, 0, tmp_path)
        one = {"weights": launched.trained(group), **found}
    both = found_by_all(folder / what)
    assert len(both) == 2
    for each in both:
        np.testing.assert_allclose(each["weights"], one["weights"], rtol=0, atol=1e-6)


def test_the_program_of_the_page_runs_in_two_processes(tmp_path: Path) -> None:
    needs.backend("torch")
    (program,) = (found for found, _ in BLOCK.findall((DOCS / "your-cluster.md").read_text()))
    (tmp_path / "train.py").write_text(program)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "train.py",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained by 2 learners\n"


MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
SLURM = {"SLURM_PROCID": "2", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29500", **SLURM},
            (3, 4, "node1", 29500),
        ),
        ({**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_PORT": "1234"}, (1, 4, "127.0.0.1", 1234)),
        ({**MPI, "MASTER_ADDR": "node2", "MASTER_PORT": "1234"}, (1, 4, "node2", 1234)),
        ({**SLURM, "SLURM_STEP_NODELIST": "gpu[003-005,9]"}, (2, 8, "gpu003", None)),
        ({**SLURM, "SLURM_JOB_NODELIST": "login1,gpu[1-2]"}, (2, 8, "login1", None)),
        ({**SLURM, "SLURM_JOB_NODELIST": "rack[1,2]-node7.org"}, (2, 8, "rack1-node7.org", None)),
    ],
)
def test_the_place_of_a_process_is_read_from_what_its_launcher_sets(
    variables: dict[str, str], expected: tuple[int, int, str, int | None]
) -> None:
    needs.backend("torch")
    from plugrad_collectives.environment import PORTS, read_environment

    found = read_environment(variables)
    assert found[:3] == expected[:3]
    assert found[3] == expected[3] or (expected[3] is None and found[3] in PORTS)
    assert read_environment(variables) == found  # all processes of a job find the same port


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "Start the program with torchrun"),
        ({"RANK": "0"}, "Start the program with torchrun"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 is not from 0 to WORLD_SIZE - 1 = 3"),
        ({"RANK": "one", "WORLD_SIZE": "4"}, "RANK='one' is no number"),
        ({"RANK": "0", "WORLD_SIZE": "4"}, "MASTER_ADDR is not"),
        (MPI, "mpirun -x MASTER_ADDR"),
    ],
)
def test_what_is_missing_is_said_with_what_to_type(variables: dict[str, str], said: str) -> None:
    needs.backend("torch")
    from plugrad_collectives.environment import read_environment

    with pytest.raises(ConfigError, match=said):
        read_environment(variables)


@pytest.mark.parametrize(
    ("settings", "build", "said"),
    [
        ({"launcher": "envv"}, "build_learner", "envv.*Did you mean 'env'"),
        ({"launcher": "env"}, "build_algo", "Sample in each process"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], build: str, said: str) -> None:
    needs.backend("torch")
    config = launched.config("torch").learners(**settings)
    with pytest.raises(ConfigError, match=said):
        getattr(config, build)()
