"""Public names are promises: one that appears or goes must do so on purpose, and a stranger's plugin needs no other."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import plugrad
from plugrad.algorithm import Algorithm
from plugrad.hooks.manager import hook_methods
from plugrad.testing.tiny_learners import tiny_learner

SNAPSHOT = Path(__file__).with_name("public_names.txt")
REGENERATE = "python tests/core/test_public_names.py"
STRANGERS = Path(__file__).parents[1] / "author"
PLUGINS = Path(__file__).parents[2] / "plugins"
OURS = (
    "plugrad_sac",
    "plugrad_offline",
    "plugrad_bc",
    "plugrad_impala",
    "plugrad_pqn",
    "plugrad_qrdqn",
    "plugrad_rnd",
    "plugrad_tqc",
)
"""Plugins of ours that import what a stranger's may import."""
PACKAGES = (
    "plugrad.batch",
    "plugrad.collective",
    "plugrad.config",
    "plugrad.distributions",
    "plugrad.episodes",
    "plugrad.errors",
    "plugrad.gradients",
    "plugrad.hooks.backend_helpers",
    "plugrad.hooks.backend_spec",
    "plugrad.learner",
    "plugrad.networks.encoders",
    "plugrad.networks.initializers",
    "plugrad.networks.layers",
    "plugrad.losses",
    "plugrad.model_config",
    "plugrad.networks",
    "plugrad.numpy_ops",
    "plugrad.offline",
    "plugrad.ops",
    "plugrad.optimizers",
    "plugrad.policy",
    "plugrad.replay",
    "plugrad.returns",
    "plugrad.rng_streams",
    "plugrad.rl_module.parts_module",
    "plugrad.sampling",
    "plugrad.schedules",
    "plugrad.spaces",
    "plugrad.testing.algorithm_suite",
    "plugrad.testing.backend_suite",
    "plugrad.testing.collective_suite",
    "plugrad.testing.fixtures",
    "plugrad.training",
    "plugrad.types",
)
"""What authors of plugins import from, beside `plugrad` itself."""


def members(cls: type) -> set[str]:
    """Public ones, and the methods with an underscore that are hooks: subclasses override them."""
    return {name for name in dir(cls) if not name.startswith("_")} | hook_methods(cls).keys()


def overridable(cls: type) -> set[str]:
    """Public ones, and the methods with an underscore that every subclass writes."""
    own = {name for name, value in vars(cls).items() if callable(value) and not name.startswith("__")}
    return {name for name in dir(cls) if not name.startswith("_")} | own


def names_of(package: ModuleType) -> set[str]:
    """Those of `__all__`, else what the package itself defines; of a suite its tests."""
    if hasattr(package, "__all__"):
        return set(package.__all__)
    tree = ast.parse(Path(str(package.__file__)).read_text())
    names = {name for node in tree.body for name in _defined(node)} or {
        each for each in dir(package) if each.startswith("test_")
    }
    return {name for name in names if not name.startswith("_")}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def public_names() -> str:
    sections = {
        "plugrad": plugrad.__all__,
        "Learner": members(plugrad.Learner)
        | {each for each in vars(tiny_learner("numpy")) if each[0] != "_"},
        "LearnerGroup": members(plugrad.LearnerGroup),
        "Algorithm": members(Algorithm),
        "AlgorithmConfig.fields()": plugrad.AlgorithmConfig.fields(),
        "PPOConfig.fields()": plugrad.get_algorithm("ppo").fields(),
        "BCConfig.fields()": plugrad.get_algorithm("bc").fields(),
        "OffPolicyConfig.fields()": plugrad.OffPolicyConfig.fields(),
        "OfflineConfig.fields()": plugrad.OfflineConfig.fields(),
        "DQNConfig.fields()": plugrad.get_algorithm("dqn").fields(),
        "RLModule": overridable(plugrad.RLModule),
        **{package: names_of(import_module(package)) for package in PACKAGES},
    }
    return "".join(f"{where}: {name}\n" for where, names in sections.items() for name in sorted(names))


def test_public_names_are_those_of_the_snapshot():
    expected, found = SNAPSHOT.read_text().splitlines(), public_names().splitlines()
    new, gone = (
        [each for each in found if each not in expected],
        [each for each in expected if each not in found],
    )
    assert found == expected, f"new: {new}, gone: {gone}. If that is meant, run: {REGENERATE}"


def used_names(tree: ast.Module) -> Iterator[str]:
    """As lines of the snapshot: what is imported of plugrad, asked of a learner, or has an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "plugrad":
            yield from (f"{node.module}: {each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] == "plugrad")
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "learner":
            yield f"Learner: {node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            yield f"RLModule: {node.attr}"


@pytest.mark.parametrize(
    "path", sorted(STRANGERS.glob("plugrad-*/**/*.py")), ids=lambda path: str(path.relative_to(STRANGERS))
)
def test_a_strangers_plugin_uses_public_names_only(path):
    whole = {f"{package}: *" for package in PACKAGES}
    used = set(used_names(ast.parse(path.read_text())))
    assert used - whole - set(SNAPSHOT.read_text().splitlines()) == set()


@pytest.mark.parametrize(
    "path",
    sorted(path for package in OURS for path in (PLUGINS / package).rglob("*.py")),
    ids=lambda path: str(path.relative_to(PLUGINS)),
)
def test_a_plugin_of_ours_uses_no_other_names_than_a_strangers_can(path):
    packages = {f"plugrad: {package.removeprefix('plugrad.')}" for package in PACKAGES}
    used = {each for each in used_names(ast.parse(path.read_text())) if not each.startswith("RLModule: ")}
    assert used - packages - set(SNAPSHOT.read_text().splitlines()) == set()


@pytest.mark.parametrize("name", ["plugrad", "plugrad.policy", "plugrad.sampling"])
def test_names_are_loaded_from_where_type_checkers_see_them(name):
    package = import_module(name)
    tree = ast.parse(Path(str(package.__file__)).read_text())
    blocks = [
        each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
    ]
    imports = [each for block in blocks for each in block.body if isinstance(each, ast.ImportFrom)]
    assert {name.name: each.module for each in imports for name in each.names} == package._PLACES
    assert sorted(package._PLACES) == sorted(package.__all__)
    assert {*package.__all__} <= {*dir(package)}


if __name__ == "__main__":
    SNAPSHOT.write_text(public_names())
