"""`plugrad certify`: what it proves, what it refuses, and what its report says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugrad import CONTRACT_VERSION
from plugrad.hooks.backend_spec import Capability

MAIN = "from plugrad.cli import main; main(prog_name='plugrad')"
DECLARING = """
from plugrad import hookimpl
from plugrad.hooks.backend_spec import BackendInfo
from plugrad.testing.numpy_backend import *

@hookimpl
def backend_info():
    return BackendInfo("mine", "1", capabilities={capabilities!r})
"""
IN_FLOAT32 = """
import types
import numpy as np
from plugrad.testing import numpy_loss_ops

narrow = types.SimpleNamespace(**vars(numpy_loss_ops))
narrow.asarray = lambda x, dtype=None: numpy_loss_ops.asarray(
    x, "float32" if (dtype or np.asarray(x).dtype) == "float64" else dtype
)

@hookimpl
def ops():
    return narrow
"""
WITHOUT_DERIVATIVES = """
del jvp, hvp
"""
ABOUT = {
    Capability.BATCHED_LEARNERS: "in_one_program",
    Capability.BFLOAT16: "bfloat16",
    Capability.CHANGED_LOSSES: "override_changed",
    Capability.COMPLETE_UPDATE: "mode_says",
    Capability.EXACT_KINKS: "kink",
    Capability.FLOAT64: "values_are_those_of_numpy and exp",
    Capability.FRAMEWORK_OPTIMIZERS: "answers_what_it_declares",
    Capability.FUSED_STEP: "answers_what_it_declares",
    Capability.ONNX: "exported",
    Capability.SECOND_DERIVATIVES: "derivatives_along",
    Capability.USER_MODULES: "users_model",
    Capability.XLA: "xla",
}
"""Tests about a capability, as `pytest -k` names them: the whole suite takes longer."""


def certify(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and what is printed."""
    command = [sys.executable, "-c", MAIN, "certify", *arguments, "--output", "report.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    report = folder / "report.json"
    found = json.loads(report.read_text()) if report.exists() else {}
    return done.returncode, found, done.stdout + done.stderr


def declaring(folder: Path, *capabilities: Capability) -> str:
    """A file with the reference under another name, which has none of these capabilities and declares them."""
    text = DECLARING.format(capabilities={str(each) for each in capabilities})
    text += IN_FLOAT32 * (Capability.FLOAT64 in capabilities)
    text += WITHOUT_DERIVATIVES * (Capability.SECOND_DERIVATIVES in capabilities)
    (folder / "mine.py").write_text(text)
    return "mine.py"


@pytest.mark.counts  # the whole suite
def test_the_reference_is_proven(tmp_path):
    code, report, said = certify(tmp_path, "numpy")
    assert code == 0, said
    assert report["proven"] is True
    assert report["contract_version"] == CONTRACT_VERSION
    assert report["capabilities"] == {
        str(each): "proven" if each in ("float64", "second_derivatives") else "not declared"
        for each in sorted(Capability)
    }
    assert str(tmp_path) not in json.dumps(report)


def test_a_part_of_the_suite_proves_nothing(tmp_path):
    code, report, said = certify(tmp_path, "numpy", "-k", "shape_is or xla")
    assert code == 1, said
    assert report["proven"] is False
    assert report["capabilities"]["xla"] == "not declared"
    assert report["capabilities"]["float64"] == "not proven: no test that is about it could run"
    assert report["tests"] == {
        "test_shape_is_of_plain_ints": "passed",
        "test_an_update_is_compiled_by_xla": "skipped: not proven: backend 'numpy' does not declare 'xla'",
    }


def test_what_is_falsely_declared_is_refused(tmp_path):
    words = " or ".join(f"({each})" for each in ABOUT.values())
    code, report, said = certify(tmp_path, declaring(tmp_path, *Capability), "-k", words)
    assert code == 1, said
    proven = {
        name for name, verdict in report["capabilities"].items() if not verdict.startswith("not proven: ")
    }
    assert not proven, said
    untried = {name for name, verdict in report["capabilities"].items() if "no test" in verdict}
    assert untried <= {"onnx"}, "its tests need a model, which they do not get"


@pytest.mark.long
@pytest.mark.parametrize("capability", Capability)
def test_one_capability_that_is_falsely_declared_is_refused(tmp_path, capability):
    code, report, said = certify(tmp_path, declaring(tmp_path, capability))
    assert code == 1, said
    verdicts = report["capabilities"]
    assert verdicts.pop(str(capability)).startswith("not proven: "), said
    assert {*verdicts.values()} == {"not declared"}


def test_a_condition_that_does_not_hold_is_the_reason(tmp_path):
    text = DECLARING.format(capabilities={}).replace("{}", "{'xla': lambda ops, config: 'no GPU'}")
    (tmp_path / "mine.py").write_text(text)
    code, report, said = certify(tmp_path, "mine.py", "-k", "xla")
    assert code == 1, said
    reason = "not proven: backend 'mine' has no 'xla' here: no GPU"
    assert report["capabilities"]["xla"] == reason
    assert report["tests"]["test_an_update_is_compiled_by_xla"] == f"skipped: {reason}"


def test_a_name_that_nobody_has_is_refused(tmp_path):
    code, report, said = certify(tmp_path, "nump")
    assert (code, report) == (1, {})
    assert "no backend or algorithm 'nump'" in said
    assert "Did you mean 'numpy'?" in said


def test_fixtures_of_the_author_are_found_in_the_file(tmp_path):
    name = declaring(tmp_path, Capability.USER_MODULES)
    own = "\nimport pytest\n@pytest.fixture\ndef user_model():\n    raise ValueError('of the author')\n"
    (tmp_path / name).write_text((tmp_path / name).read_text() + own)
    code, report, said = certify(tmp_path, name, "-k", "only_updates_move")
    assert code == 1, said
    assert report["capabilities"]["user_modules"].startswith("not proven")
    (outcome,) = report["tests"].values()
    assert outcome == "failed: ValueError: of the author"


def test_a_backend_that_cannot_build_a_learner_is_certified_as_it_is(tmp_path):
    broken = "\n@hookimpl\ndef ops():\n    return None\n"
    name = declaring(tmp_path, Capability.XLA)
    (tmp_path / name).write_text((tmp_path / name).read_text() + broken)
    code, report, said = certify(tmp_path, name, "-k", "xla or every_op_with")
    assert code == 1, said
    assert report["capabilities"]["xla"].startswith("not proven: test_an_update_is_compiled_by_xla failed: ")
    assert all(each.startswith("failed: ") for each in report["tests"].values())


def test_fixtures_that_miss_a_package_are_one_clear_line(tmp_path):
    package = tmp_path / "plugrad_poor"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "backend.py").write_text(DECLARING.format(capabilities="set()"))
    (package / "testing.py").write_text("import a_package_that_nobody_has\n")
    info = tmp_path / "plugrad_poor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugrad-poor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[plugrad.backends]\npoor = plugrad_poor.backend\n")
    code, report, said = certify(tmp_path, "poor")
    assert code == 1
    assert not report
    assert "plugrad_poor.testing fails to import: ModuleNotFoundError: No module named 'a_package" in said
    assert "INTERNALERROR" not in said
    assert "Traceback" not in said
