"""Finding plugins by name: among real distributions in a folder of their own, seen by a Python of its own."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, forked

from plugrad.errors import AlgorithmNotFoundError
from plugrad.hooks.registry import get_algorithm
from plugrad.learner.state.untrusted import with_distribution_hint

PRELUDE = """
import json, os, sys, warnings
from plugrad.errors import PlugradError
from plugrad.hooks.plugin_records import *
from plugrad.hooks.registry import *
from plugrad.hooks.registry import algorithm_of
import plugrad.algorithm, plugrad.cli.plugins, plugrad.testing.tiny_learners
def attempt(call):
    try:
        return call()
    except PlugradError as error:
        return [type(error).__name__, str(error)]
"""

EARS = """
from plugrad import hookimpl
print("loading", __name__)
@hookimpl
def update_ended(results): ...
"""

ALGORITHM = """
from dataclasses import dataclass
from plugrad import AlgorithmConfig, hookimpl
print("loading", __name__)
@dataclass(frozen=True, kw_only=True)
class Config(AlgorithmConfig): ...
@hookimpl
def get_config_class():
    return Config
"""


class Site:
    """A folder of installed distributions in front of all others."""

    def __init__(self, root: Path, python: Forked) -> None:
        self.root, self._python = root, python

    def install(
        self,
        name: str,
        version: str = "1.0",
        *,
        plugins: dict[tuple[str, str], str],
        modules: dict[str, str] | None = None,
        requires: tuple[str, ...] = (),
        folder: str = ".",
    ) -> None:
        """Lay out what pip would: modules, and a dist-info folder with metadata and entry points."""
        info = self.root / folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        metadata += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("\n".join(metadata))
        lines = [f"[plugrad.{place}]\n{entry} = {value}" for (place, entry), value in plugins.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, code in (modules or {}).items():
            (self.root / folder / f"{module}.py").write_text(code)

    def run(self, code: str, asked: str | None = None, folders: tuple[str, ...] = (".",)) -> Any:
        """The value of an expression (after statements, if there are lines before it) in a process of its own."""
        *statements, expression = code.strip().split("\n")
        program = "\n".join([*statements, f"print(json.dumps({expression}))"])
        paths = [self.root / folder for folder in folders]
        done = self._python.run(program, *paths, environment=asked and {"PLUGRAD_PLUGINS": asked})
        assert done.returncode == 0, done.stderr
        self.loaded = [line.removeprefix("loading ") for line in done.stdout.splitlines()[:-1]]
        return json.loads(done.stdout.splitlines()[-1])

    def error(self, expression: str, **settings: Any) -> list[str]:
        """`[class name, message]` of the error that an expression raises."""
        found = self.run(f"attempt(lambda: {expression})", **settings)
        assert isinstance(found, list), f"no error: {found}"
        return found


@pytest.fixture(scope="module")
def python() -> Iterator[Forked]:
    with forked(PRELUDE, without="PLUGRAD_PLUGINS") as python:
        yield python


@pytest.fixture
def site(tmp_path: Path, python: Forked) -> Site:
    return Site(tmp_path, python)


# --- names --------------------------------------------------------------------------------------------------------


def test_a_strangers_plugins_are_listed_like_ours_and_none_is_loaded(site):
    plugins = {
        ("backends", "mine"): "mine_backend",
        ("algorithms", "sac"): "mine_sac:plugin",
        ("plugins", "ears"): "mine_ears",
        ("collectives", "wire"): "mine_wire:Wire",
    }
    modules = dict.fromkeys(("mine_backend", "mine_sac", "mine_ears", "mine_wire"), "1 / 0")
    requires = ("numpy", 'minelib>=2; extra == "mine"')
    site.install("plugrad-mine", "3.2", plugins=plugins, modules=modules, requires=requires)
    records = site.run("[vars(record) for record in list_plugins()]")
    mine = [record for record in records if record["distribution"] == "plugrad-mine"]
    assert [(each["kind"], each["name"], each["value"]) for each in mine] == [
        ("backend", "mine", "mine_backend"),
        ("algorithm", "sac", "mine_sac:plugin"),
        ("plugin", "ears", "mine_ears"),
        ("collective", "wire", "mine_wire:Wire"),
    ]
    assert {each["version"] for each in mine} == {"3.2"}
    assert [(each["requires"], each["installed"]) for each in mine] == [
        ("minelib", False),
        (None, True),
        (None, True),
        (None, True),
    ]
    ours = {(record["kind"], record["name"]) for record in records if record["distribution"] == "plugrad"}
    assert ours >= {("backend", "torch"), ("backend", "tf2"), ("algorithm", "ppo")}
    kinds = [record["kind"] for record in records]
    assert kinds == sorted(kinds, key=["backend", "algorithm", "plugin", "collective", "launcher"].index)


def test_an_entry_point_may_name_the_extra_that_it_needs(site):
    requires = ('wirelib; extra == "cable"',)
    site.install(
        "plugrad-mine", "3.2", plugins={("collectives", "wire"): "mine_wire:Wire [cable]"}, requires=requires
    )
    words = "collective 'wire' needs wirelib: pip install \"plugrad-mine[cable]\""
    assert site.error("load_collective('wire')") == ["MissingFrameworkError", words]
    assert site.run("[each.requires for each in list_plugins() if each.name == 'wire']") == ["wirelib"]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("1 / 0", "fails to load (mine_wire:Wire): ZeroDivisionError"),
        ("Wire = 3", "is no subclass of plugrad.collective.Collective"),
        (
            "from plugrad.collective import Collective\nclass Wire(Collective): pass",
            "lacks close, contact, enter, sum",
        ),
        (
            "from plugrad.collective.shared_memory import SharedMemory\n"
            "class Wire(SharedMemory): requires = 'wirelib'",
            "collective 'wire' needs wirelib: pip install \"wirelib\"",
        ),
    ],
)
def test_a_collective_that_cannot_be_used_is_an_error_of_one_sentence(site, module, words):
    site.install(
        "plugrad-mine",
        "3.2",
        plugins={("collectives", "wire"): "mine_wire:Wire"},
        modules={"mine_wire": module},
    )
    assert words in site.error("load_collective('wire')")[1]
    report = site.run(
        "from plugrad.cli.plugins import check_plugin\n"
        "check_plugin(next(each for each in list_plugins() if each.name == 'wire')).reason"
    )
    assert words in report


def test_a_misspelt_name_gets_the_installed_ones_and_the_closest(site):
    site.install("plugrad-ears", plugins={("plugins", "ears"): "ears"})
    code = """
doors = [(load_backend, "touch"), (load_algorithm, "pp0"), (get_algorithm, "zzz")]
[attempt(lambda: door(name)) for door, name in doors] + [attempt(lambda: load_listeners(("eears",)))]
"""
    backend, algorithm, unlike, listener = site.run(code)
    assert backend[0] == "BackendNotFoundError"
    assert re.fullmatch(
        r"no backend 'touch'; installed: .*tf2, torch\b.*\. Did you mean 'torch'\?", backend[1]
    )
    assert algorithm[0] == "AlgorithmNotFoundError"
    assert re.fullmatch(r"no algorithm 'pp0'; installed: .*\bppo\b.*\. Did you mean 'ppo'\?", algorithm[1])
    assert unlike[0] == "AlgorithmNotFoundError"
    assert re.fullmatch(r"no algorithm 'zzz'; installed: [^?]*\.", unlike[1])
    assert listener[0] == "PluginError"
    assert re.fullmatch(r"no plugin 'eears'; installed: .*\bears\b.*\. Did you mean 'ears'\?", listener[1])


def test_where_nothing_is_installed_the_error_says_so(site):
    code = """
sys.path[:] = []
[attempt(lambda: load("any"))[1] for load in (load_backend, load_algorithm)]
"""
    assert site.run(code) == ["no backend 'any'; installed: none.", "no algorithm 'any'; installed: none."]


def test_a_name_of_two_distributions_is_an_error_that_names_both_with_their_versions(site):
    site.install("plugrad-one", "1.1", plugins={("backends", "jax"): "one"}, modules={"one": "1 / 0"})
    site.install("plugrad-two", "2.2", plugins={("backends", "jax"): "two"}, modules={"two": "1 / 0"})
    error, message = site.error("load_backend('jax')")
    assert error == "PluginConflictError"
    assert message.startswith("backend 'jax' is claimed by ")
    assert "plugrad-one 1.1" in message
    assert "plugrad-two 2.2" in message


@pytest.mark.parametrize(("kind", "name"), [("backend", "numpy"), ("algorithm", "ppo")])
def test_a_stranger_cannot_take_a_name_of_ours_and_the_rest_works(site, kind, name):
    site.install("plugrad-evil", "6.6", plugins={(f"{kind}s", name): "evil"}, modules={"evil": "1 / 0"})
    other = {"backend": "get_algorithm('ppo').__name__", "algorithm": "load_backend('numpy').name"}[kind]
    (error, message), works = site.run(f"[attempt(lambda: load_{kind}({name!r})), {other}]")
    assert error == "PluginConflictError"
    assert re.match(rf"{kind} '{name}' is claimed by .*\bplugrad \d", message)
    assert "plugrad-evil 6.6" in message
    assert works in ("PPOConfig", "numpy")


OLD_SIGNATURES = {
    "backend": "def convert_batch_type(learner, columns): ...",
    "algorithm": "def compute_loss_for_module(learner, module_id, hps, batch, fwd_out): ...",
    "plugin": "def update_ended(learner, results, iteration): ...",
}


@pytest.mark.parametrize("kind", OLD_SIGNATURES)
def test_a_plugin_built_for_an_older_signature_of_a_hook_is_told_so_and_the_rest_works(site, kind):
    code = f"from plugrad import hookimpl\n@hookimpl\n{OLD_SIGNATURES[kind]}\n"
    site.install("plugrad-old", "0.3", plugins={(f"{kind}s", "old"): "old"}, modules={"old": code})
    load = "load_listeners(('old',))" if kind == "plugin" else f"load_{kind}('old')"
    works = "[get_algorithm('ppo').__name__, load_backend('numpy').name]"
    (error, message), others = site.run(f"[attempt(lambda: {load}), {works}]")
    assert error == "PluginError"
    assert re.match(rf"{kind} 'old' of plugrad-old 0\.3 does not fit plugrad \d\S+: ", message)
    assert re.search(r", hook '\w+', argument '\w+': the hook's arguments are \(", message)
    assert others == ["PPOConfig", "numpy"]


def test_a_distribution_that_is_installed_twice_is_the_first_on_the_path(site):
    for folder, version in (("first", "2.0"), ("second", "1.0")):
        site.install(
            "Plugrad.Ears" if folder == "first" else "plugrad-ears",
            version,
            plugins={("plugins", "ears"): "ears"},
            modules={"ears": EARS},
            folder=folder,
        )
    code = (
        "[[each.version for each in list_plugins() if each.name == 'ears'], len(load_listeners(('ears',)))]"
    )
    assert site.run(code, folders=("first", "second")) == [["2.0"], 1]


def test_what_is_installed_and_not_named_is_never_run(site):
    """Not by importing, helping, listing or learning; nor by a name that only a file in this folder would have."""
    kinds = {"backends": "marker_b", "algorithms": "marker_a", "plugins": "marker_p"}
    plugins = {(group, "marker"): module for group, module in kinds.items()}
    site.install(
        "plugrad-marker",
        plugins=plugins,
        modules=dict.fromkeys(kinds.values(), "print('loading', __name__)") | {"marker_p": EARS},
    )
    code = """
from click.testing import CliRunner
from plugrad.cli import main
from plugrad.testing.tiny_learners import tiny_learner
lines = ["--help", "train --help", "plugins", "plugins --json", "doctor"]
codes = [CliRunner().invoke(main, line.split()).exit_code for line in lines]
[codes, tiny_learner("numpy").framework, "marker_p" in sys.modules, "marker" in [each.name for each in list_plugins()]]
"""
    for asked in (None, "", "none"):
        assert site.run(code, asked=asked) == [[0] * 5, None, False, True]
        assert site.loaded == []
    assert site.run("len(load_listeners(()))", asked="marker") == 1
    assert site.loaded == ["marker_p"]


# --- frameworks ---------------------------------------------------------------------------------------------------


def test_a_missing_framework_says_what_to_type(site):
    code = """
sys.modules.update(dict.fromkeys(["torch", "tensorflow"]))
[attempt(lambda: load_backend(name)) for name in ("torch", "tf2")]
"""
    assert site.run(code) == [
        ["MissingFrameworkError", "backend 'torch' needs torch: pip install \"plugrad[torch]\""],
        [
            "MissingFrameworkError",
            "backend 'tf2' needs tensorflow: pip install \"plugrad[tf2]\" (or plugrad[tf2-cpu])",
        ],
    ]


def test_a_framework_may_be_a_plain_dependency(site):
    """What plugrad has itself is no framework, and what only some systems need is not looked for."""
    plain = ("plugrad", "NumPy>=2", 'windowslib; sys_platform == "win32"', "click", "minelib>=2")
    site.install(
        "plugrad-mine", plugins={("backends", "mine"): "mine"}, modules={"mine": "1 / 0"}, requires=plain
    )
    site.install("plugrad-toy", plugins={("backends", "toy"): "toy"}, requires=("plugrad", "numpy"))
    site.install(
        "plugrad-two", plugins={("backends", "two"): "two"}, requires=("pip", "nothere", "setuptools")
    )
    code = "{each.name: [each.requires, each.installed, each.install] for each in list_plugins()}"
    found = site.run(code)
    assert found["mine"] == ["minelib", False, ["plugrad-mine"]]
    assert found["toy"] == [None, True, []]
    assert found["two"] == ["nothere", False, ["plugrad-two"]]
    words = "backend 'mine' needs minelib: pip install \"plugrad-mine\""
    assert site.error("load_backend('mine')") == ["MissingFrameworkError", words]


def test_a_framework_that_is_a_plain_dependency_counts_as_one(site):
    """Doctor then says how to train with it, and not to install another one."""
    site.install("minelib", plugins={}, modules={"minelib": ""})
    site.install("plugrad-mine", plugins={("backends", "mine"): "mine"}, requires=("plugrad", "minelib"))
    code = """
from plugrad.cli.doctor import advice
records = [each for each in list_plugins() if each.name in ("mine", "numpy")]
[advice(records), [each.requires for each in records]]
"""
    assert site.run(code) == [
        ["plugrad train ppo CartPole-v1 --backend mine", "plugrad train --help     for every setting"],
        ["minelib", None],
    ]


def test_a_framework_may_have_another_module_name_and_a_strange_one(site):
    site.install("scikit-mine", plugins={}, modules={"skmine": ""})
    site.install(
        "plugrad-more",
        plugins={("backends", "a"): "more", ("backends", "b"): "more"},
        requires=('scikit-mine>=1; extra == "a"', 'no.such.thing; extra == "b"'),
    )
    code = "{each.name: [each.requires, each.installed] for each in list_plugins()}"
    found = site.run(code)
    assert (found["a"], found["b"]) == (["scikit-mine", True], ["no.such.thing", False])


# --- loading ------------------------------------------------------------------------------------------------------


def test_only_the_one_that_is_named_is_loaded(site):
    modules = {"algo_one": ALGORITHM, "algo_two": ALGORITHM, "ears": EARS}
    plugins = {
        ("algorithms", "one"): "algo_one",
        ("algorithms", "two"): "algo_two",
        ("plugins", "ears"): "ears",
    }
    site.install("plugrad-more", plugins=plugins, modules=modules)
    assert site.run("get_algorithm('one').__module__") == "algo_one"
    assert site.loaded == ["algo_one"]


BROKEN = {
    "raising": ("raising", "1 / 0", "raising): ZeroDivisionError: division by zero"),
    "absent": ("absent_module", None, "(absent_module): ModuleNotFoundError: No module named 'absent_module'"),
    "hollow": ("hollow:nothing", "", "(hollow:nothing): AttributeError: module 'hollow' has no attribute 'nothing'"),
    "lacking": ("lacking", "import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
    "malformed": ("not an entry: point", None, "(not an entry: point): "),
}  # fmt: skip


def install_broken(site: Site, kind: str) -> None:
    for name, (value, code, _) in BROKEN.items():
        modules = {} if code is None else {name: code}
        site.install(f"plugrad-{name}", "0.1", plugins={(kind, name): value}, modules=modules)


def test_broken_algorithms_disturb_nobody_and_say_why_when_they_are_named(site):
    install_broken(site, "algorithms")
    code = """
found = {name: attempt(lambda: load_algorithm(name)) for name in %r}
found["ppo"] = algorithm_of(get_algorithm("ppo")).name
found
"""
    found = site.run(code % list(BROKEN))
    assert found.pop("ppo") == "ppo"
    for name, (error, message) in found.items():
        assert error == "PluginError"
        assert message.startswith(f"algorithm '{name}' of plugrad-{name} 0.1 fails to load (")
        assert BROKEN[name][2] in message


def test_with_all_a_broken_listener_is_a_warning_with_name_distribution_and_reason(site):
    install_broken(site, "plugins")
    site.install("plugrad-good", plugins={("plugins", "good"): "good"}, modules={"good": EARS})
    bare = "from plugrad import hookimpl\n@hookimpl\ndef update_endet(results): ...\n"
    site.install("plugrad-typo", "0.2", plugins={("plugins", "typo"): "typo"}, modules={"typo": bare})
    needy = {("plugins", "needy"): "needy"}
    site.install("plugrad-needy", plugins=needy, requires=('nothere; extra == "needy"',))
    for n in (1, 2):
        site.install(f"plugrad-twin{n}", plugins={("plugins", "twin"): "twin"})
    code = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    names = [listener.name for listener in load_listeners(())]
[names, [str(each.message) for each in caught]]
"""
    names, said = site.run(code, asked="all")
    assert "good" in names
    assert not {"twin", "typo", "needy", *BROKEN} & set(names)
    reasons = {name: reason for name, (_, _, reason) in BROKEN.items()} | {
        "typo": "which is no hook of plugrad. Did you mean 'update_ended'?",
        "needy": "plugin 'needy' needs nothere: pip install \"plugrad-needy[needy]\"",
    }
    for name, reason in reasons.items():
        (warning,) = [
            each for each in said if re.match(f"plugin '{name}' of plugrad-{name} [01].* left out", each)
        ]
        assert reason in warning
    assert len([each for each in said if "'twin' is claimed by" in each]) == 2


def test_with_all_a_listener_that_no_learner_can_have_is_left_out_with_one_warning(site):
    """It loads, and would have ended every build. One object of two names listens once."""
    answering = "from plugrad import hookimpl\n@hookimpl\ndef compute_losses(learner, batch): ..."
    wrapping = (
        "from plugrad import hookimpl\n@hookimpl(wrapper=True)\ndef get_training_class():\n    return (yield)"
    )
    counting = (
        "from plugrad import hookimpl\nheard = []\n@hookimpl\ndef update_ended(results):\n    heard.append(1)"
    )
    modules = {"answering": answering, "wrapping": wrapping, "counting": counting}
    plugins = {("plugins", name): name for name in modules} | {("plugins", "again"): "counting"}
    site.install("plugrad-mine", plugins=plugins, modules=modules)
    code = """
from plugrad.testing.tiny_learners import tiny_batch, tiny_learner
with warnings.catch_warnings(record=True) as caught:
    learner = tiny_learner("numpy")
    learner.update(tiny_batch())
    import counting
[[str(each.message) for each in caught if "plugrad-mine" in str(each.message)], len(counting.heard)]
"""
    said, heard = site.run(code, asked="all")
    assert heard == 1
    first, second = sorted(said)
    assert first.startswith(
        "plugin 'answering' of plugrad-mine 1.0 left out: listener 'answering' answers 'compute_losses'"
    )
    assert second.startswith("plugin 'wrapping' of plugrad-mine 1.0 left out: ")
    assert "which cannot be wrapped" in second


@pytest.mark.parametrize(("names", "asked"), [(("raising",), None), ((), "raising")])
def test_a_broken_listener_that_is_named_is_an_error(site, names, asked):
    install_broken(site, "plugins")
    error, message = site.error(f"load_listeners({names!r})", asked=asked)
    assert error == "PluginError"
    assert message.startswith("plugin 'raising' of plugrad-raising 0.1 fails to load (raising): ZeroDivision")


LISTENERS = [
    # config.plugins(...), PLUGRAD_PLUGINS, what is loaded
    ((), None, []),
    ((), "", []),
    ((), "none", []),
    ((), "a", ["a"]),
    ((), " b, a ", ["b", "a"]),
    ((), "all", ["a", "b"]),
    (("b",), None, ["b"]),
    (("b",), "none", ["b"]),
    (("b",), "a,b", ["b", "a"]),
    (("b",), "all", ["b", "a"]),
]


def test_config_and_environment_name_the_listeners(site):
    plugins = {("plugins", "a"): "ears_a", ("plugins", "b"): "ears_b"}
    site.install("plugrad-ears", plugins=plugins, modules={"ears_a": EARS, "ears_b": EARS})
    code = """
def load(names, asked):
    for name in ("a", "b"):
        sys.modules.pop("ears_" + name, None)
    os.environ.pop("PLUGRAD_PLUGINS", None)
    os.environ.update({} if asked is None else {"PLUGRAD_PLUGINS": asked})
    found = [each.name for each in load_listeners(names)]
    imported = sorted(name for name in sys.modules if name.startswith("ears_"))
    return [found, imported]
[load(names, asked) for names, asked, _ in %r]
"""
    for (_, asked, expected), (names, imported) in zip(LISTENERS, site.run(code % LISTENERS), strict=True):
        mine = [name for name in names if asked != "all" or name in ("a", "b")]
        assert (sorted(mine) if asked == "all" else mine) == (
            sorted(expected) if asked == "all" else expected
        )
        assert imported == sorted(f"ears_{name}" for name in expected)


# --- what a checkpoint needs ---------------------------------------------------------------------------------------

LOSS = """
@hookimpl
def compute_loss_for_module(learner, fwd_out):
    return learner.ops.mean(fwd_out["vf_preds"])
"""
BUILD = """
import gymnasium as gym, numpy as np
spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2))}
learner = get_algorithm("gone")().framework("numpy").build_learner(spaces=spaces)
learner.save_to_path("PATH")
"""


def test_a_checkpoint_says_which_distribution_its_algorithm_was_of(site, tmp_path):
    plugins = {("algorithms", "gone"): "gone"}
    site.install("plugrad-gone", "1.4", plugins=plugins, modules={"gone": ALGORITHM + LOSS}, folder="was")
    site.run(BUILD.replace("PATH", str(tmp_path / "saved")) + "\nlearner.update_mode", folders=("was",))
    code = (
        f"from plugrad import Learner\nattempt(lambda: Learner.from_checkpoint({str(tmp_path / 'saved')!r}))"
    )
    error, message = site.run(code)
    assert error == "AlgorithmNotFoundError"
    assert message.startswith(f"{tmp_path / 'saved'}")
    assert message.endswith(" It was written with plugrad-gone 1.4: pip install plugrad-gone")
    assert "no algorithm 'gone'; installed: " in message


@pytest.mark.parametrize("wrong", ["x; rm -rf /", "--pre", "--index-url=evil", "a\nb", "\x1b[2J", "", None])
def test_what_can_be_no_distribution_is_not_advised(wrong):
    plugin = {"kind": "algorithm", "name": "gone", "distribution": wrong, "version": "1.0"}
    with (
        pytest.raises(AlgorithmNotFoundError) as raised,
        with_distribution_hint("here", {"plugins": [plugin]}),
    ):
        get_algorithm("gone")
    assert "pip install" not in str(raised.value)


# --- whose algorithm a config is -----------------------------------------------------------------------------------


def test_an_algorithm_must_say_which_config_is_its_own(site):
    site.install("plugrad-mute", plugins={("algorithms", "mute"): "mute"}, modules={"mute": EARS})
    error, message = site.error("load_algorithm('mute')")
    assert error == "PluginError"
    assert message.startswith("algorithm 'mute' lacks the hook 'get_config_class'")


def test_a_config_class_tells_its_algorithm_and_so_does_a_subclass(site):
    site.install("plugrad-mine", plugins={("algorithms", "mine"): "mine"}, modules={"mine": ALGORITHM})
    code = """
from mine import AlgorithmConfig, Config
found = [algorithm_of(each) for each in (Config, type("Sub", (Config,), {}), AlgorithmConfig)]
[each and each.name for each in found]
"""
    assert site.run(code) == ["mine", "mine", None]


def test_a_folder_without_metadata_disturbs_nobody(site):
    (site.root / "~lugrad-0.1.dist-info").mkdir()
    assert "torch" in site.run("[record.name for record in list_plugins()]")


def test_an_algorithm_with_the_config_of_another_package_is_refused(site):
    """Its loss would never be asked: a config of PPO's class is PPO's."""
    code = ALGORITHM.replace("return Config", "from plugrad_ppo import PPOConfig\n    return PPOConfig")
    site.install("plugrad-thin", plugins={("algorithms", "thin"): "thin"}, modules={"thin": code})
    error, message = site.error("get_algorithm('thin')")
    assert error == "PluginError"
    assert message.startswith(
        "algorithm 'thin': its config plugrad_ppo.config.PPOConfig is not of its own package"
    )


# --- plugrad plugins ----------------------------------------------------------------------------------------------

COMMAND = """
from click.testing import CliRunner
from plugrad.cli import main
def said(*arguments):
    done = CliRunner().invoke(main, ["plugins", *arguments])
    return [done.exit_code, done.stdout]
"""
OLDER = """
from plugrad import hookimpl
@hookimpl
def update_ended(learner, results, num_steps): ...
"""
WRAPPING = """
from plugrad import hookimpl
@hookimpl(wrapper=True)
def compute_losses():
    return (yield)
@hookimpl
def update_ended(): ...
"""
HOLLOW = """
from plugrad import hookimpl
@hookimpl
def backend_info(): ...
"""
UNUSABLE = {
    "raising": r"fails to load \(raising\): ZeroDivisionError",
    "older": r"argument 'num_steps': the hook's arguments are \(learner, results\)",
    "needy": 'needs nothere: pip install "plugrad-needy\\[needy\\]"',
    "hollow": "does not answer ops, get_tensor_variable, .*compile_update",
    "twin": r"'twin' is claimed by plugrad-twin1 1.0 and plugrad-twin2 2.0",
}


def install_one_of_each(site: Site) -> None:
    listeners = {"raising": "1 / 0", "older": OLDER, "wrapping": WRAPPING}
    for name, code in listeners.items():
        site.install(f"plugrad-{name}", plugins={("plugins", name): name}, modules={name: code})
    site.install("plugrad-hollow", plugins={("backends", "hollow"): "hollow"}, modules={"hollow": HOLLOW})
    needs = ('nothere; extra == "needy"',)
    site.install("plugrad-needy", plugins={("backends", "needy"): "needy"}, requires=needs)
    for n in (1, 2):
        site.install(f"plugrad-twin{n}", f"{n}.0", plugins={("algorithms", "twin"): "twin"})


def test_check_says_of_each_plugin_what_it_is_or_why_it_cannot_be_used(site):
    install_one_of_each(site)
    code = COMMAND + "{name: said('--check', name, '--json') for name in %r}"
    found = site.run(code % [*UNUSABLE, "wrapping"])
    exit_code, text = found.pop("wrapping")
    (report,) = json.loads(text)
    assert (exit_code, report["reason"], report["distribution"]) == (0, None, "plugrad-wrapping")
    assert report["hooks"] == [
        {"hook": "compute_losses", "wrapper": True, "where": "wrapping:3"},
        {"hook": "update_ended", "wrapper": False, "where": "wrapping:6"},
    ]
    for name, (exit_code, text) in found.items():
        reports = json.loads(text)
        assert exit_code == 1
        assert len(reports) == (2 if name == "twin" else 1)
        for report in reports:
            assert re.search(UNUSABLE[name], report["reason"])


def test_the_list_says_what_is_missing_and_what_clashes_and_loads_nothing(site):
    install_one_of_each(site)
    code = COMMAND + "[said('--json'), said()]"
    (_, records), (exit_code, table) = site.run(code)
    problems = {each["name"]: each["problem"] for each in json.loads(records)}
    assert {name for name in (*UNUSABLE, "wrapping") if problems[name]} == {"needy", "twin"}
    for name in ("needy", "twin"):
        assert re.search(UNUSABLE[name], problems[name])
        assert table.count(problems[name]) == 1
    assert exit_code == 0
    assert not set(site.loaded)


def test_backends_and_doctor_name_what_cannot_be_used(site):
    install_one_of_each(site)
    needs = ('nothere; extra == "dear"',)
    site.install("plugrad-dear", plugins={("plugins", "dear"): "dear"}, requires=needs)
    code = (
        COMMAND.replace('["plugins", *arguments]', "arguments")
        + "[said('backends'), said('backends', '--json'), said('doctor')]"
    )
    (code_of_table, table), (_, records), (_, doctor) = site.run(code, asked="wrapping, gone, mine.py")
    hollow = "backend 'hollow' does not answer ops, get_tensor_variable, "
    (line,) = [each for each in table.splitlines() if "hollow" in each]
    assert code_of_table == 0
    assert line.startswith(hollow)
    assert line.endswith(": see docs/hooks.md")
    problems = {each["name"]: each["problem"] for each in json.loads(records)}
    assert problems["hollow"] == line
    assert problems["numpy"] is None
    found = doctor.partition("\nproblems\n")[2].splitlines()
    assert [
        each for each in found if not re.match("  (backend '(torch|tf2|jax)':|no framework is)", each)
    ] == [
        "  backend 'needy' needs nothere: pip install \"plugrad-needy[needy]\"",
        "  algorithm 'twin' is claimed by plugrad-twin1 1.0 and plugrad-twin2 2.0: uninstall all but one",
        "  plugin 'dear' needs nothere: pip install \"plugrad-dear[dear]\"",
        "  PLUGRAD_PLUGINS names 'gone', which is not installed: no learner is built until you unset it",
    ]


# --- commands ------------------------------------------------------------------------------------------------------

HELLO = """
import click
print("loading", __name__)
@click.command()
@click.option("--name", default="world")
@click.option("--fail", is_flag=True)
def hello(name, fail):
    "Greet."
    if fail:
        raise ValueError("no greeting")
    click.echo(f"hello {name}")
"""
CALL = """
from click.testing import CliRunner
from plugrad.cli import main
def call(*words):
    before = set(sys.modules)
    done = CliRunner().invoke(main, words)
    return [done.exit_code, done.output, sorted({"my_hello", "my_ears", "my_bad"} & (set(sys.modules) - before))]
"""


@pytest.fixture
def with_commands(site: Site) -> Site:
    plugins = {
        ("plugins", "hello"): "my_hello:hello",
        ("plugins", "train"): "my_hello:hello",
        ("plugins", "ears"): "my_ears",
        ("plugins", "bad"): "my_bad:command",
    }
    modules = {"my_hello": HELLO, "my_ears": EARS, "my_bad": "1 / 0"}
    site.install("plugrad-hello", "2.1", plugins=plugins, modules=modules)
    return site


def test_a_command_of_a_plugin_is_loaded_when_it_is_called(with_commands):
    listed, table, shown, greeted, again = with_commands.run(
        CALL
        + '[call(*each) for each in ([], ["plugins"], ["hello", "-h"], ["hello", "--name", "you"], ["hello"])]'
    )
    assert re.search(r"Installed plugins.*\n.* hello +plugrad-hello 2\.1\n", listed[1], re.DOTALL)
    assert "early-stopping" not in listed[1]
    assert "hello" in table[1]
    assert (listed[2], table[2]) == ([], [])
    assert shown[::2] == [0, ["my_hello"]]
    assert "Greet." in shown[1]
    assert greeted[:2] == [0, "hello you\n"]
    assert again == [0, "hello world\n", []]


def test_what_is_wrong_with_a_command_is_one_line(with_commands):
    bad, failing, ears, missing, own = with_commands.run(
        CALL
        + '[call(*each) for each in (["bad"], ["hello", "--fail"], ["ears"], ["helo"], ["train", "--name", "you"])]'
    )
    assert bad[0] == 1
    assert bad[1].startswith(
        "plugrad: error: plugin 'bad' of plugrad-hello 2.1 fails to load (my_bad:command): Zero"
    )
    assert failing[0] == 1
    assert re.search(
        r"plugrad: error: ValueError: no greeting \(.*my_hello.py, line 10\) \(--debug shows where\)\n",
        failing[1],
    )
    assert (ears[0], "no command, it listens: plugrad train --plugin ears" in ears[1]) == (2, True)
    assert (missing[0], "No such command 'helo'" in missing[1]) == (2, True)
    assert own[0] == 2, "plugrad's own command goes first"
    assert all(each[1].count("\n") <= 2 for each in (bad, failing, ears, missing))


def test_a_command_does_not_listen(with_commands):
    named = with_commands.error('load_listeners(("hello",))')
    assert named == ["_IsCommandError", "plugin 'hello' is a command, it does not listen: plugrad hello"]
    code = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loaded = [each.name for each in load_listeners(())]
[loaded, [str(each.message).split(" left out")[0] for each in caught]]
"""
    loaded, warned = with_commands.run(code, asked="all")
    assert "ears" in loaded
    assert "hello" not in loaded
    assert not any("'hello'" in each for each in warned)
    assert any("'bad'" in each for each in warned)


def test_a_command_can_be_checked(with_commands):
    code = CALL + '[call("plugins", "--check", each) for each in ("hello", "bad", "train")]'
    good, bad, taken = with_commands.run(code)
    assert (good[0], "loads, and is a command: plugrad hello" in good[1]) == (0, True)
    assert (bad[0], "unusable: plugin 'bad'" in bad[1]) == (1, True)
    assert (taken[0], "unusable: plugrad train is a command of plugrad itself" in taken[1]) == (1, True)


def test_a_plugin_that_exits_when_it_is_imported_is_a_problem_of_its_own(site):
    modules = {
        "leaves": "import sys\nsys.exit(3)",
        "leaves_later": ALGORITHM.replace("return Config", "raise SystemExit(3)"),
    }
    plugins = {("algorithms", "leaver"): "leaves", ("algorithms", "late"): "leaves_later"}
    site.install("plugrad-leaver", plugins=plugins, modules=modules)
    kind, said = site.error("get_algorithm('leaver')")
    assert kind == "PluginError"
    assert "'leaver' of plugrad-leaver 1.0 fails to load (leaves): SystemExit: 3" in said
    lines = ["from click.testing import CliRunner", "from plugrad.cli import main"]
    program = [*lines, "[(done := CliRunner().invoke(main, ['algorithms'])).exit_code, done.stdout]"]
    code, printed = site.run("\n".join(program))
    assert code == 0
    assert all(name in printed for name in ("leaver", "late", "ppo", "sac"))


def test_an_algorithm_without_a_loss_does_not_pass_the_check_and_the_error_says_so(site):
    site.install(
        "plugrad-lossless", plugins={("algorithms", "lossless"): "lossless"}, modules={"lossless": ALGORITHM}
    )
    lines = ["from click.testing import CliRunner", "from plugrad.cli import main"]
    program = [
        *lines,
        "[(done := CliRunner().invoke(main, ['plugins', '--check', 'lossless'])).exit_code, done.output]",
    ]
    code, printed = site.run("\n".join(program))
    assert code == 1
    assert "it does not answer the hook 'compute_loss_for_module'" in " ".join(printed.split())
    build = "get_algorithm('lossless')().framework('numpy').build_learner(env='CartPole-v1')"
    kind, said = site.error(build)
    assert kind == "PluginError"
    assert "algorithm 'lossless'" in said
    assert "has no loss: it does not answer the hook 'compute_loss_for_module'" in said
