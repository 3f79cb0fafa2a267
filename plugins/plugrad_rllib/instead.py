"""What RLlib's users ask for and plugrad does not have: what to use instead, which errors about unknown names say."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from plugrad.errors import ConfigError

_BATCHES = (
    "update(batch) takes numpy arrays and the backend's tensors: fetch object references first (ray.get)"
)
_EPISODES = "update(episodes=[...]) takes the episodes: fetch object references first (ray.get)"
_STREAM = "call update(batch) for each batch of the stream"
_ALWAYS_ON = "delete it: there is one API, and it is on"
_CONNECTORS = "learners(learner_connector=...) takes pieces of the learner connector pipeline"
_SCHEDULE = "give lr=[[timestep, value], ...], or register_optimizer with a schedule"
_NO_AMP = 'bfloat16 needs no scaling: type config.framework(precision="bf16")'
_COMPILE = "framework(backend, compile='forward_train' | 'complete_update' | 'auto' | 'none')"
_RESOURCES = "learners(num_learners=..., num_cpus_per_learner=..., num_gpus_per_learner=...)"
_RUNNERS = "env_runners(num_envs_per_env_runner=..., rollout_fragment_length=...)"
_ALWAYS_CRITIC = (
    "delete it: values are always learned; training(vf_loss_coeff=0.0) leaves their error out of the loss"
)
_ALWAYS_GAE = "delete it: advantages are always GAE's; training(lambda_=1.0) is returns to go minus values"
_NO_DISTRIBUTION = "delete it: DQN learns expected values, not distributions"
_PREPARED = "delete it: observations and actions are always prepared"
_WRAPPERS = "env_runners(env_wrappers=[...]) takes wrappers of the environment"
_MAKES_ENVS = "delete it: this process makes an environment where it needs one"
_EVALUATES_HERE = (
    "delete it: evaluation runs in this process, in environments of its own, between two iterations"
)
_EPISODES_OF_EVALUATION = "evaluation(evaluation_num_episodes=...) counts episodes"
_EXPLORATION = (
    "training explores, and evaluation if evaluation(evaluation_explore=True): as the action distribution says, DQN by "
    "training(epsilon=...), TD3 by training(exploration_noise=...)"
)
_OWN_FILES = "delete it: plugrad reads and writes files of its own, without Ray Data"
_OF_RAY_DATA = (
    *("input_read_method", "input_read_method_kwargs", "input_read_batch_size", "input_compress_columns"),
    *("materialize_data", "materialize_mapped_data", "map_batches_kwargs", "iter_batches_kwargs"),
    *("output_config", "output_compress_columns", "output_max_file_size"),
    *("output_write_method", "output_write_method_kwargs"),
)
_NETWORKS = "rl_module(model_config=...) for the built-in networks, rl_module_spec= for your own"

_IN_FLIGHT = (
    "env_runners(max_requests_in_flight_per_env_runner=...), learners(max_requests_in_flight_per_learner=...)"
)

INSTEAD = MappingProxyType(
    {
        # arguments of update()
        "batches": "call update(batch) for each of them; a LearnerGroup shards one batch over its learners",
        "batch_refs": _BATCHES,
        "episodes_refs": _EPISODES,
        "data_iterators": _STREAM,
        "training_data": "give update(batch) or update(episodes=...)",
        "min_total_mini_batches": "num_total_minibatches= is the number of gradient steps",
        "_no_metrics_reduce": "results are reduced: plain floats and arrays",
        # settings
        "torch_skip_nan_gradients": "training(nonfinite='skip') leaves out such minibatches; 'raise' undoes the update",
        "torch_ddp_kwargs": "gradients are averaged by the learner group itself, not by DDP",
        "_torch_lr_scheduler_classes": _SCHEDULE,
        "lr_schedule": "training(lr=[[timestep, value], ...])",
        "entropy_coeff_schedule": "training(entropy_coeff=[[timestep, value], ...])",
        "_torch_grad_scaler_class": _NO_AMP,
        "log_gradients": "delete it: results always have the norm: gradients_<optimizer>_global_norm",
        "eager_tracing": _COMPILE,
        "eager_max_retraces": _COMPILE,
        "torch_compile_learner": _COMPILE,
        "torch_compile_learner_what_to_compile": _COMPILE,
        "torch_compile_learner_dynamo_backend": _COMPILE,
        "torch_compile_learner_dynamo_mode": _COMPILE,
        "torch_compile_worker": "acting needs no compilation: small networks act in numpy",
        "enable_rl_module_and_learner": _ALWAYS_ON,
        "enable_env_runner_and_connector_v2": _ALWAYS_ON,
        "_enable_learner_api": _ALWAYS_ON,
        "_enable_rl_module_api": _ALWAYS_ON,
        "catalog_class": _NETWORKS,
        "lstm_use_prev_action": 'model_config={"use_prev_action": True}, with or without an LSTM',
        "lstm_use_prev_reward": 'model_config={"use_prev_reward": True}, with or without an LSTM',
        "add_default_connectors_to_learner_pipeline": "learners(add_default_connectors=...)",
        "num_aggregator_actors_per_learner": (
            f"delete it: episodes become batches beside the updates, in the learner's process; {_CONNECTORS}"
        ),
        "max_requests_in_flight_per_aggregator_actor": "delete it: there are no aggregator actors",
        "learner_config_dict": "derive a config class: its fields are arguments of training(...)",
        "train_batch_size_per_learner": "train_batch_size counts rows over all learners",
        "algo_class": (
            "leave it out: config.build_algo() makes an Algorithm; what its iterations do is a Training, which the "
            "hook get_training_class of an algorithm returns"
        ),
        "placement_group": "learners(custom_resources_per_learner={...})",
        "load_state_path": "learner.restore_from_path(path, component='rl_module')",
        "modules_to_load": "group.restore_from_path(path, component='rl_module/<module id>')",
        "use_critic": _ALWAYS_CRITIC,
        "use_gae": _ALWAYS_GAE,
        "adam_epsilon": "training(optimizer={'type': 'adam', 'eps': 1e-8})",
        "td_error_loss_fn": "training(huber_delta=...): the Huber loss, which is half the square below huber_delta",
        "num_atoms": _NO_DISTRIBUTION,
        "v_min": _NO_DISTRIBUTION,
        "v_max": _NO_DISTRIBUTION,
        "noisy": "delete it: exploration is epsilon-greedy; training(epsilon=[[0, 1.0], [10_000, 0.05]])",
        "bc_logstd_coeff": "override compute_loss_for_module and add the deviations' logarithm to the loss",
        **dict.fromkeys(("n_critics", "twin_q"), "delete it: there are always two critics"),
        "actions_in_input_normalized": "delete it: recorded actions are those of the environment",
        "bc_iters": "delete it: CQL learns by its own loss from the first step",
        "burnin_len": "hide the first steps of each sequence with the column loss_mask",
        "vtrace": "delete it: IMPALA and APPO always correct by V-trace",
        "learner_queue_size": _IN_FLIGHT,
        "simple_queue_size": _IN_FLIGHT,
        "use_circular_buffer": "training(circular_buffer_iterations_per_batch=1) learns from each batch once",
        "broadcast_interval": "delete it: weights are sent once per version",
        "input_read_episodes": "delete it: input_ names recorded episodes",
        **dict.fromkeys(_OF_RAY_DATA, _OWN_FILES),
        "output_write_episodes": "delete it: whole episodes are written",
        "output_write_remaining_data": "delete it: what waits is written with each checkpoint and at the end",
        "dataset_num_iters_per_learner": "delete it: train() learns from training(train_batch_size=...) rows",
        "add_default_connectors_to_env_to_module_pipeline": _PREPARED,
        "add_default_connectors_to_module_to_env_pipeline": _PREPARED,
        "batch_mode": (
            "delete it: cut episodes are learned from, too; env_runners(rollout_fragment_length=...) says where they "
            "are cut"
        ),
        "clip_actions": "delete it: actions of a Box are always clipped to its bounds",
        "create_env_on_local_worker": _MAKES_ENVS,
        "create_local_env_runner": _MAKES_ENVS,
        "env_runner_cls": "delete it: plugrad samples one agent and many with env runners of its own",
        "local_gpu_idx": 'delete it: framework(device="cuda:1") chooses a GPU',
        "sample_timeout_s": "delete it: a fixed number of steps is sampled",
        "custom_evaluation_function": "call algorithm.evaluate() between two iterations, or run episodes yourself",
        "disable_env_checking": "delete it: environments are checked when they answer",
        "env_to_module_connector": (
            f"{_WRAPPERS}; env_runners(normalize_observations=True) and env_runners(frame_stack=4) are settings"
        ),
        "evaluation_config": "evaluation(evaluation_explore=..., evaluation_env=..., evaluation_env_config=...); "
        "evaluation has the other settings of training",
        "evaluation_duration": _EPISODES_OF_EVALUATION,
        "evaluation_duration_unit": _EPISODES_OF_EVALUATION,
        "evaluation_num_env_runners": _EVALUATES_HERE,
        "evaluation_force_reset_envs_before_iteration": _EVALUATES_HERE,
        "evaluation_parallel_to_training": _EVALUATES_HERE,
        "exploration_config": _EXPLORATION,
        "explore": _EXPLORATION,
        "gym_env_vectorize_mode": "env_runners(vectorization_mode=...)",
        "log_level": "delete it: set the level of Python's logging",
        "metrics_num_episodes_for_smoothing": "delete it: means are over the last 20 episodes",
        "min_time_s_per_iteration": "delete it: reporting(min_sample_timesteps_per_iteration=...)",
        "module_to_env_connector": f"{_WRAPPERS}, which may change actions",
        "normalize_actions": (
            "actions of a Box are clipped to its bounds. To scale them: env_runners(env_wrappers=[["
            "'gymnasium.wrappers:RescaleAction', {'min_action': -1.0, 'max_action': 1.0}]])"
        ),
        "num_cpus_per_env_runner": "delete it: env runners are processes, and compute with one thread each",
        "num_envs_per_worker": "env_runners(num_envs_per_env_runner=...)",
        "num_gpus": (
            "delete it: learners(num_gpus_per_learner=...) for remote learners; framework(backend, device=...) for a "
            "learner of this process"
        ),
        "num_gpus_per_env_runner": "delete it: env runners act on the CPU",
        "num_rollout_workers": "env_runners(num_env_runners=...)",
        "num_workers": "env_runners(num_env_runners=...)",
        "observation_filter": "env_runners(normalize_observations=True)",
        "policy_mapping_fn": "multi_agent(agent_to_module=...)",
        "random_seed": "debugging(seed=...)",
        "render_env": "delete it: plugrad play RUN shows a trained policy",
        # names of stable-baselines3
        "activation_fn": "rl_module(model_config={'fcnet_activation': 'relu'})",
        "batch_size": "training(minibatch_size=...)",
        "buffer_size": "training(replay_buffer_config={'capacity': ...})",
        "clip_range": "training(clip_param=...)",
        "ent_coef": "training(entropy_coeff=...)",
        "gae_lambda": "training(lambda_=...)",
        "gradient_steps": "training(train_batch_size=...) rows make one update, a gradient step for each minibatch",
        "learning_rate": "training(lr=...)",
        "learning_starts": "training(num_steps_sampled_before_learning_starts=...)",
        "max_grad_norm": "training(grad_clip=...)",
        "n_envs": "env_runners(num_envs_per_env_runner=...)",
        "n_epochs": "training(num_epochs=...)",
        "n_steps": "training(train_batch_size=...) counts the environment steps of an update, over all environments",
        "net_arch": "rl_module(model_config={'fcnet_hiddens': [64, 64]})",
        "policy_kwargs": "rl_module(model_config={...})",
        "target_update_interval": "training(target_network_update_freq=...)",
        "train_freq": "env_runners(rollout_fragment_length=...)",
        "vf_coef": "training(vf_loss_coeff=...)",
        # methods of a config
        "api_stack": _ALWAYS_ON,
        "callbacks": (
            ".plugins(MyCallback), with the base class plugrad_rllib.callbacks.RLlibCallback; functions: "
            ".plugins(callbacks(on_train_result=f)), with plugrad_rllib.callbacks.callbacks; docs/listeners.md"
        ),
        "checkpointing": "algorithm.save_to_path(path); plugrad train saves by itself, see --save-every",
        "experimental": _ALWAYS_ON,
        "exploration": _EXPLORATION,
        "fault_tolerance": "learners(on_failure=...)",
        "freeze": "delete it: a config is frozen, and a changed copy is another one",
        "rollouts": _RUNNERS,
        "get_learner_hyperparameters": "the config itself is what a learner reads",
        "get_learner_group_config": "build_learner_group()",
        "get_default_learner_class": "learners(learner_class=...)",
        "build_learner_connector": _CONNECTORS,
        "build": "build_algo(), build_learner() or build_learner_group()",
        "update_from_dict": "from_dict({...}) or the fluent methods",
    }
)
"""`{setting, method of a config or argument of `update`: what to use}`."""

INSTEAD_ON_LEARNERS = MappingProxyType(
    {
        "curr_kl_coeffs_per_module": "learner.coefficients[module_id]['kl_coeff'].numpy(); in a loss config.kl_coeff",
        "entropy_coeff_schedulers_per_module": (
            "learner.coefficients[module_id]['entropy_coeff'].numpy(); in a loss config.entropy_coeff"
        ),
        "moving_avg_sqd_adv_norms_per_module": (
            "learner.coefficients[module_id]['moving_average_sqd_adv_norm_start'].numpy()"
        ),
        "last_update_ts_by_mid": "the counters in learner.get_state()['counters']",
        "_named_optimizers": "learner.get_optimizers_for_module(module_id), or get_optimizer(module_id, name)",
        "_optimizer_parameters": "learner.filter_param_dict_for_optimizer(gradients, optimizer)",
        "_module_optimizers": "learner.get_optimizers_for_module(module_id)",
        "_params": "learner.get_parameters(module) has their names, learner.get_weights() their values",
        "_learner_connector": "learner.connectors, or learner.run_connectors(episodes)",
        "_device": "learner.device",
        "_weights_seq_no": "results[module_id]['weights_seq_no']",
        "_get_global_norm_function": "_get_clip_function() returns (clipped, norm)",
        "iterator": "learner.update(batch) for each batch",
    }
)
"""`{attribute of RLlib's Learner: what to use}`."""

INSTEAD_ON_OPTIMIZERS = MappingProxyType(
    {
        "param_groups": "learner._get_optimizer_lr(optimizer), and learner._set_optimizer_lr(optimizer, lr) to set it",
        "state_dict": "learner.get_state('optimizer')",
        "load_state_dict": "learner.set_state({'optimizer': state})",
        "zero_grad": "delete it: gradients are values, which add up nowhere",
    }
)
"""`{attribute of a torch optimizer: what to use with one of plugrad's}`."""

_EXPLORE = "get_policy().predict(observation, deterministic=False), or without the argument to exploit"
INSTEAD_ON_ALGORITHMS = MappingProxyType(
    {
        # of stable-baselines3
        "learn": "train() runs one iteration and returns its results; call it in a loop",
        "load": "Algorithm.from_checkpoint(path)",
        "policy": "get_policy()",
        "predict": "get_policy().predict(observation)",
        "save": "save_to_path(path)",
        "set_env": "from_checkpoint(path, env=...)",
        # of RLlib
        "compute_actions": _EXPLORE,
        "compute_single_action": _EXPLORE,
        "env_runner_group": "env_runner",
        "get_module": (
            "get_policy(module_id) acts; learner_group.foreach_learner(lambda learner: ...) has learner.module"
        ),
        "get_weights": "learner_group.get_weights()",
        "set_weights": "learner_group.set_weights(weights)",
        "save_checkpoint": "save_to_path(path)",
        "export_policy_model": "get_policy().export_onnx(path)",
        "restore": "restore_from_path(path)",
        "workers": "env_runner",
    }
)
"""`{attribute of stable-baselines3's or RLlib's algorithm: what to use}`."""


BY_KIND: Mapping[str, Mapping[str, str]] = {
    "setting": INSTEAD,
    "Learner": INSTEAD_ON_LEARNERS,
    "Algorithm": INSTEAD_ON_ALGORITHMS,
    "Optimizer": INSTEAD_ON_OPTIMIZERS,
}


def refuse(names: Iterable[str], *, call: str) -> None:
    """Raise `ConfigError` for the first name that RLlib has and plugrad does not."""
    for name in names:
        if name in INSTEAD:
            raise ConfigError(f"{call}: plugrad has no {name}=. Here: {INSTEAD[name]}.", field=name)
