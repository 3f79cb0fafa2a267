"""`plugrad inspect`: what a checkpoint holds, without a framework and without a plugin."""

import json
import subprocess
import sys

import numpy as np
import pytest
from learning import ppo_batch, ppo_config
from tiny_runs import plugrad

from plugrad.checkpoint import save_checkpoint


def inspect(*arguments, code=0):
    return plugrad("inspect", *arguments, code=code)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("inspect") / "checkpoints"
    learner = ppo_config(hiddens=(2,)).build_learner()
    for _ in range(3):
        learner.update(ppo_batch())
        learner.save_to_path(path)
    return path


def test_a_person_sees_what_it_is_and_how_large_its_parts_are(path):
    lines = [" ".join(line.split()) for line in inspect(path).output.splitlines()]
    assert lines[0] == f"checkpoint: {path}/save-3 (saves: save-2, save-3)"
    for line in ("kind: learner", "algorithm: ppo", "backend: numpy", "modules: default_policy"):
        assert line in lines
    assert any(line.startswith("plugins: ") and "algorithm ppo (plugrad " in line for line in lines)
    assert any("weights_seq_no 3" in line for line in lines)
    assert "rl_module/default_policy 8 25 100" in lines
    assert f"{path}/save-2" in inspect(path / "save-2").output


def test_every_array_is_listed_if_asked_for(path):
    rows = [line.split() for line in inspect(path, "--arrays").output.splitlines()]
    assert ["rl_module/default_policy/pi.0.weight", "float32", "[3,", "2]"] in rows


def test_a_program_reads_json(path):
    found = json.loads(inspect(path, "--json").output)
    assert found["metadata"]["config"]["lr"] == 3e-4
    assert found["counters"]["weights_seq_no"] == 3
    name = "optimizer/default_policy_default_optimizer/slots/m/default_policy/pi.0.weight"
    assert found["arrays"][name] == {"dtype": "float32", "shape": [3, 2]}


def test_no_framework_and_no_plugin_is_imported(path):
    code = """
        import sys
        from plugrad.cli import main
        main(["inspect", sys.argv[1]], standalone_mode=False)
        strangers = {name.split(".")[0] for name in sys.modules}
        strangers &= {"torch", "tensorflow", "keras", "ray", "plugrad_torch", "plugrad_tf2", "plugrad_ppo"}
        print(sorted(strangers), file=sys.stderr)
    """
    code = "\n".join(line.strip() for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert "default_policy" in done.stdout


def test_a_damaged_checkpoint_is_one_clear_line(path, tmp_path):
    save_checkpoint(tmp_path / "c", {"w": np.zeros(3)}, metadata={})
    (tmp_path / "c" / "save-1" / "data.json").write_text("{}")
    result = inspect(tmp_path / "c", code=1)
    assert result.stderr.startswith("plugrad: error: ")
    assert "save-1/data.json is damaged" in result.stderr
    assert "no checkpoint in it" in inspect(tmp_path, code=1).stderr


def test_what_a_stranger_wrote_does_not_steer_the_terminal(tmp_path):
    evil = "\x1b[2J[red]name\r\n"
    state = {evil: {"x": np.zeros(1)}, "counters": {evil: 1}}
    save_checkpoint(tmp_path / "c", state, metadata={"kind": evil, "module_ids": [evil]})
    for arguments in ((), ("--arrays",)):
        output = inspect(tmp_path / "c", *arguments).output
        assert "\x1b" not in output
        assert "\r" not in output
        assert "\\x1b[2J[red]name" in output
