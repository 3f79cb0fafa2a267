"""`plugrad doctor --learners N` plans where learners will be, on machines that need not be there."""

import pytest
from click.testing import CliRunner

from plugrad.cli import main
from plugrad.cli.doctor import Plan, auto_collective
from plugrad.errors import ConfigError
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import choose_collective


@pytest.mark.parametrize(
    ("learners", "gpus", "machines", "placement", "each", "layout"),
    [
        (8, 8, 1, "pack", 1, [8]),
        (4, 16, 2, "pack", 4, [2, 2]),
        (3, 6, 2, "pack", 1, [3, 0]),
        (3, 6, 2, "spread", 1, [2, 1]),
        (8, 4, 2, "pack", 0.5, [4, 4]),
        (7, 3, 1, "pack", 0.3333, [7]),
        (5, 0, 2, "pack", 0, [5, 0]),
        (5, 0, 2, "spread", 0, [3, 2]),
    ],
)
def test_learners_share_gpus_and_machines(learners, gpus, machines, placement, each, layout):
    plan = Plan(learners=learners, gpus=gpus, machines=machines, placement=placement)
    assert (plan.gpus_per_learner, plan.layout) == (each, layout)


@pytest.mark.parametrize("machines", [1, 2])
def test_a_plan_names_the_collective_that_auto_takes(machines):
    place = Plan(learners=4, gpus=4, machines=machines, placement="spread").place
    assert place.num_hosts == machines
    try:
        expected = choose_collective("auto", place)
    except ConfigError:  # without torch and Ray there is none between machines
        expected = "none that is installed"
    assert auto_collective(place, list_plugins()) == expected


def test_a_plan_says_what_goes_where_and_what_to_type():
    result = CliRunner().invoke(main, ["doctor", "--learners", "8", "--gpus", "8", "--env-runners", "10"])
    assert result.exit_code == 0
    for line in (
        "8 x {CPU: 1, GPU: 1} for learners",
        "10 x {CPU: 1} for env runners",
        "8 learners: 8 CPU, 8 of 8 GPUs",
        "18 in all",
        'learners(num_learners=8, num_gpus_per_learner=1, placement="pack").env_runners(num_env_runners=10)',
    ):
        assert line in result.stdout


def test_a_plan_says_which_gpus_are_idle_and_what_is_not_installed():
    records = [each for each in list_plugins() if each.name not in ("gloo", "ray")]
    missing = [each for each in list_plugins() if each.name in ("gloo", "ray")]
    gone = [type(each)(**{**vars(each), "installed": False, "install": ("plugrad[x]",)}) for each in missing]
    (_, plan), (_, lines), _ = Plan(learners=3, gpus=8, machines=2).sections([*records, *gone])
    assert "idle        2 GPUs: 8 are no multiple of 3 learners" in plan
    assert any(line.startswith("ray: remote learners are its actors: pip install") for line in lines)
    assert any(line.startswith("torch, for sums by gloo between machines: pip install") for line in lines)


def test_a_plan_refuses_unequal_machines_and_options_without_learners():
    with pytest.raises(ConfigError, match="type --gpus 2"):
        Plan(learners=2, gpus=3, machines=2)
    result = CliRunner().invoke(main, ["doctor", "--gpus", "8"])
    assert (result.exit_code, "--learners" in result.stderr) == (2, True)
