"""An installed algorithm without a loss does not pass `plugins --check`, and its learner's error names that cause."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from case import check

BACKENDS = ("numpy",)
PLUGIN = """
from dataclasses import dataclass
from plugrad import AlgorithmConfig, hookimpl

@dataclass(frozen=True, kw_only=True)
class UnfinishedConfig(AlgorithmConfig): ...

@hookimpl
def get_config_class():
    return UnfinishedConfig
"""
CHECK = "from plugrad.cli import main; main(['plugins', '--check', 'unfinished'])"
BUILD = (
    "from plugrad import get_algorithm\n"
    "get_algorithm('unfinished')().framework('numpy').build_learner(env='CartPole-v1')"
)

with tempfile.TemporaryDirectory() as site:
    (Path(site) / "unfinished.py").write_text(PLUGIN)
    metadata = Path(site) / "unfinished-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: unfinished\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[plugrad.algorithms]\nunfinished = unfinished\n")
    paths = os.pathsep.join([site, *filter(None, [os.environ.get("PYTHONPATH")])])
    for what, program in (("plugins --check", CHECK), ("build_learner", BUILD)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        said = " ".join((done.stdout + done.stderr).split())
        check(done.returncode, f"{what} passes: {said[-200:]}")
        check("compute_loss_for_module" in said, f"{what} names another cause: {said[-200:]}")
