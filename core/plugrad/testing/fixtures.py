"""A pytest plugin for authors of plugins: the fixtures of the suites, and a report of what they did not prove.

    # conftest.py
    import pytest

    pytest_plugins = ["plugrad.testing.fixtures"]


    @pytest.fixture(scope="session")
    def backend():
        return "mine"  # of backend_suite; of algorithm_suite: def algorithm(), of collective_suite: def collective()

A test that needs what a backend does not declare in `BackendInfo.capabilities` is skipped by `requires`, and the end of
the run says so.
"""

import platform
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from plugrad.algorithm_config import AlgorithmConfig, OffPolicyConfig
from plugrad.collective import Collective, Place
from plugrad.errors import ConfigError, MissingFrameworkError
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import get_algorithm, load_backend, load_collective
from plugrad.learner import Learner
from plugrad.ops import Ops
from plugrad.testing.members import MemberProcess, Members, start_interpreter_member
from plugrad.testing.tiny_learners import BatchRecordedError, batch_recorder, tiny_learner
from plugrad.testing.tiny_task import TASKS, TinyTask, record_demonstrations, tiny_algorithm_config

pytest.register_assert_rewrite(
    *(f"plugrad.testing.{suite}" for suite in ("backend_suite", "algorithm_suite", "collective_suite"))
)

NOT_PROVEN = "not proven: "
ASKED = "capability"
"""The property of a test's report that has a capability which the test is about."""
REFERENCE = "numpy"
STRICT = "strict"
_MANY_WEIGHTS = 200
"""With more of them finite differences take minutes; the `algorithm_config` below has about 50."""
_SAID = pytest.StashKey[set[int]]()
ITERATIONS = 100
"""Iterations within which an algorithm must have trained on a batch."""


def installed_backends() -> list[str]:
    """Names of the backends whose framework is here; the reference only if there is no other, the strict one never."""
    names = [record.name for record in list_plugins() if record.kind == "backend" and record.installed]
    return [name for name in names if name not in (REFERENCE, STRICT)] or [REFERENCE]


@pytest.fixture(scope="session", params=installed_backends())
def backend(request: pytest.FixtureRequest) -> str:
    """The short name of a backend: every installed one, unless your conftest.py says which."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def algorithm() -> str:
    """The short name of the algorithm that `algorithm_suite` proves: your conftest.py says it."""
    raise pytest.UsageError(
        "which algorithm? Write in conftest.py:\n"
        '@pytest.fixture(scope="session")\ndef algorithm():\n    return "the name of its entry point"'
    )


@pytest.fixture(params=TASKS)
def tiny_task(request: pytest.FixtureRequest, algorithm: str) -> type[TinyTask]:
    """The environment: each of `plugrad.testing.tiny_task` whose actions the algorithm takes.

    An algorithm takes an environment if a learner is built for it; what a `ConfigError` refuses is not proven. If it
    takes none of them, write a fixture `tiny_task` in conftest.py that returns an environment class of your own, and
    for an algorithm that learns offline a fixture `recorded_episodes`.
    """
    refused = _refused_tasks(algorithm)
    if len(refused) == len(TASKS):
        words = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise pytest.UsageError(
            f"{algorithm!r} takes no task of plugrad.testing.tiny_task, so nothing is proven. {words}"
        )
    if request.param in refused:
        leave_unproven(f"algorithm {algorithm!r} takes no {request.param} actions: {refused[request.param]}")
    return TASKS[request.param]


@cache
def _refused_tasks(algorithm: str) -> dict[str, str]:
    """`{task: why}` of those that the algorithm does not take."""
    config = get_algorithm(algorithm)().framework(REFERENCE).rl_module(model_config={"fcnet_hiddens": [4]})
    refused = {}
    for name, task in TASKS.items():
        try:
            config.environment(task).build_learner()
        except ConfigError as error:
            refused[name] = str(error)
    return refused


@pytest.fixture
def recorded_episodes(tiny_task: type[TinyTask], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of recorded episodes of `tiny_task`, mostly right, for algorithms that learn offline."""
    path = tmp_path_factory.getbasetemp() / f"episodes of {tiny_task.__name__}"
    if not path.exists():
        record_demonstrations(tiny_task, path)
    return path


@pytest.fixture
def algorithm_config(
    request: pytest.FixtureRequest, algorithm: str, backend: str, tiny_task: type[TinyTask]
) -> AlgorithmConfig:
    """A few dozen weights and a few rows: what `algorithm_suite` computes losses and steps with.

    An off-policy algorithm learns from the first step on, an offline one from `recorded_episodes`. To change it,
    override it in your conftest.py: `def algorithm_config(algorithm_config): return algorithm_config.training(...)`.
    """
    recorded: Callable[[], Path] = partial(request.getfixturevalue, "recorded_episodes")
    return tiny_algorithm_config(algorithm, backend, tiny_task, recorded, compile="none")


@pytest.fixture
def learning_config(algorithm_config: AlgorithmConfig) -> AlgorithmConfig:
    """Enough to learn `tiny_task` in fifty iterations; override it as `algorithm_config`."""
    config = algorithm_config.rl_module(model_config={"fcnet_hiddens": [16]})
    config = config.training(train_batch_size=256, minibatch_size=64, num_epochs=4)
    if isinstance(config, OffPolicyConfig):
        config = config.env_runners(rollout_fragment_length=16)
        config = config.training(train_batch_size=1024, num_epochs=1, gamma=0.5)
    return config


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`progress(words)`: a line on the terminal while a test runs, unless pytest is quiet or several run at a time."""
    manager = request.config.pluginmanager
    terminal, capture = manager.get_plugin("terminalreporter"), manager.get_plugin("capturemanager")
    if terminal is None or capture is None or terminal.verbosity < 0:
        return lambda words: None

    def say(words: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(f"    {words}")

    return say


@pytest.fixture
def say_num_weights(request: pytest.FixtureRequest, progress: Callable[[str], None]) -> Callable[[int], None]:
    """`say_num_weights(number)`: a line of `progress`, once for each number; of many, how there come to be fewer."""
    said = request.config.stash.setdefault(_SAID, set())

    def say(number: int) -> None:
        if number in said:
            return
        said.add(number)
        words = f"{number} weights: the reference computes {2 * number} losses for each gradient"
        if number > _MANY_WEIGHTS:
            words += (
                f". Over {_MANY_WEIGHTS} weights that takes minutes: give your network a few units in the fixture "
                "`algorithm_config` of your conftest.py, `algorithm_config.rl_module(model_config={...})`"
            )
        progress(words)

    return say


@pytest.fixture
def algorithm_batch(algorithm_config: AlgorithmConfig) -> dict[str, dict[str, Any]]:
    """What the loss reads, `{module_id: {column: array}}`: the first batch that `algorithm_config` trains on."""
    recorder = batch_recorder(algorithm_config.get_learner_class())
    with warnings.catch_warnings():
        # The recorder, a local class, is never saved.
        warnings.filterwarnings("ignore", ".*learner_class cannot be written", UserWarning)
        algorithm = algorithm_config.framework(REFERENCE).learners(learner_class=recorder).build_algo()
    try:
        for _ in range(ITERATIONS):
            algorithm.train()
    except BatchRecordedError as recorded:
        return recorded.batch
    finally:
        algorithm.stop()
    raise pytest.UsageError(f"{algorithm_config.algorithm!r} made no update in {ITERATIONS} iterations")


# Of no wider scope than a test: pytest would keep them when a folder or module says another backend.
@pytest.fixture
def backend_info(backend: str) -> BackendInfo:
    """What the backend says of itself."""
    info: BackendInfo = load_backend(backend).implementation.backend_info()
    return info


@pytest.fixture
def ops(backend: str) -> Ops:
    """The backend's tensor functions, as a learner gets them."""
    return _learner(backend).ops


@pytest.fixture
def to_numpy(backend: str) -> Callable[[Any], Any]:
    """The hook `convert_to_numpy`: the only way from tensors to arrays that a backend promises."""
    convert: Callable[[Any], Any] = _learner(backend)._convert_to_numpy
    return convert


@cache
def _learner(backend: str) -> Learner:
    return tiny_learner(backend)


@pytest.fixture
def native_optimizer(backend_info: BackendInfo) -> Callable[[Sequence[Any], float], Any]:
    """`native_optimizer(params, lr)`: your framework's plain gradient descent, in several groups if it has groups.

    Only of a backend that declares `Capability.FRAMEWORK_OPTIMIZERS`, whose conftest.py then says how one is made.
    """
    requires(backend_info, Capability.FRAMEWORK_OPTIMIZERS)
    raise pytest.UsageError(
        f"backend {backend_info.name!r} declares 'native_optimizers': write a fixture native_optimizer in conftest.py "
        "that returns a function (params, lr) -> your framework's plain gradient descent"
    )


@pytest.fixture
def user_model(backend_info: BackendInfo) -> Callable[[], Any]:
    """`user_model()`: a new model of your framework, with running statistics and dropout if it has such.

    Called with observations [B, 3] it returns the inputs of the action distribution [B, 2] and values [B] or [B, 1].
    Only of a backend that declares `Capability.USER_MODULES`, whose conftest.py then says how one is made.
    """
    requires(backend_info, Capability.USER_MODULES)
    raise pytest.UsageError(
        f"backend {backend_info.name!r} declares 'user_modules': write a fixture user_model in conftest.py that "
        "returns a function () -> a model of your framework, called with [B, 3] and returning ([B, 2], [B, 1]), with "
        "layers that compute otherwise in training (BatchNorm, Dropout) if it has such"
    )


@pytest.fixture(scope="session")
def collective() -> str:
    """The short name of the collective that `collective_suite` proves: your conftest.py says it."""
    raise pytest.UsageError(
        "which collective? Write in conftest.py:\n"
        '@pytest.fixture(scope="session")\ndef collective():\n    return "the name of its entry point"'
    )


@pytest.fixture(scope="session")
def prepare_member() -> Callable[[], Any] | None:
    """What each process of `collective_suite` calls first, such as one that connects to a service; nothing."""
    return None


@pytest.fixture(scope="session")
def collective_class(collective: str) -> type[Collective]:
    """The class of the collective; its tests are left out if it cannot be used on this machine."""
    try:
        found = load_collective(collective)
    except MissingFrameworkError as error:
        leave_unproven(f"collective {collective!r}: {error}")
    if reason := found.why_not(Place(4, 1, platform.machine(), 0.0)):
        leave_unproven(f"collective {collective!r} cannot be used here: {reason}")
    return found


@pytest.fixture(scope="session")
def start_member() -> Callable[[], MemberProcess]:
    """How `collective_suite` starts a process: a Python interpreter of its own, unless your engine starts processes."""
    return start_interpreter_member


@pytest.fixture(scope="session")
def all_members(
    prepare_member: Callable[[], Any] | None, start_member: Callable[[], MemberProcess]
) -> Iterator[Members]:
    """The processes of all tests of collectives."""
    members = Members(prepare_member, start_member)
    try:
        yield members
    finally:
        members.end()


@pytest.fixture
def members(all_members: Members, collective_class: type[Collective]) -> Iterator[Members]:
    """Processes that join epochs of the collective; they part when the test ends."""
    all_members.cls = collective_class
    try:
        yield all_members
    finally:
        all_members.part()


_running: list[pytest.Item] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Know which test is running, so that its report can say what it asked for."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def declares(info: BackendInfo, capability: Capability | str) -> bool:
    """Note that the running test is about a capability; a certificate lists it among its proofs.

    Args:
        info: of the backend.
        capability: a member, or its string.

    Returns:
        Whether the backend declares it.
    """
    for item in _running[-1:]:
        item.user_properties.append((ASKED, str(Capability(capability))))
    return Capability(capability) in info.capabilities


def requires(info: BackendInfo, capability: Capability | str) -> None:
    """Skip the running test unless the backend declares a capability and has it here.

    Args:
        info: of the backend.
        capability: a member, or its string.
    """
    if not declares(info, capability):
        leave_unproven(f"backend {info.name!r} does not declare {str(capability)!r}")
    if capability in info.conditions:
        learner = _learner(info.name)
        if reason := info.why_not(capability, learner.ops, learner.config):
            leave_unproven(reason)


def leave_unproven(reason: str) -> None:
    """Skip the running test; the end of the run repeats the reason."""
    pytest.skip(NOT_PROVEN + reason)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was not proven, and how many tests are about it."""
    unproven = Counter(
        reason
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and NOT_PROVEN in (reason := report.longrepr[2])
    )
    if unproven:
        terminalreporter.section("not proven by plugrad's suites")
    for reason, number in sorted(unproven.items()):
        terminalreporter.line(f"{reason.partition(NOT_PROVEN)[2]} ({number} test{'s' * (number > 1)})")
