"""`plugrad parity`: that it finds our algorithms equal, and names what a plugin changed on one backend alone."""

import json

import needs
import pytest
from click.testing import CliRunner

from plugrad.cli import main

PAIR = ["torch", "tf2"]
TINY = ["--backends", *PAIR, "--steps=2", "--rl_module.model_config={fcnet_hiddens = [8]}"]
needs_both = needs.backends(*PAIR)


def parity(*arguments, code=0):
    result = CliRunner().invoke(main, ["parity", *arguments], prog_name="plugrad")
    assert result.exit_code == code, result.output
    return result


@pytest.mark.cross_product(part=6)
@pytest.mark.parametrize("pair", [PAIR, ["tf2", "jax"]], ids="-".join)
@pytest.mark.parametrize(
    ("algorithm", "network"),
    [("ppo", ""), ("dqn", ""), ("bc", ""), ("ppo", ", use_lstm = true, lstm_cell_size = 4")],
)
def test_our_algorithms_are_equal(algorithm, network, pair):
    for backend in pair:
        needs.backend(backend)
    model = f"--rl_module.model_config={{fcnet_hiddens = [8]{network}}}"
    found = json.loads(parity(algorithm, "--backends", *pair, "--steps=2", model, "--json").stdout)
    assert found["equal"]
    assert found["backends"] == pair
    stages = ["forward", "losses", "gradients", "applied gradients", "parameters"]
    assert [list(step) for step in found["steps"]] == [["parameters"], stages, stages]
    assert all(each["difference"] < 1e-5 for step in found["steps"] for each in step.values())
    first, last = found["steps"][0]["parameters"], found["steps"][-1]["gradients"]
    assert first["difference"] == 0.0
    assert last["values"][0] != 0.0


def test_a_backend_is_equal_to_the_reference(backend):
    model = "--rl_module.model_config={fcnet_hiddens = [2]}"
    found = json.loads(parity("ppo", "--backends", backend, "numpy", "--steps=1", model, "--json").stdout)
    assert found["equal"]
    assert found["backends"] == [backend, "numpy"]


CHANGED = {
    "losses": ("compute_losses", "found = {m: loss * 1.001 for m, loss in found.items()}", "default_policy"),
    "gradients": ("compute_gradients", "found['default_policy/vf.out.bias'] *= 1.001", "default_policy/vf.out.bias"),
    "applied gradients": (
        "postprocess_gradients",
        "found = {**found, 'default_policy/pi.0.weight': found['default_policy/pi.0.weight'] + 0.01}",
        "default_policy/pi.0.weight",
    ),
    "parameters": ("apply_gradients", "learner._set_optimizer_lr(learner.get_optimizer(), 1.0)", ""),
}  # fmt: skip


@needs_both
@pytest.mark.parametrize("stage", CHANGED)
def test_what_differs_on_one_backend_is_named_with_its_place(stage, tmp_path):
    hook, change, name = CHANGED[stage]
    (tmp_path / "change.py").write_text(
        f"""
from plugrad import hookimpl
@hookimpl(wrapper=True)
def {hook}(learner):
    found = yield
    if learner.config.backend == "tf2":
        {change}
    return found
"""
    )
    arguments = ["ppo", *TINY, "--training.lr=0.01", "--plugin", str(tmp_path / "change.py")]
    found = json.loads(parity(*arguments, "--json", code=1).stdout)["parting"]
    # A rate that is set after the first step is first seen in what the second one does.
    step = 2 if stage == "parameters" else 1
    assert (found["step"], found["stage"]) == (step, stage)
    assert found["name"].startswith(name)
    assert found["difference"] > 1e-4
    if stage != "parameters":
        return
    said = parity(*arguments, code=1).stdout
    one, other = found["values"]
    assert f"they part at step 2, parameters of {found['name']} at {found['index']}: " in said
    assert f"torch {one!r}, tf2 {other!r}; that is {found['difference']:.1e} of the largest entry" in said
