// Training, as a GPU sees it: a model that stays in memory, steps one after the other, on every visible GPU.
//
// Computes nothing: a step is a kernel that takes --step-ms of a whole GPU, so a job that shares its GPU
// makes fewer steps a second, and the printed speed shows it. Ended by SIGTERM it writes a checkpoint and
// exits 0.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "cuda_driver.h"
#include "options.h"

namespace examples {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// What a curve of training looks like: falls fast, then slowly, with a little unrest.
double loss_after(uint64_t steps) {
  const double progress = static_cast<double>(steps);
  return 0.35 + 2.4 / (1.0 + progress / 60.0) + 0.03 * std::sin(progress * 1.7);
}

int train(int argument_count, char** arguments) {
  double memory = 1024, seconds = 10, steps = 0, step_milliseconds = 20, exit_code = 0;
  parse_options(argument_count, arguments,
                "Trains for a while on every GPU that it sees. SIGTERM ends it with a checkpoint.",
                {{"--memory", &memory, 0, 1'000'000, "MiB of model on each GPU"},
                 {"--seconds", &seconds, 0, 10'000'000, "how long"},
                 {"--steps", &steps, 0, 1e12, "end after so many steps, 0: only by time"},
                 {"--step-ms", &step_milliseconds, 0.001, 60'000, "GPU time of a step, in milliseconds"},
                 {"--exit-code", &exit_code, 0, 255, "what to exit with at the end, to play a failure"}});
  note_termination();
  const CudaDriver cuda;
  std::vector<BusyGpu> gpus;
  for (int index = 0; index < cuda.device_count(); ++index) {
    gpus.emplace_back(cuda, index);
    gpus.back().hold(static_cast<size_t>(memory));
    std::printf("gpu %d: %s, %zu MiB of model\n", index, gpus.back().name().c_str(), gpus.back().held_mib());
  }

  const auto start = SteadyClock::now();
  const auto step_microseconds = static_cast<uint64_t>(std::max(1.0, step_milliseconds * 1000));
  const auto steps_most = static_cast<uint64_t>(steps);
  uint64_t done = 0, reported_steps = 0;
  double reported_at = 0;
  while (!termination_noted() && (steps_most == 0 || done < steps_most)) {
    const double elapsed = seconds_since(start);
    if (elapsed >= seconds && steps_most == 0) break;
    for (BusyGpu& gpu : gpus) gpu.start_work(step_microseconds);
    for (const BusyGpu& gpu : gpus) gpu.finish();  // gradients are exchanged here
    ++done;
    const double now = seconds_since(start);
    if (now - reported_at >= 1.0) {
      std::printf("step %llu  loss %.4f  %.1f steps/s\n", static_cast<unsigned long long>(done),
                  loss_after(done), static_cast<double>(done - reported_steps) / (now - reported_at));
      reported_steps = done;
      reported_at = now;
    }
  }
  if (termination_noted()) {
    std::printf("checkpoint: step %llu  loss %.4f (asked to end)\n", static_cast<unsigned long long>(done),
                loss_after(done));
    return 0;
  }
  std::printf("done: step %llu  loss %.4f in %.1f s\n", static_cast<unsigned long long>(done),
              loss_after(done), seconds_since(start));
  return static_cast<int>(exit_code);
}

}  // namespace
}  // namespace examples

int main(int argument_count, char** arguments) {
  return examples::run_example("train", examples::train, argument_count, arguments);
}
