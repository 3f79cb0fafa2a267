"""What RLlib's names are called in plugrad, whatever module of RLlib they are imported from."""

from collections.abc import Mapping
from types import MappingProxyType

from plugrad_rllib.defaults import DEFAULTS

HERE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **{
            name: ("plugrad", name)
            for name in (
                "ALL_MODULES",
                "COMPONENT_LEARNER",
                "COMPONENT_OPTIMIZER",
                "COMPONENT_RL_MODULE",
                "DEFAULT_MODULE_ID",
                "DEFAULT_OPTIMIZER",
                "AlgorithmConfig",
                "Columns",
                "Learner",
                "LearnerGroup",
                "MultiAgentBatch",
                "MultiAgentEpisode",
                "MultiRLModule",
                "MultiRLModuleSpec",
                "RLModule",
                "RLModuleSpec",
                "SingleAgentEpisode",
            )
        },
        "APPOConfig": ("plugrad_impala", "APPOConfig"),
        "AgentID": ("plugrad.types", "AgentID"),
        "Algorithm": ("plugrad.algorithm", "Algorithm"),
        "BCConfig": ("plugrad_bc", "BCConfig"),
        "CQLConfig": ("plugrad_offline", "CQLConfig"),
        "DEFAULT_POLICY_ID": ("plugrad", "DEFAULT_MODULE_ID"),
        "DQNConfig": ("plugrad_dqn", "DQNConfig"),
        "EnvContext": ("builtins", "dict"),
        "EnvError": ("builtins", "RuntimeError"),
        "IMPALAConfig": ("plugrad_impala", "IMPALAConfig"),
        "IQLConfig": ("plugrad_offline", "IQLConfig"),
        "MARWILConfig": ("plugrad_offline", "MARWILConfig"),
        "ModuleID": ("plugrad.types", "ModuleID"),
        **{name: ("plugrad_rllib.callbacks", name) for name in ("DefaultCallbacks", "RLlibCallback")},
        **{
            name: ("plugrad_rllib.connectors", name)
            for name in (
                "ConnectorV2",
                "MultiAgentObservationPreprocessor",
                "ObservationPreprocessor",
                "PrevActionsPrevRewards",
                "SingleAgentObservationPreprocessor",
            )
        },
        "MetricsLogger": ("plugrad_rllib.metrics_logger", "MetricsLogger"),
        "GroupAgentsWrapper": ("plugrad_rllib.agent_groups", "GroupAgentsWrapper"),
        "VectorMultiAgentEnv": ("plugrad_rllib.env_runners", "VectorMultiAgentEnv"),
        "wrap_atari_for_new_api_stack": ("plugrad_rllib.atari", "wrap_atari_for_new_api_stack"),
        **{
            name: ("plugrad_rllib.arrays", name)
            for name in (
                "FLOAT_MAX",
                "FLOAT_MIN",
                "batch",
                "normc_initializer",
                "one_hot",
                "resize",
                "rgb2gray",
                "same_padding",
                "sigmoid",
                "softmax",
                "unbatch",
                "valid_padding",
            )
        },
        **{
            name: ("plugrad_rllib.structures", name)
            for name in ("check", "convert_to_numpy", "convert_to_torch_tensor", "flatten_space")
        },
        **dict.fromkeys(
            (
                "EnvType",
                "EpisodeType",
                "LearningRateOrSchedule",
                "MultiAgentDict",
                "ParamDict",
                "ResultDict",
                "StateDict",
                "TensorStructType",
            ),
            ("typing", "Any"),
        ),
        "check_learning_achieved": ("plugrad_rllib.tune", "check_learning_achieved"),
        "make_multi_agent": ("plugrad.sampling.multi_agent.copies", "make_multi_agent"),
        "NetworkType": ("typing", "Any"),
        "PPOConfig": ("plugrad_ppo", "PPOConfig"),
        "PPOLearner": ("plugrad_ppo", "PPOLearner"),
        "PPOTfLearner": ("plugrad_ppo", "PPOLearner"),
        "PPOTorchLearner": ("plugrad_ppo", "PPOLearner"),
        "SACConfig": ("plugrad_sac", "SACConfig"),
        "TorchCategorical": ("plugrad_rllib.distributions", "TorchCategorical"),
        "TQCConfig": ("plugrad_tqc", "TQCConfig"),
        "TensorType": ("plugrad.types", "Tensor"),
        "TfLearner": ("plugrad_tf2", "Tf2Learner"),
        "TfRLModule": ("plugrad_tf2", "Tf2RLModule"),
        "TorchLearner": ("plugrad_torch", "TorchLearner"),
        "TorchRLModule": ("plugrad_torch", "TorchRLModule"),
        **{
            f"{algorithm}{framework}Learner": ("plugrad", "Learner")
            for algorithm in ("APPO", "BC", "CQL", "DQN", "IMPALA", "MARWIL", "SAC")
            for framework in ("", "Tf", "Torch")
        },
    }
)
"""`{name in RLlib: (module here, name here)}`."""

HAVE_RLLIB_DEFAULTS = frozenset(name.partition(":")[2] for name in DEFAULTS)
"""Configs with `rllib_defaults()`."""

ALGORITHMS: Mapping[str, str] = MappingProxyType(
    {
        name: f"{name}Config"
        for name in ("APPO", "BC", "CQL", "DQN", "IMPALA", "IQL", "MARWIL", "PPO", "SAC", "TQC")
    }
)
"""`{RLlib's class of an algorithm: its config, which has the same name here}`."""

NOT_NEEDED = frozenset(
    {
        "InferenceOnlyAPI",
        "OverrideToImplementCustomLogic",
        "OverrideToImplementCustomLogic_CallToSuperRecommended",
        "ParallelPettingZooEnv",
        "PettingZooEnv",
        "PublicAPI",
        "TargetNetworkAPI",
        "ValueFunctionAPI",
        "override",
    }
)
"""Decorators, base classes and wrappers that have no counterpart, since plugrad works without."""

REWRITTEN = frozenset(
    {
        *ALGORITHMS,
        "DefaultModelConfig",
        "FlattenObservations",
        "FrameStackingEnvToModule",
        "FrameStackingLearner",
        "MeanStdFilter",
        "TARGET_NETWORK_ACTION_DIST_INPUTS",
        "add_rllib_example_script_args",
        "get_trainable_cls",
        "register_env",
        "make_target_network",
        "run_rllib_example_script_experiment",
        "PolicySpec",
        "SampleBatch",
        "try_import_tf",
        "try_import_torch",
    }
)
"""Names whose uses are rewritten, so that their import goes."""

CONSTANTS: Mapping[str, str] = MappingProxyType(
    {
        "COMPONENT_ENV_RUNNER": "env_runner",
        "COMPONENT_ENV_TO_MODULE_CONNECTOR": "env_to_module_connector",
        "COMPONENT_EVAL_ENV_RUNNER": "eval_env_runner",
        "COMPONENT_LEARNER_GROUP": "learner_group",
        "COMPONENT_METRICS_LOGGER": "metrics_logger",
        "COMPONENT_MODULE_TO_ENV_CONNECTOR": "module_to_env_connector",
        "COMPONENT_MULTI_RL_MODULE_SPEC": "rl_module_spec",
        "ENTROPY_KEY": "entropy",
        "ENV_RUNNER_RESULTS": "env_runners",
        "ENV_STATE": "state",
        "EVALUATION_RESULTS": "evaluation",
        "LEARNER_RESULTS": "learners",
        "LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY": "curr_entropy_coeff",
        "LEARNER_RESULTS_CURR_KL_COEFF_KEY": "curr_kl_coeff",
        "LEARNER_RESULTS_KL_KEY": "mean_kl_loss",
        "LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY": "vf_loss_unclipped",
        "POLICY_LOSS_KEY": "policy_loss",
        "SYNCH_WORKER_WEIGHTS_TIMER": "synch_weights",
        "TIMERS": "timers",
        "TRAINING_ITERATION": "training_iteration",
        "TRAINING_ITERATION_TIMER": "training_iteration",
        "TRAINING_STEP_TIMER": "training_step",
        "VF_LOSS_KEY": "vf_loss",
        **{
            f"{name.upper()}_KEY": name
            for name in ("qf_loss", "qf_max", "qf_mean", "qf_min", "td_error_mean")
        },
        **{
            name.upper(): name
            for name in (
                "agent_episode_returns_mean",
                "env_runner_sampling_timer",
                "episode_duration_sec_mean",
                "episode_len_max",
                "episode_len_mean",
                "episode_len_min",
                "episode_return_max",
                "episode_return_mean",
                "episode_return_min",
                "learner_update_timer",
                "module_episode_returns_mean",
                "num_agent_steps_sampled",
                "num_agent_steps_sampled_lifetime",
                "num_env_steps_sampled",
                "num_env_steps_sampled_lifetime",
                "num_env_steps_trained",
                "num_env_steps_trained_lifetime",
                "num_episodes",
                "num_episodes_lifetime",
                "num_module_steps_sampled",
                "num_module_steps_sampled_lifetime",
                "num_module_steps_trained",
                "num_module_steps_trained_lifetime",
            )
        },
    }
)
"""Names of RLlib's metrics and keys, which are plain strings here."""

_OLD_STACK = "of RLlib's old API stack: write an RLModule, and a Learner for a loss of your own"
_NETWORKS = "write the network in setup() of an RLModule, with layers of your framework"

CATALOGS = frozenset({"BCCatalog", "PPOCatalog", "SACCatalog"})
"""Classes that make RLlib's default modules of settings."""

DEFAULT_MODULES = frozenset(
    {
        "DefaultBCTorchRLModule",
        "DefaultDQNTorchRLModule",
        "DefaultPPOTorchRLModule",
        "DefaultSACTorchRLModule",
        "PPOTfRLModule",
        "PPOTorchRLModule",
    }
)
"""Classes of RLlib's default modules: built-in networks have none."""

INSTEAD: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "AddNextObservationsFromEpisodesToTrainBatch",
                "AddObservationsFromEpisodesToBatch",
                "ComputeReturnsToGo",
                "ConnectorPipelineV2",
                "EnvToModulePipeline",
                "LearnerConnectorPipeline",
                "ModuleToEnvPipeline",
                "NumpyToTensor",
            ),
            ("write a learner connector, or a wrapper of the environment", "docs/from-rllib.md"),
        ),
        "MultiAgentEnv": (
            "delete the base class: any class with this interface will do",
            "docs/multi-agent.md",
        ),
        **dict.fromkeys(
            ("Catalog", *sorted(CATALOGS)),
            ("rl_module(model_config={...}), or a module of your own", "docs/your-model.md"),
        ),
        **dict.fromkeys(
            sorted(DEFAULT_MODULES),
            (
                "RLModuleSpec() without module_class builds it; a class of your own derives from TorchRLModule, and "
                "makes its layers in setup()",
                "docs/your-model.md",
            ),
        ),
        **dict.fromkeys(
            (
                "ActorCriticEncoderConfig",
                "ENCODER_OUT",
                "Encoder",
                "MLPEncoderConfig",
                "MLPHeadConfig",
                "ModelConfig",
                "TorchModel",
                "get_activation_fn",
            ),
            (_NETWORKS, "docs/your-model.md"),
        ),
        **dict.fromkeys(
            (
                "TorchDiagGaussian",
                "TorchMultiCategorical",
                "TorchMultiDistribution",
                "TorchSquashedGaussian",
            ),
            ("derive from a class of plugrad.distributions, which computes with self.ops", "docs/models.md"),
        ),
        **dict.fromkeys(
            (
                "IOContext",
                "InputReader",
                "JsonReader",
                "JsonWriter",
                "ModelCatalog",
                "ModelV2",
                "PPOTF1Policy",
                "PPOTF2Policy",
                "PPOTorchPolicy",
                "Policy",
                "Postprocessing",
                "SampleBatchBuilder",
                "ShuffledInput",
                "StorageUnit",
                "TorchModelV2",
                "TorchMultiActionDistribution",
                "TorchPolicyV2",
                "compute_advantages",
                "convert_ma_batch_to_sample_batch",
                "get_preprocessor",
                "make_tf_callable",
                "register_input",
                "synchronous_parallel_sample",
            ),
            (_OLD_STACK, "docs/from-rllib.md"),
        ),
        **dict.fromkeys(
            (
                "DifferentiableAlgorithmConfig",
                "DifferentiableLearnerConfig",
                "TorchDifferentiableLearner",
                "TorchMetaLearner",
                "TrainingData",
            ),
            ("no learner here learns through the updates of another one", "docs/from-rllib.md"),
        ),
        **dict.fromkeys(
            ("EnvRunnerServerForExternalInference", "RLlink", "get_rllink_message", "send_rllink_message"),
            (
                "an environment that waits for its simulator, whose reset() and step() ask it",
                "docs/your-simulator.md",
            ),
        ),
        **dict.fromkeys(
            ("DMCEnv", "OpenSpielEnv", "Unity3DEnv", "VectorEnv", "make_recsim_env"),
            ("an environment of Gymnasium or PettingZoo around it, such as Shimmy's", "docs/environments.md"),
        ),
        **dict.fromkeys(
            ("OfflineData", "OfflinePreLearner", "SCHEMA"),
            (
                "recorded episodes are plugrad's own; a learner connector changes what is learned",
                "docs/offline.md",
            ),
        ),
        **dict.fromkeys(("EnvRunner", "EnvRunnerGroup"), ("sampling is plugrad's own", "docs/sampling.md")),
        "NotProvided": (
            "a config is a frozen dataclass: each setting of your own is a field of your config class",
            "docs/write-an-algorithm.md",
        ),
        "SelfSupervisedLossAPI": (
            "compute the loss in compute_loss_for_module of a Learner",
            "docs/write-an-algorithm.md",
        ),
        "update_global_seed_if_necessary": ("config.debugging(seed=...)", "docs/determinism.md"),
    }
)
"""`{name without a counterpart: (what to do, page)}`."""

OF_TARGET_NETWORKS = frozenset({"forward_target", "get_target_network_pairs", "make_target_networks"})
"""Methods of a `TargetNetworkAPI`: plugrad keeps target networks itself."""

SPACES_OF_AGENTS: Mapping[str, str] = MappingProxyType(
    {"get_action_space": "action_spaces", "get_observation_space": "observation_spaces"}
)
"""Methods of RLlib's `MultiAgentEnv`, and the attributes that have the same here."""

PARTS_OF_MODULES = frozenset({"actor_encoder", "critic_encoder"})
"""Parts of RLlib's default modules."""

OF_ENV_CONTEXTS = frozenset({"vector_index", "worker_index"})
"""Numbers that RLlib's `EnvContext` has of an environment."""
