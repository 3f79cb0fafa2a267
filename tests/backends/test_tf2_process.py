"""What the tf2 backend leaves as it was in its process: the environment, TensorFlow's switches, the user's settings."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needs
import pytest

IN_ORDER = "xla_cpu_enable_concurrency_optimized_scheduler"
UNSET = (
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_NUM_INTRAOP_THREADS",
)

LIFE_OF_A_LEARNER = """
import json, os
environments = [dict(os.environ)]
import plugrad_tf2
environments.append(dict(os.environ))

import gymnasium as gym
import numpy as np
from plugrad_bc import BCConfig
from tensorflow.python.framework.test_util import IsMklEnabled

spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
config = BCConfig().framework("tf2").training(minibatch_size=4).rl_module(model_config={"fcnet_hiddens": [4]})
learner = config.debugging(seed=0).build_learner(spaces=spaces)
environments.append(dict(os.environ))
learner.update({"obs": np.ones((8, 3), np.float32), "actions": np.zeros(8, np.int64)})
environments.append(dict(os.environ))
assert learner.update_mode == "complete_update: the whole update as one XLA program"
weights = {name: each.tobytes().hex() for name, each in learner.get_weights()["default_policy"].items()}
print(json.dumps({"environments": environments, "onednn": IsMklEnabled(), "weights": weights}))
"""

PLAIN_TENSORFLOW = """
import json, os
before = dict(os.environ)
from tensorflow.python.framework.test_util import IsMklEnabled
changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
print(json.dumps({"changed": changed, "onednn": IsMklEnabled()}))
"""


def printed(code: str, **more: str) -> Any:
    own = {name: value for name, value in os.environ.items() if name not in UNSET} | more
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def kept(cache: Path) -> dict[Path, int]:
    """Compiled programs in a user's cache folder, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in cache.glob("plugrad/tf2/*/*/*.pb")}


def xla_options(folder: Path) -> list[str]:
    """Those that differ from XLA's defaults when it compiled the update; none where TensorFlow does not write them."""
    written = [*folder.glob("*_loop_*.debug_options")]
    assert len(written) == writes_its_options()
    return [line for each in written for line in each.read_text().splitlines()]


def writes_its_options() -> bool:
    version: str = needs.backend("tf2").__version__
    return not version.startswith(("2.18.", "2.19."))


def test_neither_the_import_nor_a_learner_changes_the_environment_or_tensorflow_switches(
    tmp_path: Path,
) -> None:
    needs.backend("tf2")
    plain = printed(PLAIN_TENSORFLOW)
    found = printed(LIFE_OF_A_LEARNER, TF_NUM_INTRAOP_THREADS="1", XLA_FLAGS=f"--xla_dump_to={tmp_path}")
    before, *after = found["environments"]
    assert after == [before | plain["changed"]] * 3
    assert found["onednn"] == plain["onednn"]
    if writes_its_options():
        assert f"{IN_ORDER}: false" in xla_options(tmp_path), "XLA was asked, without a trace"


@pytest.mark.cross_product
@pytest.mark.parametrize(
    ("threads", "flags"), [("1", f"--{IN_ORDER}=true "), ("2", "")], ids=["the user says so", "two threads"]
)
def test_xla_runs_as_it_would_without_plugrad(threads: str, flags: str, tmp_path: Path) -> None:
    needs.backend("tf2")
    said = {
        "XLA_FLAGS": f"{flags}--xla_dump_to={tmp_path}",
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    found = printed(LIFE_OF_A_LEARNER, **said)
    assert f"{IN_ORDER}: false" not in xla_options(tmp_path)
    assert not found["onednn"]
    assert {name: found["environments"][-1][name] for name in said} == said


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A user's cache folder."""
    needs.backend("tf2")
    return tmp_path


def life(cache: Path, **more: str) -> Any:
    """A learner where TensorFlow's errors are hidden."""
    return printed(LIFE_OF_A_LEARNER, **{"TF_CPP_MIN_LOG_LEVEL": "3", "XDG_CACHE_HOME": str(cache)} | more)


def test_an_update_is_compiled_once_for_all_processes(cache: Path) -> None:
    first = life(cache)
    written = kept(cache)
    assert written
    assert all(path.parent.parent.stat().st_mode & 0o077 == 0 for path in written), (
        "others might put code there"
    )
    second = life(cache)
    assert kept(cache) == written, "it was loaded, not compiled and written again"
    assert second["weights"] == first["weights"]
    assert all("TF_XLA_FLAGS" not in each for each in second["environments"])


@pytest.mark.long
def test_programs_for_one_thread_and_for_many_are_not_taken_for_each_other(cache: Path) -> None:
    life(cache, TF_NUM_INTRAOP_THREADS="1")
    of_one = kept(cache)
    life(cache, TF_NUM_INTRAOP_THREADS="2")
    assert len(kept(cache)) > len(of_one)


@pytest.mark.cross_product
@pytest.mark.parametrize(
    "damage",
    [lambda program: b"", lambda program: bytes(range(256)) * 20, lambda program: program[:-100]],
    ids=["empty", "another file", "cut off"],
)
def test_a_damaged_program_is_compiled_anew(damage: Callable[[bytes], bytes], cache: Path) -> None:
    weights = life(cache)["weights"]
    before = {path: path.read_bytes() for path in kept(cache)}
    for path, program in before.items():
        path.write_bytes(damage(program))
    assert life(cache)["weights"] == weights
    assert kept(cache)
    assert all(path.read_bytes() != damage(before[path]) for path in kept(cache).keys() & before.keys())


def test_nothing_is_kept_where_tensorflow_shows_an_error_for_each_program_that_it_loads(cache: Path) -> None:
    life(cache, TF_CPP_MIN_LOG_LEVEL="2")
    assert not kept(cache)


def test_a_folder_that_the_user_chose_stays(cache: Path) -> None:
    theirs = cache / "theirs"
    flags = f"--tf_xla_persistent_cache_directory={theirs}"
    found = life(cache, TF_XLA_FLAGS=flags)
    assert [each["TF_XLA_FLAGS"] for each in found["environments"]] == [flags] * 4
    assert [*theirs.iterdir()]
    assert not kept(cache)


@pytest.mark.long
def test_where_no_folder_can_be_made_a_learner_trains_without_one(cache: Path) -> None:
    (cache / "a file").write_text("")
    assert life(cache / "a file")["weights"]
    assert (cache / "a file").read_text() == ""


@pytest.mark.long
def test_old_programs_are_removed(cache: Path) -> None:
    life(cache)
    (folder,) = {path.parent for path in kept(cache)}
    for n in range(300):
        (folder / f"{n}.pb").write_bytes(b"old")
    life(cache)
    assert len(kept(cache)) < 300


@pytest.mark.parametrize(
    ("version", "lost"), [("2.17.0", True), ("2.22.0", True), ("2.18.0", False), ("2.21.0", False)]
)
def test_the_mode_says_what_a_version_of_tensorflow_goes_without(
    version: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.backend("tf2")
    import tensorflow as tf
    from learning import ppo_batch, ppo_config

    monkeypatch.setattr(tf, "__version__", version)
    learner = ppo_config("tf2", minibatch_size=8, num_epochs=1).build_learner()
    learner.update(ppo_batch(8))
    assert learner.update_mode.startswith("complete_update: the whole update as one XLA program")
    words = (
        f"TensorFlow {version} keeps no compiled programs on disk and no order of operations for one thread"
    )
    assert (words in learner.update_mode) == lost
