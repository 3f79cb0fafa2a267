"""What is known of a program before it is rewritten: imports, registered environments, classes, configs."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard

from plugrad_rllib.migrate.names import CONSTANTS
from plugrad_rllib.migrate.notes import Notes
from plugrad_rllib.migrate.settings import SECTIONS

OF_RLLIB = re.compile(r"ray\.rllib(\.|$)|ray\.tune(\.registry|\.result)?$")
"""Modules whose names are replaced."""

OWN_CODE = frozenset({"learner_class", "learner_config_dict", "learner_connector"})
"""Settings that name code of a program, or become it: `Algorithm.from_checkpoint` cannot build with them."""

CONNECTORS = frozenset({"env_to_module_connector", "learner_connector"})
"""Settings that are given by a function, which makes pieces."""

RAY_PARTS = frozenset({"air", "train", "tune"})
"""Of Ray, which plugrad does without."""

SAMPLERS = frozenset(
    {
        "choice",
        "grid_search",
        "lograndint",
        "loguniform",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "qrandn",
        "quniform",
        "randint",
        "randn",
        "sample_from",
        "uniform",
    }
)
"""Functions of Ray Tune that stand for a value of each trial."""

_REGISTERING = ("register_env", "registry")
"""Of a part of Ray, what is rewritten."""


@dataclass
class Program:
    """One file.

    Attributes:
        imported: `{name in the file: name in RLlib}`.
        modules: `{name in the file: the module of RLlib that has it}`.
        others: names that the file imports from elsewhere.
        environments: `{name that register_env gives: function here}`.
        config_parameters: `{class of the file: the first parameter of its constructor, or None}`.
        configs: variables that hold a config.
        plain_dicts: variables and arguments that hold a dict at some place, such as the settings of an environment.
        num_learners: as the program sets it, at least 1, which is the default; None: it is no number in the program.
        sets_minibatch_size: whether a call sets it.
        own_code: which of `OWN_CODE` the program sets, and "env" and "rl_module_spec" where they are code of its own.
        results: `{variable: "evaluation" or "env_runners", the part of the results that it holds}`; None: not always.
        algorithms: variables that hold an algorithm.
        callbacks: the lines of callbacks, whose `algorithm` has more names of RLlib's.
        policies: variables that hold a policy of an algorithm.
        ray_calls: `{part of ray: the first of its members that the file uses and that is not rewritten}`, such as
            `{"tune": "Tuner"}`.
        grids: variables with what RLlib's helper for examples returns, of which the file asks for the best trial.
        own_options: options that the file's command line has itself, such as "--seed".
        sets_env: whether a config gets an environment; else RLlib's helper gives it that of its option `--env`.
        logged: names of metrics that the file logs itself: `metrics_logger.log_value("steps_to_meet", ...)`.
        is_tuned: whether a Tuner of Ray Tune gets a config.
        searched: `{setting here: what stands for its value}`: what the trials of a Tuner differ in.
        registering: how often a part of ray only registers an environment, which is rewritten.
        own_settings: `{setting of a learner_config_dict: default}`, as Python.
        returned: `{function of the file: what it returns}`, of those that do nothing else.
        only_connectors: functions of the file that are named nowhere but as connectors of environments or learners.
        bases: what the file's classes derive from.
        methods: names of methods of the file's classes.
        attributes: names of attributes of variables that the file reads.
        uses: `{name: the lines that read it}`.
        removed: `{name in the file: (module of RLlib, its name there, line)}`, of imports that were taken out.
        needed: `{(module, name, name in the file)}` to import.
        notes: what is left to do.
    """

    imported: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    environments: dict[str, str] = field(default_factory=dict)
    config_parameters: dict[str, str | None] = field(default_factory=dict)
    configs: set[str] = field(default_factory=set)
    plain_dicts: set[str] = field(default_factory=set)
    num_learners: int | None = 1
    sets_minibatch_size: bool = False
    own_code: set[str] = field(default_factory=set)
    results: dict[str, str | None] = field(default_factory=dict)
    algorithms: set[str] = field(default_factory=set)
    callbacks: set[int] = field(default_factory=set)
    policies: set[str] = field(default_factory=set)
    ray_calls: dict[str, str] = field(default_factory=dict)
    grids: set[str] = field(default_factory=set)
    own_options: set[str] = field(default_factory=set)
    sets_env: bool = False
    logged: set[str] = field(default_factory=set)
    is_tuned: bool = False
    searched: dict[str, str] = field(default_factory=dict)
    registering: Counter[str] = field(default_factory=Counter)
    own_settings: dict[str, str] = field(default_factory=dict)
    returned: dict[str, ast.expr] = field(default_factory=dict)
    only_connectors: set[str] = field(default_factory=set)
    bases: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    uses: dict[str, list[int]] = field(default_factory=dict)
    removed: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    needed: set[tuple[str, str, str]] = field(default_factory=set)
    notes: Notes = field(default_factory=Notes)

    @cached_property
    def of_rllib(self) -> frozenset[str]:
        """The names of RLlib that the file imports; asked for once the file was read."""
        return frozenset(self.imported.values())

    def name_of_rllib(self, node: ast.expr) -> str | None:
        """What a name is called in RLlib: imported, or an attribute such as `tune.register_env`; else None."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id)
        inner = node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        return node.attr if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name) else None

    def is_config(self, node: ast.expr) -> bool:
        """Whether an expression is a config with any number of fluent calls; asked for once the file was read."""
        return _is_config(self, node)

    def own_config(self, name: str) -> str:
        """The class that a config class's name stands for: one of the program's own where it has own settings."""
        return f"Own{name}" if self.own_settings else name


def read_program(tree: ast.AST) -> Program:
    """Look a file through.

    Args:
        tree: of the file.

    Returns:
        What the rewritings need to know.
    """
    program = Program()
    nodes = list(ast.walk(tree))
    helped: set[str] = set()
    _look_at_names(program, nodes)
    _look_at_functions(program, nodes)
    for node in nodes:
        if isinstance(node, ast.Call):
            _look_at_call(program, node)
            _look_for_own_code(program, node)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("on_"):
            program.callbacks |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.arg) and node.arg == "algorithm":  # of a callback
            program.algorithms.add(node.arg)
        elif isinstance(node, ast.arg) and not ast.unparse(node.annotation or node).endswith("Config"):
            program.plain_dicts.add(node.arg)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            program.plain_dicts |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Assign) and _is_config(program, node.value):
            program.configs |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".get_policy()"):
            program.policies |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Assign) and _is_helper(program, node.value):
            helped |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.Assign) and _is_algorithm(program, node.value):
            program.algorithms |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    program.grids = helped & _grids(nodes)
    program.is_tuned |= bool(program.grids)
    program.num_learners = _num_learners(nodes)
    _look_at_results(program, nodes)
    return program


def _look_at_names(program: Program, nodes: Sequence[ast.AST]) -> None:
    """Find what the file imports, what it reads of Ray, its classes, and where names are read."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and OF_RLLIB.match(node.module or ""):
            program.imported |= {alias.asname or alias.name: alias.name for alias in node.names}
            program.modules |= dict.fromkeys(
                [alias.asname or alias.name for alias in node.names], node.module or ""
            )
        elif isinstance(node, ast.ImportFrom):
            program.others |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            program.attributes.add(node.attr)
            if node.value.id in RAY_PARTS and node.attr in _REGISTERING:
                program.registering[node.value.id] += 1
            elif node.value.id in RAY_PARTS:
                program.ray_calls.setdefault(node.value.id, node.attr)
        elif isinstance(node, ast.ClassDef):
            program.config_parameters[node.name] = _first_parameter(node)
            program.bases |= {each.id for each in node.bases if isinstance(each, ast.Name)}
            program.methods |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            program.uses.setdefault(node.id, []).append(node.lineno)


def _look_at_functions(program: Program, nodes: Sequence[ast.AST]) -> None:
    """Find the functions of the file that only return something, and those that only make connectors."""
    number: Counter[str] = Counter(program.methods)
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            number[node.name] += 1
            body = [each for each in node.body if not _is_docstring(each)]
            last = body[-1] if body else None
            returned = last.value if len(body) == 1 and isinstance(last, ast.Return) else None
            if reads_no_argument(returned, node.args):
                program.returned[node.name] = returned
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for each in node.targets:
                number[ast.unparse(each)] += 1
                if reads_no_argument(node.value.body, node.value.args):
                    program.returned[ast.unparse(each)] = node.value.body
    for name, times in number.items():
        if times > 1:  # which of them is meant is not known
            program.returned.pop(name, None)
    makers = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg in CONNECTORS]
    given = [each.id for each in map(given_maker, makers) if isinstance(each, ast.Name)]
    program.only_connectors = {name for name in given if given.count(name) == len(program.uses[name])}


def reads_no_argument(returned: ast.expr | None, arguments: ast.arguments) -> TypeGuard[ast.expr]:
    """Whether what a function returns can stand where the function is given, since it reads none of its arguments.

    Args:
        returned: what it returns.
        arguments: the function's.
    """
    if returned is None:
        return False
    own = {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)}
    return not own & {each.id for each in ast.walk(returned) if isinstance(each, ast.Name)}


def given_maker(maker: ast.expr) -> ast.expr:
    """`f` of `f if condition else None` and of `None if condition else f`; of anything else itself.

    Args:
        maker: what a connector is given by.
    """
    if not isinstance(maker, ast.IfExp):
        return maker
    branches = [each for each in (maker.body, maker.orelse) if ast.unparse(each) != "None"]
    return branches[0] if len(branches) == 1 else maker


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _grids(nodes: Sequence[ast.AST]) -> set[str]:
    """Variables that are read as a ResultGrid of Ray Tune: `x.get_best_result(...)`, `x.get_dataframe()` and `x[0]`."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            is_asked = node.attr in ("get_best_result", "get_dataframe")
        elif isinstance(node, ast.Subscript):
            is_asked = _int(node.slice) is not None
        else:
            continue
        if is_asked and isinstance(node.value, ast.Name):
            found.add(node.value.id)
    return found


def _num_learners(nodes: Sequence[ast.AST]) -> int | None:
    names = ("num_learners", "num_learner_workers")
    values = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg in names]
    for node in nodes:
        if isinstance(node, ast.Assign):
            values += [node.value for each in node.targets if getattr(each, "attr", None) in names]
    found = {_int(value) for value in values}
    number = found.pop() if found else 1
    return None if found or number is None else max(1, number)


def _int(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _look_at_results(program: Program, nodes: Sequence[ast.AST]) -> None:
    """Find the variables that hold a part of the results."""
    assigned = sorted((node for node in nodes if isinstance(node, ast.Assign)), key=lambda each: each.lineno)
    first_line: dict[str, int] = {}
    for node in assigned:
        for each in node.targets:
            if isinstance(each, ast.Name):
                first_line.setdefault(each.id, node.lineno)
    for node in assigned:
        part = _part_of_results(program, node.value)
        for each in node.targets:
            if not isinstance(each, ast.Name):
                continue
            if part is not None or each.id in program.results:
                is_assigned = first_line[each.id] < node.lineno
                before = program.results.get(each.id, "" if is_assigned else part)
                program.results[each.id] = part if before == part else None


def _part_of_results(program: Program, node: ast.expr) -> str | None:
    """ "evaluation" for what `evaluate()` returns, and for `results["evaluation"]`; "env_runners" likewise."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "evaluate" and not node.args:
            return "evaluation"
        if node.func.attr != "get" or not node.args:
            return None
        whole, key = node.func.value, node.args[0]
    elif isinstance(node, ast.Subscript):
        whole, key = node.value, node.slice
    else:
        return program.results.get(node.id) if isinstance(node, ast.Name) else None
    name = key.value if isinstance(key, ast.Constant) else None
    if isinstance(key, ast.Name):
        name = CONSTANTS.get(program.imported.get(key.id, ""))
    if name == "env_runners":
        return _part_of_results(program, whole) or name
    return name if name == "evaluation" else None


def _first_parameter(node: ast.ClassDef) -> str | None:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__" and len(each.args.args) > 1:
            return each.args.args[1].arg
    return None


def _look_at_call(program: Program, node: ast.Call) -> None:
    if (
        program.name_of_rllib(node.func) == "register_env"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        name = str(node.args[0].value)
        program.environments[name] = "make_" + re.sub(r"\W+", "_", name)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
        program.own_options |= {str(each.value) for each in node.args if isinstance(each, ast.Constant)}
    if isinstance(node.func, ast.Attribute) and node.func.attr == "environment":
        program.sets_env |= bool(node.args) or any(each.arg in (None, "env") for each in node.keywords)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "log_value" and node.args:
        program.logged |= {str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant)}
    if ast.unparse(node.func).endswith(("Tuner", "Tuner.restore")):
        program.is_tuned |= any(
            each.arg == "param_space" and _is_config(program, each.value) for each in node.keywords
        )
    for keyword in node.keywords:
        if keyword.arg in ("minibatch_size", "sgd_minibatch_size"):
            program.sets_minibatch_size = True
        if keyword.arg == "learner_config_dict" and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    is_plain = isinstance(value, ast.Constant)
                    program.own_settings[key.value] = ast.unparse(value) if is_plain else "0.0"


def _look_for_own_code(program: Program, node: ast.Call) -> None:
    """Keep which settings name code of the program."""
    if program.name_of_rllib(node.func) == "register_env":
        program.own_code.add("env")
    if isinstance(node.func, ast.Attribute) and node.func.attr == "environment":
        given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "env")]
        if any(isinstance(each, ast.Lambda) or _is_class(each) for each in given):
            program.own_code.add("env")
    for keyword in node.keywords:
        if keyword.arg in OWN_CODE:
            program.own_code.add(keyword.arg)
        if keyword.arg == "module_class" and _is_class(keyword.value):
            program.own_code.add("rl_module_spec")


def _is_class(node: ast.expr) -> bool:
    """Whether an expression is the name of a class, as one is written."""
    return isinstance(node, ast.Name) and node.id[:1].isupper() and not node.id.isupper()


def _is_config(program: Program, node: ast.expr) -> bool:
    """Whether an expression is a config with any number of fluent calls."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get_default_config":
            return True
        if node.func.attr not in SECTIONS:
            return False
        node = node.func.value
    if isinstance(node, ast.Name):
        return node.id in program.configs
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    return program.imported.get(node.func.id, "").endswith("Config")


def _is_algorithm(program: Program, node: ast.expr) -> bool:
    """Whether an expression is what a config builds, or `Algorithm.from_checkpoint(...)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr in ("build", "build_algo"):
        return _is_config(program, node.func.value)
    return node.func.attr == "from_checkpoint" and program.name_of_rllib(node.func.value) == "Algorithm"


def _is_helper(program: Program, node: ast.expr) -> bool:
    """Whether an expression is a call of RLlib's helper that runs an example."""
    return (
        isinstance(node, ast.Call)
        and program.name_of_rllib(node.func) == "run_rllib_example_script_experiment"
    )
