"""Hooks that are not methods of the Learner: they are called while something is built, so nothing can wrap them."""

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
        """Describe the backend: name, version of the framework, devices and capabilities.

        Called when a learner is built, before anything else. `plugrad doctor` only reads metadata.

        Returns:
            The description. `device="auto"` chooses its first device.

        Example:
            @hookimpl
            def backend_info():
                return BackendInfo("mine", mine.__version__)
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def ops(self, learner: LearnerProtocol) -> Ops:
        """The tensor functions of the framework, over which losses and networks are written. Called once, at build.

        Args:
            learner: the learner that is being built; it already has `config` and `device`.

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
        """Record the operations in a block of tensor code. Traced.

        Called around the first losses of each program, to find tensors that broadcast where one number per row was
        meant. Default: before that, the core computes the first losses once with wrapped tensors. This records
        operators, methods of tensors and `learner.ops`, but not calls between the framework's own functions.

        Args:
            learner: the learner, in a step.

        Returns:
            A context manager that yields a list, which is complete at the end of the block. None: the default.

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
        """The algorithm's `AlgorithmConfig` subclass. Called when the algorithm is looked up by name.

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
        """The spec to use if the user gave none. Called when modules are built.

        Default: the network of `build_network`, with `config.model_config` over `config.default_model_config`.

        Args:
            config: the module's config.

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
        """Connector pieces that run after the user's and the default ones. Default: none.

        Called once, at build. `plugrad.learner.PiecePerModule` makes a piece for each module, of its own settings.

        Args:
            config: the learner's config.

        Returns:
            Pieces `piece(*, learner, batch, episodes) -> batch`, in numpy.

        Example:
            @hookimpl
            def get_learner_connectors(config):
                return [PiecePerModule(lambda own: GeneralAdvantageEstimation(own.gamma, own.lambda_))]
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def get_training_class(self) -> type[Any]:
        """The class that decides what `Algorithm.train()` does. Called once, when an Algorithm is built.

        Default: `OnPolicyTraining`, which samples a batch and updates once. The class is instantiated with the
        Algorithm, and uses its `sample()`, `update()`, `env_runner`, `learner_group` and `config`. After a change of
        the learners, through `update()` or `learner_group`, the next `sample()` acts with the new weights. It need not
        wait: `request_samples()` and `collect_samples()` let env runner processes continue during an update, and
        `update(async_update=True)` lets remote learners continue. `plugrad.training.AsynchronousTraining` does both.
        What a training keeps between iterations, such as a replay buffer, is saved in the Algorithm's checkpoints
        through its `get_state` and `set_state`.

        Returns:
            A subclass of `plugrad.training.Training`.

        Example:
            @hookimpl
            def get_training_class():
                return MyTraining
        """
        raise NotImplementedError
