"""Where a setting of RLlib's config is set here: other names, other methods, and settings that go."""

from collections.abc import Mapping
from types import MappingProxyType

SECTIONS = frozenset(
    {
        "api_stack",
        "callbacks",
        "checkpointing",
        "debugging",
        "env_runners",
        "environment",
        "evaluation",
        "experimental",
        "fault_tolerance",
        "framework",
        "learners",
        "multi_agent",
        "offline_data",
        "reporting",
        "resources",
        "rl_module",
        "training",
    }
)
"""Fluent methods of RLlib's config."""

NO_SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        "api_stack": "there is one API, and it is on",
        "checkpointing": "algorithm.save_to_path(path) saves",
        "experimental": "plugrad has no such switches",
        "fault_tolerance": "learners(on_failure=...) and replaced env runners are the default",
    }
)
"""Methods that go, and why."""

MOVED: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType(
    {
        ("debugging", "random_seed"): ("debugging", "seed"),
        ("env_runners", "gym_env_vectorize_mode"): ("env_runners", "vectorization_mode"),
        ("evaluation", "evaluation_duration"): ("evaluation", "evaluation_num_episodes"),
        ("learners", "add_default_connectors_to_learner_pipeline"): ("learners", "add_default_connectors"),
        ("multi_agent", "policy_mapping_fn"): ("multi_agent", "agent_to_module"),
        ("training", "add_default_connectors_to_learner_pipeline"): ("learners", "add_default_connectors"),
        ("training", "model"): ("rl_module", "model_config"),
        ("training", "n_quantiles"): ("training", "num_quantiles"),
        ("training", "num_sgd_iter"): ("training", "num_epochs"),
        ("training", "sgd_minibatch_size"): ("training", "minibatch_size"),
        ("training", "top_quantiles_to_drop_per_net"): ("training", "top_quantiles_to_drop_per_critic"),
        ("training", "train_batch_size_per_learner"): ("training", "train_batch_size"),
    }
)
"""`{(method, setting): (method, setting) here}`. A setting of the same name goes to the method that has it here."""

READ: Mapping[str, str] = MappingProxyType(
    {
        "enable_env_runner_and_connector_v2": "True",
        "enable_rl_module_and_learner": "True",
        "evaluation_duration": ".evaluation_num_episodes",
        "evaluation_duration_unit": '"episodes"',
        "evaluation_num_env_runners": "0",
    }
)
"""`{setting that a program may read: its value here, or the attribute that has it}`."""

PER_LEARNER = frozenset({"minibatch_size", "sgd_minibatch_size", "train_batch_size_per_learner"})
"""Settings that count the rows of one learner in RLlib, and of all learners here."""

HALVED = frozenset({"lagrangian_thresh", "min_q_weight"})
"""Settings of CQL that are half as large here, where the squared error beside them is halved."""

REPLAY_BUFFERS: Mapping[str, str] = MappingProxyType(
    {
        "EpisodeReplayBuffer": "uniform",
        "MultiAgentEpisodeReplayBuffer": "uniform",
        "MultiAgentPrioritizedEpisodeReplayBuffer": "prioritized",
        "PrioritizedEpisodeReplayBuffer": "prioritized",
    }
)
"""`{"type" of a replay_buffer_config: the same here}`."""
