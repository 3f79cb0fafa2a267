// One run of RLtools on Pendulum: `pendulum_rltools SEED`. The last line printed is JSON, as of `pendulum_plugrad.py`.
//
// Build it in a checkout of rl-tools, with OpenBLAS of Debian's libopenblas-dev:
//
//     g++ -std=c++17 -Ofast -march=native -DBENCHMARK -DRL_TOOLS_BACKEND_ENABLE_OPENBLAS -I include -I src \
//         PLUGRAD/benchmarks/pendulum_rltools.cpp -lopenblas -o pendulum_rltools
//
// Its own example includes no BLAS for layers (`nn/operations_cpu_mux.h`): then OpenBLAS is not called, whatever the
// flags say, and a run takes nine times as long. So this file includes it, before the example.

#include <rl_tools/operations/cpu_mux.h>
#include <rl_tools/nn/optimizers/adam/instance/operations_generic.h>
#include <rl_tools/nn/operations_cpu_mux.h>

#define main example_main
#include <rl/environments/pendulum/ppo/cpu/training.cpp>
#undef main

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

int main(int argc, char** argv) {
    DEVICE device;
    LOOP_STATE state;
    const auto start = std::chrono::steady_clock::now();
    const double processor_start = processor_time();
    rlt::malloc(device, state);
    rlt::init(device, state, argc > 1 ? std::atoi(argv[1]) : 0);
    while (!rlt::step(device, state)) {
    }
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double processor = processor_time() - processor_start;
    const double evaluation_start = processor_time();
    rlt::malloc(device, eval_buffer);
    rlt::rl::utils::evaluation::Result<EVAL_SPEC> result;
    auto actor = rlt::get_actor(state);
    evaluate(device, rlt::get_ref(device, state.envs, 0), state.ui, actor, eval_buffer, result, state.rng,
             rlt::Mode<rlt::mode::Evaluation<>>{});
    std::printf("\n{\"wall\": %f, \"processor\": %f, \"evaluation\": %f, \"return\": %f, \"steps\": %ld}\n", wall, processor,
                processor_time() - evaluation_start, static_cast<double>(result.returns_mean),
                static_cast<long>(state.step * CONFIG::LOOP_TIMING_CONFIG::ENVIRONMENT_STEPS_PER_LOOP_STEP));
}
