"""A stranger's run directory with links at the names that plugrad writes: no file outside of it changes."""

import os
import shutil
import tempfile
from pathlib import Path

from case import BACKEND, check
from click.testing import CliRunner

from plugrad.cli import main

PRECIOUS = "a thesis\n"
SMALL = [
    f"--backend={BACKEND}",
    "--framework.compile=none",
    "--training.train_batch_size=64",
    "--training.minibatch_size=64",
    "--training.num_epochs=1",
    "--env_runners.num_envs_per_env_runner=1",
    "--rl_module.model_config={fcnet_hiddens = [4]}",
]


def plugrad(*arguments):
    return CliRunner().invoke(main, [str(each) for each in arguments], prog_name="plugrad")


with tempfile.TemporaryDirectory() as scratch:
    home, source = Path(scratch) / "home", Path(scratch) / "source"
    home.mkdir()
    done = plugrad("train", "ppo", "CartPole-v1", *SMALL, "--quiet", "--stop-timesteps=128", "--out", source)
    check(not done.exit_code, f"the run itself: {done.output}")
    resume = ["train", "--quiet", "--stop-timesteps=192", "--resume"]
    for command, name in (
        (["plot"], "curve.png"),
        (resume, "metrics.csv"),
        (resume, "metrics.jsonl"),
        (resume, "metrics.csv.new"),
        (resume, "metrics.jsonl.new"),
        (resume, "summary.json"),
    ):
        for plant in (os.symlink, os.link):
            run, victim = Path(scratch) / "run", home / "thesis.tex"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(source, run)
            victim.write_text(PRECIOUS)
            (run / name).unlink(missing_ok=True)
            plant(victim, run / name)
            done = plugrad(*command, run)
            how = f"{command[0]} with {name} as a {plant.__name__} ({done.exit_code})"
            check(victim.read_text() == PRECIOUS, f"{how}: the file outside was changed")
            check(not done.exit_code or name in done.output, f"{how} says: {done.output}")
    check([each.name for each in home.iterdir()] == ["thesis.tex"], f"written: {[*home.iterdir()]}")
