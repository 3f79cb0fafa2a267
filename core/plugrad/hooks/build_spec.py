"""Hooks that are no methods of the Learner: they are asked while something is built, so nothing can wrap them."""

from contextlib import AbstractContextManager
from typing import Any

from plugrad.config import Config
from plugrad.hooks.backend_types import BackendInfo, Operation
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookspec
from plugrad.module_spec import RLModuleSpec
from plugrad.ops import Ops


class BackendBuildSpec:
    """Hooks of a backend; those that are methods of the Learner are in `BackendSpec` and `GradientSpec`."""

    @hookspec(firstresult=True)
    def backend_info(self) -> BackendInfo:
        """Who the backend is: name, version of the framework, devices and capabilities.

        Asked when a learner is built, before anything else. `plugrad doctor` reads metadata only.

        Returns:
            The description. Its first device is what `device="auto"` chooses.

        Example:
            @hookimpl
            def backend_info():
                return BackendInfo("mine", mine.__version__)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def ops(self, learner: LearnerProtocol) -> Ops:
        """The tensor functions of the framework, over which losses and networks are written. Asked once, at build.

        Args:
            learner: the learner that is being built; it has `config` and `device`.

        Returns:
            An object or module with the functions of `plugrad.ops.Ops`.

        Example:
            @hookimpl
            def ops():
                return plugrad_mine.ops
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def watch_operations(self, learner: LearnerProtocol) -> AbstractContextManager[list[Operation]] | None:
        """Note the operations of a block of tensor code. Traced.

        Called around the first losses of each program, to find tensors that broadcast where one number per row was
        meant. Default: the core computes the first losses once more beforehand, with tensors in wrappers. It notes
        operators, methods of tensors and `learner.ops`, and not what functions of the framework itself make of each
        other's results.

        Args:
            learner: the learner, in a step.

        Returns:
            A context manager that yields a list, which is complete when the block is over. None: the default.

        Example:
            @hookimpl
            def watch_operations():
                return my_recorder()
        """
        raise NotImplementedError


class AlgorithmBuildSpec:
    """Hooks of an algorithm; those that are methods of the Learner are in `AlgorithmSpec`."""

    @hookspec(firstresult=True)
    def get_config_class(self) -> type[Any]:
        """The algorithm's `AlgorithmConfig` subclass. Asked when the algorithm is looked up by name.

        Returns:
            The class.

        Example:
            @hookimpl
            def get_config_class():
                return MyConfig
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_default_rl_module_spec(self, config: Config) -> RLModuleSpec:
        """The module to build when the user gave none. Asked when modules are built.

        Default: the network of `build_network`, with `config.model_config` over `config.default_model_config`.

        Args:
            config: the module's.

        Returns:
            A spec; the config fills in the spaces.

        Example:
            @hookimpl
            def get_default_rl_module_spec(config):
                return RLModuleSpec(model_config={"fcnet_hiddens": [256]})
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_learner_connectors(self, config: Config) -> list[Any]:
        """The pieces that make episodes into columns, after the user's and the default ones. Default: none.

        Asked once, at build.

        Args:
            config: the learner's.

        Returns:
            Pieces `piece(*, learner, batch, episodes) -> batch`, in numpy.

        Example:
            @hookimpl
            def get_learner_connectors(config):
                return [GeneralAdvantageEstimation(config.gamma, config.lambda_)]
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_training_class(self) -> type[Any]:
        """What one `Algorithm.train()` does. Asked once, when an Algorithm is built; a learner alone never asks.

        Default: `OnPolicyTraining`, which samples a batch and updates once. The class is made with the Algorithm, whose
        `sample()`, `update()`, `env_runner`, `learner_group` and `config` it uses. However it changes the learners,
        through `update()` or by the `learner_group` itself, the next `sample()` acts with the new weights. It need not
        wait: `request_samples()` and `collect_samples()` let env runner processes go on during an update, and
        `update(async_update=True)` lets remote learners go on. `plugrad.training.AsynchronousTraining` does both. What
        a training keeps from one iteration to the next, such as a replay buffer, goes through its `get_state` and
        `set_state` into the Algorithm's checkpoints.

        Returns:
            A subclass of `plugrad.training.Training`.

        Example:
            @hookimpl
            def get_training_class():
                return MyTraining
        """
        raise NotImplementedError
