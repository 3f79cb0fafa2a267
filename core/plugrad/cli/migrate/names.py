"""What RLlib's names are called in plugrad, whatever module of RLlib they are imported from."""

from collections.abc import Mapping
from types import MappingProxyType

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
        "IMPALAConfig": ("plugrad_impala", "IMPALAConfig"),
        "IQLConfig": ("plugrad_offline", "IQLConfig"),
        "MARWILConfig": ("plugrad_offline", "MARWILConfig"),
        "ModuleID": ("plugrad.types", "ModuleID"),
        "make_multi_agent": ("plugrad.sampling.multi_agent.copies", "make_multi_agent"),
        "NetworkType": ("typing", "Any"),
        "PPOConfig": ("plugrad_ppo", "PPOConfig"),
        "PPOLearner": ("plugrad_ppo", "PPOLearner"),
        "PPOTorchLearner": ("plugrad_ppo", "PPOLearner"),
        "SACConfig": ("plugrad_sac", "SACConfig"),
        "TensorType": ("plugrad.types", "Tensor"),
        "TorchLearner": ("plugrad_torch", "TorchLearner"),
        "TorchRLModule": ("plugrad_torch", "TorchRLModule"),
    }
)
"""`{name in RLlib: (module here, name here)}`."""

HAVE_RLLIB_DEFAULTS = frozenset(
    {
        "APPOConfig",
        "BCConfig",
        "CQLConfig",
        "DQNConfig",
        "IMPALAConfig",
        "IQLConfig",
        "MARWILConfig",
        "PPOConfig",
    }
)
"""Configs with `rllib_defaults()`."""

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
        "try_import_torch",
    }
)
"""Names whose uses are rewritten, so that their import goes."""

CONSTANTS: Mapping[str, str] = MappingProxyType(
    {
        "ENV_RUNNER_RESULTS": "env_runners",
        "EPISODE_LEN_MEAN": "episode_len_mean",
        "EPISODE_RETURN_MAX": "episode_return_max",
        "EPISODE_RETURN_MEAN": "episode_return_mean",
        "EPISODE_RETURN_MIN": "episode_return_min",
        "EVALUATION_RESULTS": "evaluation",
        "LEARNER_RESULTS": "learners",
        "NUM_ENV_STEPS_SAMPLED_LIFETIME": "num_env_steps_sampled_lifetime",
    }
)
"""Names of RLlib's metrics, which are plain strings here."""

INSTEAD: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ConnectorV2": ("write a learner connector", "docs/write-an-algorithm.md"),
        "MultiAgentEnv": (
            "delete the base class: any class with this interface will do",
            "docs/multi-agent.md",
        ),
        "RLlibCallback": ("write a listener", "docs/listeners.md"),
        "DefaultCallbacks": ("write a listener", "docs/listeners.md"),
        "Catalog": ("rl_module(model_config={...}), or a module of your own", "docs/your-model.md"),
        "DefaultPPOTorchRLModule": ("RLModuleSpec() without module_class", "docs/your-model.md"),
        "PPOTorchRLModule": ("RLModuleSpec() without module_class", "docs/your-model.md"),
        "EnvRunner": ("sampling is plugrad's own", "docs/sampling.md"),
        "wrap_atari_for_new_api_stack": ("env_runners(atari=True)", "docs/environments.md"),
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
