"""What `plugrad migrate` makes of each setting of RLlib's configs, of connectors, and of names that are still used."""

import ast
import json
from pathlib import Path

import needs
import pytest

from plugrad.hooks.registry import get_algorithm
from plugrad_rllib.migrate.notes import Note

needs.extra("libcst")

SETTINGS = json.loads((Path(__file__).parents[1] / "data/rllib_settings.json").read_text())
"""`{config of RLlib 2.60: {fluent method: its arguments}}`; `tests/rllib_settings.py` made it."""
ALGORITHMS = sorted(set(SETTINGS) - {"AlgorithmConfig"})
OLDER = {("framework", "framework"), ("rl_module", "model_config_dict")}
PPO = "from ray.rllib.algorithms.ppo import PPOConfig\n"


def migrate(program: str) -> tuple[str, list[Note]]:
    from plugrad_rllib.migrate.rewrite import migrate  # it needs libcst

    return migrate(program)


def rewritten(program: str) -> tuple[str, list[str]]:
    text, notes = migrate(program)
    return text, [f"{note.line}: {note.text}" for note in notes]


def last(program: str) -> tuple[str, list[str]]:
    """The last line, and the notes without their lines."""
    text, notes = rewritten(program)
    return text.splitlines()[-1], [note.partition(": ")[2] for note in notes]


# --- settings ---


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_setting_of_rllib_is_one_here_or_is_named_at_its_line(name: str) -> None:
    own = SETTINGS[name] if name != "PPOConfig" else {**SETTINGS["AlgorithmConfig"]}
    calls = [(method, setting) for method, settings in own.items() for setting in settings]
    calls += [("training", setting) for setting in SETTINGS[name].get("training", ())]
    algorithm = name.removesuffix("Config").lower()
    lines = [f"a{n} = {name}().{method}({setting}=value)" for n, (method, setting) in enumerate(calls)]
    text, notes = migrate("\n".join([f"from ray.rllib.algorithms.{algorithm} import {name}", *lines, ""]))
    named = {note.line for note in notes}
    fields = get_algorithm(algorithm).fields()
    assigned = (node for node in ast.parse(text).body if isinstance(node, ast.Assign))
    made = {ast.unparse(node.targets[0]): node.value for node in assigned}
    for n, (method, setting) in enumerate(calls):
        if n + 2 in named:
            continue
        call = made[f"a{n}"]
        assert isinstance(call, ast.Call), (method, setting)
        assert isinstance(call.func, ast.Attribute), (method, setting)
        if method == "callbacks":  # classes and functions are listeners here
            given = "value" if setting == "callbacks_class" else f"{setting}=value"
            assert ast.unparse(call).endswith(f".plugins(callbacks({given}))")
            continue
        (keyword,) = call.keywords
        here = (call.func.attr, keyword.arg)
        is_setting = keyword.arg in fields and fields[keyword.arg].is_in(here[0])
        assert is_setting or here in OLDER or here[0] == "resources", (method, setting, here)
        given = "learner_pieces(value)" if setting == "learner_connector" else "value"
        assert ast.unparse(keyword.value) == given


def test_a_setting_that_the_old_api_stack_turned_on_is_named() -> None:
    on = f"{PPO}config = PPOConfig().api_stack(enable_rl_module_and_learner=True)\n"
    assert last(on) == ("config = PPOConfig.rllib_defaults()", [])
    _, (note,) = last(on.replace("True", "False"))
    assert note == ".api_stack(...) was deleted: there is one API, and it is on"


@pytest.mark.parametrize(
    ("theirs", "ours", "notes"),
    [
        (
            ".evaluation(evaluation_interval=1, evaluation_config=PPOConfig.overrides(env='B', explore=False))",
            ".evaluation(evaluation_interval=1, evaluation_env='B', evaluation_explore=False)",
            [],
        ),
        (
            ".evaluation(evaluation_config={'env': Hard, 'env_config': {'n': 3}})",
            ".evaluation(evaluation_env=Hard, evaluation_env_config={\"config\": {'n': 3}})",
            [],
        ),
        (
            ".evaluation(evaluation_config={'explore': True, 'lr': 0.1})",
            ".evaluation(evaluation_explore=True)",
            [
                "evaluation(evaluation_config=...): lr=0.1 was deleted: evaluation has the settings of training",
            ],
        ),
        (
            ".evaluation(evaluation_config=mine)",
            "",
            [
                "evaluation(evaluation_config=...) was deleted: evaluation has the settings of training; others are "
                "evaluation(evaluation_explore=..., evaluation_env=..., evaluation_env_config={...})"
            ],
        ),
        (
            ".rl_module(algorithm_config_overrides_per_module={'a': PPOConfig.overrides(lr=0.1)})",
            ".rl_module(algorithm_config_overrides_per_module={'a': dict(lr=0.1)})",
            [],
        ),
        (
            ".experimental(_torch_lr_scheduler_classes=[mine])",
            "",
            [
                ".experimental(...) was deleted: plugrad has no such switches",
                "experimental(_torch_lr_scheduler_classes=...): give lr=[[timestep, value], ...], or "
                "register_optimizer with a schedule",
            ],
        ),
        (
            ".rl_module(model_config={'fcnet_hiddens': [4], 'my_depth': 2, 'post_fcnet_hiddens': [8]})",
            ".rl_module(model_config={'fcnet_hiddens': [4], 'my_depth': 2})",
            [
                "model_config has no post_fcnet_hiddens: it was deleted",
                "rl_module(model_config=...): built-in networks have no my_depth and refuse it; a "
                "module_class of your own gets it",
            ],
        ),
        (
            ".rl_module(rl_module_spec=RLModuleSpec(module_class=Mine), model_config={'head_fcnet_hiddens': [8]})",
            ".rl_module(rl_module_spec=RLModuleSpec(module_class=Mine), model_config={'head_fcnet_hiddens': [8]})",
            [
                "rl_module(model_config=...): built-in networks have no head_fcnet_hiddens and refuse it; a "
                "module_class of your own gets it"
            ],
        ),
        (
            ".resources(num_gpus=1)",
            "",
            [
                "resources(num_gpus=...) was deleted: learners(num_gpus_per_learner=...) for remote learners; "
                "framework(backend, device=...) for a learner of this process"
            ],
        ),
        (
            ".offline_data(dataset_num_iters_per_learner=5)",
            "",
            [
                "offline_data(dataset_num_iters_per_learner=...) was deleted: train() learns from "
                "training(train_batch_size=...) rows"
            ],
        ),
        (
            ".multi_agent(policies={'a': (None, obs, None, {'lr': 1}), 'b': PolicySpec(), 'c': (Own, None, None, {})})",
            ".multi_agent(policies={'a': RLModuleSpec(observation_space=obs), 'b': RLModuleSpec(), "
            "'c': RLModuleSpec()})",
            [
                "a policy's config {'lr': 1} was deleted: "
                "rl_module(algorithm_config_overrides_per_module={module id: {setting: value}})",
                "policy_class=Own was deleted: a policy is an RLModule: RLModuleSpec(module_class=...)",
            ],
        ),
        (
            ".env_runners(gym_env_vectorize_mode='ASYNC').env_runners(gym_env_vectorize_mode=gym.VectorizeMode.SYNC)",
            '.env_runners(vectorization_mode="async").env_runners(vectorization_mode="sync")',
            [],
        ),
        (
            ".env_runners(gym_env_vectorize_mode=mode)",
            ".env_runners(vectorization_mode=mode)",
            ['env_runners(vectorization_mode=mode): its names are in lower case here, such as "sync"'],
        ),
        (".training(vf_clip_param=None)", '.training(vf_clip_param=float("inf"))', []),
        (
            ".learners(local_gpu_idx=1)",
            "",
            ['learners(local_gpu_idx=...) was deleted: framework(device="cuda:1") chooses a GPU'],
        ),
        (
            ".env_runners(create_env_on_local_worker=True)",
            "",
            [
                "env_runners(create_env_on_local_worker=...) was deleted: this process makes an environment where it "
                "needs one"
            ],
        ),
    ],
)
def test_a_setting_is_rewritten_with_its_arguments_or_named(theirs: str, ours: str, notes: list[str]) -> None:
    names = f"from ray.rllib.policy.policy import PolicySpec\n{PPO}"
    assert last(f"{names}config = PPOConfig(){theirs}\n") == (
        f"config = PPOConfig.rllib_defaults(){ours}",
        notes,
    )


@pytest.mark.parametrize(
    ("program", "note"),
    [
        (
            "config = PPOConfig().training(learner_config_dict={'a': 1, **more})",
            "2: learner_config_dict: **more was deleted: its keys are fields of the config class",
        ),
        (
            "algo = PPOConfig().build()\nalgo.save('here', prevent_upload=True)",
            "3: .save_to_path: prevent_upload=True was deleted: it takes the path alone",
        ),
    ],
)
def test_what_goes_with_another_thing_is_named_too(program: str, note: str) -> None:
    assert rewritten(f"{PPO}{program}\n")[1] == [note]


def test_methods_of_target_networks_that_go_are_named() -> None:
    begin = "from ray.rllib.core.rl_module.apis import TargetNetworkAPI\n"
    text, notes = rewritten(
        f"{begin}class Mine(TargetNetworkAPI):\n    def make_target_networks(self):\n        pass\n    a = 1\n"
    )
    assert text == "class Mine:\n    a = 1\n"
    assert notes == [
        "2: class Mine: make_target_networks was deleted: plugrad keeps target networks itself; which parameters have "
        "them is get_target_parameters of the algorithm"
    ]


# --- connectors ---

PIECES = "from ray.rllib.connectors.env_to_module import FlattenObservations, FrameStackingEnvToModule, MeanStdFilter\n"
WRITE = 'write what it does as a wrapper of the environment: env_wrappers=["package.module:Wrapper"]'


@pytest.mark.parametrize(
    ("maker", "ours", "notes"),
    [
        ("lambda env: MeanStdFilter()", ".env_runners(normalize_observations=True)", []),
        (
            "lambda env, spaces, device: [FrameStackingEnvToModule(num_frames=n), FlattenObservations()]",
            ".env_runners(frame_stack=n)",
            [],
        ),
        ("lambda env: FlattenObservations()", "", []),
        (
            "lambda env: [Own(), MeanStdFilter(clip_by_value=5.0)]",
            ".env_runners(normalize_observations=True)",
            [
                "env_to_module_connector: MeanStdFilter(clip_by_value=5.0): normalize_observations=True has no "
                "clip_by_value=5.0",
                f"env_to_module_connector: Own() was deleted: {WRITE}",
            ],
        ),
        (
            "lambda env: FlattenObservations(keys_to_remove=['a'])",
            "",
            [
                "env_to_module_connector: FlattenObservations(keys_to_remove=['a']): built-in networks read every key; "
                + WRITE
            ],
        ),
    ],
)
def test_the_pieces_of_a_connector_are_settings_one_by_one_or_named(
    maker: str, ours: str, notes: list[str]
) -> None:
    program = f"{PPO}{PIECES}config = PPOConfig().env_runners(env_to_module_connector={maker})\n"
    assert last(program) == (f"config = PPOConfig.rllib_defaults(){ours}", notes)


@pytest.mark.parametrize(
    "maker",
    [
        "(lambda env: MeanStdFilter()) if use else other",
        "lambda env: MeanStdFilter() if use else None",
        "lambda env: FrameStackingEnvToModule(num_frames=env.frames)",
        "make()",
        "functools.partial(f)",
    ],
)
def test_pieces_that_depend_on_the_program_are_not_guessed(maker: str) -> None:
    program = f"{PPO}{PIECES}config = PPOConfig().env_runners(env_to_module_connector={maker})\n"
    line, (note,) = last(program)
    assert line == "config = PPOConfig.rllib_defaults()"
    assert note.startswith("env_to_module_connector=... was deleted: which pieces it makes depends on")


PIECES_ON_A_CONDITION = "    def pieces(env):\n        return FrameStackingEnvToModule(num_frames=n)\n"


@pytest.mark.parametrize(
    ("made", "maker", "ours"),
    [
        (
            "",
            "(lambda env: MeanStdFilter()) if use else None",
            "normalize_observations=True if use else False",
        ),
        (
            f"if use:\n{PIECES_ON_A_CONDITION}",
            "None if not use else pieces",
            "frame_stack=None if not use else n",
        ),
    ],
)
def test_pieces_on_a_condition_are_settings_on_that_condition(made: str, maker: str, ours: str) -> None:
    program = f"{PPO}{PIECES}{made}config = PPOConfig().env_runners(env_to_module_connector={maker})\n"
    assert last(program) == (f"config = PPOConfig.rllib_defaults().env_runners({ours})", [])


MAKERS = ["def pieces(env):\n    return [MeanStdFilter()]", "pieces = lambda env: MeanStdFilter()"]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_function_that_only_made_connectors_goes_with_them(maker: str) -> None:
    program = f"{PPO}{PIECES}{maker}\nconfig = PPOConfig().env_runners(env_to_module_connector=pieces)\n"
    text, notes = rewritten(program)
    config = "config = PPOConfig.rllib_defaults().env_runners(normalize_observations=True)"
    assert text == f"from plugrad_ppo import PPOConfig\n{config}\n"
    assert notes == []


def test_a_function_whose_pieces_are_not_all_settings_stays_with_what_it_uses() -> None:
    program = (
        f"{PPO}{PIECES}def pieces(env):\n    return [Own(), FlattenObservations()]\n"
        "config = PPOConfig().env_runners(env_to_module_connector=pieces)\n"
    )
    text, notes = rewritten(program)
    assert "import FlattenObservations\n" in text
    assert "return [Own(), FlattenObservations()]" in text
    assert notes == [
        "4: FlattenObservations of RLlib is used here, and was left: plugrad has no such name",
        f"5: env_to_module_connector: Own() was deleted: {WRITE}",
    ]


@pytest.mark.parametrize(
    ("maker", "ours"),
    [
        (
            "lambda *a: [Own(), FrameStackingLearner(num_frames=4)]",
            ".learners(learner_connector=learner_pieces(lambda *a: [Own()]))",
        ),
        ("lambda *a: FrameStackingLearner(num_frames=4)", ""),
        ("lambda *a: Own()", ".learners(learner_connector=learner_pieces(lambda *a: Own()))"),
        (
            "(lambda *a: Own()) if own else None",
            ".learners(learner_connector=learner_pieces(lambda *a: Own()) if own else None)",
        ),
    ],
)
def test_frames_are_stacked_once_and_other_pieces_of_learners_stay(maker: str, ours: str) -> None:
    begin = f"{PPO}from ray.rllib.connectors.learner import FrameStackingLearner\n"
    program = f"{begin}config = PPOConfig().learners(learner_connector={maker})\n"
    assert last(program) == (f"config = PPOConfig.rllib_defaults(){ours}", [])


# --- names ---


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("PPO.get_default_config()", "PPOConfig.rllib_defaults()"),
        ("SAC.get_default_config()", "SACConfig()"),
        ("PPOConfig(algo_class=PPO)", "PPOConfig.rllib_defaults()"),
        ("PPO(config=mine)", "mine.build_algo()"),
        (
            "tune.registry.get_trainable_cls('PPO').get_default_config()",
            'get_algorithm("ppo").rllib_defaults()',
        ),
    ],
)
def test_classes_of_algorithms_become_their_configs(theirs: str, ours: str) -> None:
    others = "from ray.rllib.algorithms.ppo import PPO\nfrom ray.rllib.algorithms.sac import SAC\n"
    begin = f"from ray import tune\n{PPO}{others}"
    line, notes = last(f"{begin}found = {theirs}\n")
    assert (line, notes) == (f"found = {ours}", [])


def test_a_class_of_an_algorithm_that_is_still_used_stays_and_is_named() -> None:
    text, notes = rewritten("from ray.rllib.algorithms.ppo import PPO\n\nclass Mine(PPO):\n    pass\n")
    assert "from ray.rllib.algorithms.ppo import PPO\n" in text
    assert "3: PPO of RLlib is used here, and was left: plugrad has no such name" in notes


def test_settings_of_networks_are_dicts_wherever_they_are_named() -> None:
    text, notes = rewritten(
        "from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig\n"
        "def f(given: dict | DefaultModelConfig = DefaultModelConfig(fcnet_hiddens=[4])):\n"
        "    return isinstance(given, DefaultModelConfig)\n"
    )
    assert text == (
        "def f(given: dict | dict = dict(fcnet_hiddens=[4])):\n    return isinstance(given, dict)\n"
    )
    assert notes == []


@pytest.mark.parametrize(
    "begin",
    [
        "import ray.rllib.algorithms.ppo as ppo; import torch\nc = ppo",
        "from ray.rllib.algorithms import ppo\nc = ppo",
        "from ray import rllib\nc = rllib.algorithms.ppo",
        "import ray.rllib\nc = ray.rllib.algorithms.ppo",
        "import ray\nc = ray.rllib.algorithms.ppo",
    ],
)
def test_names_of_a_module_of_rllib_that_is_imported_whole_are_those_of_the_module(begin: str) -> None:
    line, notes = last(f"{begin}.PPOConfig().training(lr=1)  # mine\n")
    assert line == "c = PPOConfig.rllib_defaults().training(lr=1)  # mine"
    assert notes == []


def test_a_module_of_rllib_of_which_more_is_used_is_named() -> None:
    text, (note,) = rewritten("import ray.rllib.algorithms.ppo as ppo\na = ppo.PPOConfig()\nb = look(ppo)\n")
    assert "import ray.rllib.algorithms.ppo as ppo\n" in text
    assert "a = PPOConfig.rllib_defaults()\n" in text
    assert note.startswith("1: this import of a module of RLlib was left")
    own = "import ray.rllib.algorithms.ppo as ppo\nclass PPOConfig(ppo.PPOConfig):\n    pass\n"
    text, (note,) = rewritten(own)
    assert text == own
    assert note.startswith("1: this import of a module of RLlib was left")


def test_the_last_action_and_reward_have_names_without_an_lstm() -> None:
    line, notes = last(f'{PPO}c = PPOConfig().training(model={{"lstm_use_prev_action": True}})\n')
    assert 'rl_module(model_config={"use_prev_action": True})' in line
    assert not [note for note in notes if "prev" in note]


def test_names_of_columns_and_of_an_environments_state_are_those_here() -> None:
    program = (
        "from ray.rllib.env.multi_agent_env import ENV_STATE\n"
        "from ray.rllib.policy.sample_batch import SampleBatch\n"
        "from ray.tune.result import TRAINING_ITERATION\n"
        "a = batch[SampleBatch.NEXT_OBS], obs[ENV_STATE], results[TRAINING_ITERATION]\n"
    )
    line, notes = last(program)
    assert line == 'a = batch[Columns.NEXT_OBS], obs["state"], results["training_iteration"]'
    assert notes == []
    text, (note,) = rewritten(f"{program}b = SampleBatch({{SampleBatch.OBS: x}}), SampleBatch.AGENT_INDEX\n")
    assert text.splitlines()[-1] == "b = SampleBatch({Columns.OBS: x}), SampleBatch.AGENT_INDEX"
    assert note == "2: SampleBatch of RLlib is used here, and was left: plugrad has no such name"


def test_settings_of_a_learner_are_read_with_their_defaults() -> None:
    program = (
        f"{PPO}config = PPOConfig().training(learner_config_dict={{'a': 1.0}})\n"
        "a = config.learner_config_dict.get('a', 2.0)\nb = config.learner_config_dict.get('b', 0.5)\n"
    )
    text, notes = rewritten(program)
    assert text.splitlines()[-2:] == ["a = config.a", 'b = getattr(config, "b", 0.5)']
    assert notes == []


def test_the_result_of_the_examples_helper_keeps_its_name_and_what_it_lacks_is_named() -> None:
    program = (
        "from ray.rllib.utils.test_utils import add_rllib_example_script_args, run_rllib_example_script_experiment\n"
        f"{PPO}parser = add_rllib_example_script_args(default_iters=3, default_reward=100.0)\n"
        "args = parser.parse_args()\n"
        "grid = run_rllib_example_script_experiment(PPOConfig(), args, stop={'a': args.stop_reward})\n"
    )
    text, notes = rewritten(program)
    assert text.endswith("algorithm.stop()\ngrid = results\n")
    assert 'parser.add_argument("--stop-iters", default=3, type=int)\n' in text
    assert 'parser.add_argument("--stop-reward", default=100.0, type=float)\n' in text
    assert "--seed" not in text
    text, _ = rewritten(program.replace("PPOConfig()", "PPOConfig().debugging(seed=args.seed)"))
    assert 'parser.add_argument("--seed", default=None, type=int)\n' in text
    assert notes == [
        "5: grid: the last results, no grid of Ray Tune's",
        "5: run_rllib_example_script_experiment(stop={'a': args.stop_reward}): the loop ends after --stop-iters "
        "iterations alone",
    ]


@pytest.mark.parametrize("number", ["worker_index", "vector_index"])
def test_a_number_of_an_environment_is_named_with_what_a_simulator_does_without(number: str) -> None:
    program = (
        "from ray.rllib.env.env_context import EnvContext\n"
        f"def make(config: EnvContext):\n    return Simulator(port=5000 + config.{number})\n"
    )
    _, (note,) = rewritten(program)
    assert note.startswith(f"3: .{number}: env_config is a dict, which numbers no environments: ")
    assert "bind it to port 0" in note


def test_spaces_by_methods_of_an_environment_of_several_agents_stay_methods() -> None:
    body = (
        "    def get_action_space(self, agent_id):\n        return self.spaces[agent_id]\n"
        "    def sample(self):\n        return self.get_action_space('a').sample()\n"
    )
    begin = "from ray.rllib.env.multi_agent_env import MultiAgentEnv\n"
    text, _ = rewritten(f"{begin}class Two(MultiAgentEnv):\n{body}")
    assert body in text


# --- names with a counterpart ---


def test_an_import_of_tune_goes_where_it_only_registers_an_environment() -> None:
    program = (
        "def main():\n    from ray import tune\n    tune.register_env('a', lambda cfg: Mine(cfg))\n"
        "    return PPOConfig().environment('a')\n"
    )
    text, notes = rewritten(PPO + program)
    assert notes == []
    assert "tune" not in text
    kept, (note,) = rewritten(PPO + program + "    tune.run('PPO')\n")
    assert "from ray import tune" in kept
    assert note.startswith("3: tune.run:")


def test_parts_of_checkpoints_are_strings_and_small_functions_are_imported() -> None:
    program = (
        "from ray.rllib.core import COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE\n"
        "from ray.rllib.utils.numpy import softmax\n"
        "from ray.rllib.utils.spaces.space_utils import batch as join, unbatch\n"
        "from ray.rllib.utils.typing import EpisodeType\n"
        "def f(x: EpisodeType):\n"
        "    return f'{COMPONENT_LEARNER_GROUP}/a', COMPONENT_RL_MODULE, softmax(join(unbatch(x)))\n"
    )
    text, notes = rewritten(program)
    assert notes == []
    assert "    return 'learner_group/a', COMPONENT_RL_MODULE, softmax(join(unbatch(x)))\n" in text
    assert "from plugrad_rllib.arrays import batch as join, softmax, unbatch\n" in text
    assert "from typing import Any as EpisodeType\n" in text


def test_functions_of_structures_errors_and_timers_are_imported_or_written_out() -> None:
    program = (
        "from ray.rllib.utils.error import EnvError\n"
        "from ray.rllib.utils.metrics import ENV_RUNNER_SAMPLING_TIMER, TIMERS\n"
        "from ray.rllib.utils.numpy import convert_to_numpy\n"
        "from ray.rllib.utils.test_utils import check\n"
        "from ray.rllib.utils.torch_utils import FLOAT_MIN\n"
        "def f(x):\n"
        "    check(convert_to_numpy(x), FLOAT_MIN)\n"
        "    raise EnvError(f'{TIMERS}/{ENV_RUNNER_SAMPLING_TIMER}')\n"
    )
    text, notes = rewritten(program)
    assert notes == []
    assert "    raise EnvError('timers/env_runner_sampling_timer')\n" in text
    assert "from builtins import RuntimeError as EnvError\n" in text
    assert "from plugrad_rllib.arrays import FLOAT_MIN\n" in text
    assert "from plugrad_rllib.structures import check, convert_to_numpy\n" in text


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("core.models.configs", "MLPHeadConfig", "write the network in setup() of an RLModule"),
        ("core.learner.torch.torch_meta_learner", "TorchMetaLearner", "through the updates of another one"),
        ("core.distribution.torch.torch_distribution", "TorchDiagGaussian", "plugrad.distributions"),
        ("policy.policy", "Policy", "RLlib's old API stack"),
        ("env.wrappers.open_spiel", "OpenSpielEnv", "Shimmy's"),
        ("algorithms.algorithm_config", "NotProvided", "a field of your config class"),
        ("examples.envs.classes.multi_agent", "TicTacToe", "is of RLlib's examples: copy it"),
    ],
)
def test_a_name_without_a_counterpart_is_noted_with_what_to_write(
    module: str, name: str, instead: str
) -> None:
    text, notes = rewritten(f"from ray.rllib.{module} import {name}\n")
    assert text == f"from ray.rllib.{module} import {name}\n"
    (note,) = notes
    assert note.startswith(f"1: {name}")
    assert instead in note


def test_a_grid_of_an_example_is_its_first_value_in_the_loop_that_takes_its_place() -> None:
    program = (
        "from ray import tune\n"
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "from ray.rllib.utils.test_utils import run_rllib_example_script_experiment\n"
        "config = PPOConfig().training(lr=tune.grid_search([0.1, 0.01]), gamma=0.9)\n"
        "run_rllib_example_script_experiment(config, args)\n"
    )
    text, notes = rewritten(program)
    assert "config = PPOConfig.rllib_defaults().training(lr=0.1, gamma=0.9)\n" in text
    assert "import tune" not in text
    assert [note for note in notes if note.startswith("4: ")] == [
        "4: tune.grid_search([0.1, 0.01]): the loop below takes the first value; tune.Tuner(trainable(config), "
        'param_space={"lr": tune.grid_search([0.1, 0.01])}) of Ray Tune tries all'
    ]


OWN = (
    "algorithm = PPOConfig().build_algo()\n\n"
    "algorithm.env_runner_group.foreach_env_runner(harder)\n"
    "algorithm._counters['task'] = algorithm.metrics.peek('task')\n"
)


def test_members_of_an_algorithm_that_no_callback_gets_are_noted() -> None:
    program = (
        "from ray.rllib.callbacks.callbacks import RLlibCallback\n"
        "class Mine(RLlibCallback):\n"
        "    def on_train_result(self, *, algorithm, result, **kwargs):\n"
        "        algorithm.env_runner_group.foreach_env_runner(harder)\n"
        "        algorithm._counters['task'] = algorithm.metrics.peek('task')\n"
        "        algorithm.save('here')\n"
    )
    text, notes = rewritten(program)
    assert "        algorithm.save_to_path('here')\n" in text
    assert notes == []  # what a callback gets has them
    notes = rewritten(program + f"{PPO}{OWN}")[1]
    assert [note.partition(": ")[0] for note in notes] == ["10", "11", "11"]
    assert notes[0].startswith("10: .env_runner_group: algorithm.env_runners.call(name, ...) calls a method")
    assert {note.split()[1] for note in notes[1:]} == {"._counters:", ".metrics:"}


def test_a_part_of_a_checkpoint_is_named_by_its_component() -> None:
    program = (
        "from pathlib import Path\n"
        "from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE\n"
        "from ray.rllib.core import DEFAULT_MODULE_ID\n"
        "part = (\n    Path(best)\n    / COMPONENT_LEARNER_GROUP\n    / COMPONENT_LEARNER\n    / COMPONENT_RL_MODULE\n"
        "    / DEFAULT_MODULE_ID\n)\n"
        "algo.restore_from_path(\n"
        "    part, component=f'{COMPONENT_LEARNER_GROUP}/{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/p0'\n)\n"
        "half = Path(best) / DEFAULT_MODULE_ID / 2\n"
        "one = Path(best) / COMPONENT_RL_MODULE / 'p0'\n"
    )
    text, notes = rewritten(program)
    assert 'algo.restore_from_path(\n    part, component="rl_module/p0"\n)\n' in text
    assert "part = (\n    Path(best))\n" in text.replace("\n)", ")")
    assert "half = Path(best) / DEFAULT_MODULE_ID / 2\n" in text
    assert "one = Path(best)\n" in text
    assert {note.partition(": ")[2] for note in notes} == {
        "a checkpoint is one folder, whose parts are named by component=: "
        'restore_from_path(path, component="rl_module/<module id>")'
    }


def test_whether_a_config_is_of_an_atari_game_is_asked_by_a_function() -> None:
    text, notes = rewritten(PPO + "config = PPOConfig().environment('ALE/Pong-v5')\nprint(config.is_atari)\n")
    assert notes == []
    assert "from plugrad_rllib.atari import is_atari\n" in text
    assert text.endswith("print(is_atari(config))\n")


def test_tqc_has_its_settings_by_their_names_here() -> None:
    program = (
        "from ray.rllib.algorithms.tqc.tqc import TQCConfig\n"
        "config = TQCConfig().training(n_quantiles=9, top_quantiles_to_drop_per_net=3, n_critics=2)\n"
    )
    text, notes = rewritten(program)
    assert text.startswith("from plugrad_tqc import TQCConfig\n")
    assert text.endswith(".training(num_quantiles=9, top_quantiles_to_drop_per_critic=3)\n")
    assert notes == ["2: training(n_critics=...) was deleted: there are always two critics"]


def test_settings_that_went_have_the_values_that_hold_here() -> None:
    program = (
        "from ray.rllib.callbacks.callbacks import RLlibCallback\n"
        "class Mine(RLlibCallback):\n"
        "    def on_train_result(self, *, algorithm, result, **kwargs):\n"
        "        read = algorithm.config.enable_env_runner_and_connector_v2, algorithm.config.evaluation_duration\n"
        "        evaluation = result['evaluation']['env_runners']\n"
        "        steps = evaluation['num_env_steps_sampled']\n"
    )
    text, notes = rewritten(program)
    assert notes == []
    assert "read = True, algorithm.config.evaluation_num_episodes\n" in text
    assert 'steps = round(evaluation["episode_len_mean"] * evaluation["num_episodes"])\n' in text


@pytest.mark.parametrize("environment", ["", ".environment('CartPole-v1')"])
def test_the_examples_helper_has_the_environment_of_its_option_where_the_program_has_none(
    environment: str,
) -> None:
    program = (
        "from ray.rllib.utils.test_utils import add_rllib_example_script_args, run_rllib_example_script_experiment\n"
        f"{PPO}parser = add_rllib_example_script_args()\n"
        "parser.add_argument('--seed', type=int, default=7)\n"
        "args = parser.parse_args()\n"
        f"config = PPOConfig(){environment}.debugging(seed=args.seed)\n"
        "run_rllib_example_script_experiment(config, args)\n"
    )
    text, notes = rewritten(program)
    assert notes == []
    assert text.count("--seed") == 1  # the program's own
    assert f"algorithm = config{'' if environment else '.environment(args.env)'}.build_algo()\n" in text


def test_a_checkpoint_of_ray_tune_is_restored_by_its_path() -> None:
    text, notes = rewritten(f"{PPO}algo = PPOConfig().build()\nalgo.restore(best_result.checkpoint)\n")
    assert notes == []
    assert text.endswith("algo.restore_from_path(best_result.checkpoint.path)\n")


SPEC = "from ray.rllib.core.rl_module.rl_module import RLModuleSpec\n"
DEFAULT_MODULE = "from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule\n"


def test_a_spec_of_rllibs_default_module_names_no_class() -> None:
    program = (
        f"{SPEC}{DEFAULT_MODULE}from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog\n"
        "module_class = PPOTorchRLModule\n"
        "spec = RLModuleSpec(\n"
        "    module_class=PPOTorchRLModule, catalog_class=PPOCatalog, model_config=dict(fcnet_hiddens=[8])\n)\n"
        "other = RLModuleSpec(module_class=Own, catalog_class=OwnCatalog, load_state_path=path)\n"
    )
    text, notes = rewritten(program)
    assert text == (
        "from plugrad import RLModuleSpec\n"
        "module_class = None\n"
        "spec = RLModuleSpec(\n    model_config=dict(fcnet_hiddens=[8])\n)\n"
        "other = RLModuleSpec(module_class=Own)\n"
    )
    assert [note.partition(" was deleted")[0] for note in notes] == [
        "8: catalog_class=OwnCatalog",
        "8: load_state_path=...",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            f"{DEFAULT_MODULE}class Mine(PPOTorchRLModule): ...",
            "1: PPOTorchRLModule: RLModuleSpec() without module_class",
        ),
        (
            "from ray.rllib.algorithms.algorithm import Algorithm\n"
            "class Mine(Algorithm):\n    def training_step(self): ...",
            "2: class Mine: config.build_algo() makes the Algorithm itself; what an iteration does is the method",
        ),
        (
            "from ray.rllib.algorithms.appo import APPO\nclass Mine(APPO): ...",
            "2: class Mine: config.build_algo() makes the Algorithm itself",
        ),
        (
            "from ray.rllib.algorithms.algorithm_config import AlgorithmConfig\n"
            "class MyConfig(AlgorithmConfig):\n    def __init__(self, algo_class=None): ...\n"
            "    def training(self, **given): ...",
            "2: class MyConfig: a config is a frozen dataclass: write @dataclass(frozen=True, kw_only=True) and a "
            "field for each setting in place of __init__ and training",
        ),
        (f"{PPO}env_runner.module.half()", "2: .half(): config.framework("),
        (
            f"{PPO}config.algo_class.default_resource_request(config)",
            "2: .algo_class.default_resource_request: ",
        ),
        (f"{PPO}modules.foreach_module(f)", "2: .foreach_module(f): a MultiRLModule is a mapping"),
        (
            f"{PPO}policy = algo.get_policy()\ny = policy.model(x)",
            "3: .model: a policy acts, policy.predict(...)",
        ),
        (
            f"{PPO}state = algo.get_policy().model.get_initial_state()",
            "2: .model: a policy acts, policy.predict(...)",
        ),
        (
            "import ray\nds = ray.data.read_parquet('here')",
            "2: ray.data.read_parquet: recorded episodes are plugrad's",
        ),
    ],
)
def test_what_a_program_makes_of_rllibs_parts_is_named_at_its_line(line: str, said: str) -> None:
    _, notes = rewritten(f"{line}\n")
    assert [note for note in notes if note.startswith(said)], notes


@pytest.mark.parametrize(
    "parts", ["COMPONENT_LEARNER_GROUP, COMPONENT_LEARNER, COMPONENT_RL_MODULE", "'rl_module'"]
)
def test_a_saved_module_is_made_by_the_learner_that_saved_it(parts: str) -> None:
    program = (
        "import os\n"
        "from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE\n"
        "from ray.rllib.core import DEFAULT_MODULE_ID\n"
        "from ray.rllib.core.rl_module.rl_module import RLModule\n"
        f"module = RLModule.from_checkpoint(os.path.join(best.path, {parts}, DEFAULT_MODULE_ID))\n"
        "other = RLModule.from_checkpoint(path)\n"
    )
    text, (note,) = rewritten(program)
    assert "module = Learner.from_checkpoint(best.path).module[DEFAULT_MODULE_ID]\n" in text
    assert note.startswith(
        "6: RLModule.from_checkpoint: a checkpoint holds no code: Learner.from_checkpoint(path)"
    )


def test_callbacks_that_a_config_is_to_lose_are_named() -> None:
    _, notes = rewritten(f"{PPO}config = PPOConfig().callbacks(Mine)\nconfig.callbacks(None)\n")
    assert notes == [
        "3: callbacks(None) was deleted: a config keeps its plugins: take the one from before .plugins(...)"
    ]
