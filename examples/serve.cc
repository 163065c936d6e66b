// Inference, as a GPU sees it: little memory, short kernels, most of the time waiting for requests.
//
// Requests arrive at random times at the rate asked for (the same times in every run); each is answered by
// one kernel. Latency counts from arrival, so a GPU that is busy with somebody else's work shows in it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "cuda_driver.h"
#include "options.h"

namespace examples {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Times between arrivals of a Poisson process. Own generator: the same on every machine (splitmix64).
class Arrivals {
 public:
  explicit Arrivals(double per_second) : per_second_(per_second) {}
  std::chrono::duration<double> next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    mixed ^= mixed >> 31;
    const double uniform = (static_cast<double>(mixed >> 11) + 0.5) / 9007199254740992.0;
    return std::chrono::duration<double>(-std::log(uniform) / per_second_);
  }

 private:
  double per_second_;
  uint64_t state_ = 20260101;
};

double percentile(std::vector<double>& sorted, double part) {
  const double position = part * static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(position + 0.5)];
}

void report(std::vector<double> latencies_ms) {
  if (latencies_ms.empty()) {
    std::printf("served 0 requests\n");
    return;
  }
  std::sort(latencies_ms.begin(), latencies_ms.end());
  std::printf("served %zu requests: latency p50 %.1f ms, p95 %.1f ms, p99 %.1f ms, longest %.1f ms\n",
              latencies_ms.size(), percentile(latencies_ms, 0.5), percentile(latencies_ms, 0.95),
              percentile(latencies_ms, 0.99), latencies_ms.back());
}

// Sleeps until `time`; false if the process is asked to end before.
bool sleep_until(SteadyClock::time_point time) {
  constexpr std::chrono::milliseconds kLook(50);
  while (!termination_noted()) {
    const auto now = SteadyClock::now();
    if (now >= time) return true;
    std::this_thread::sleep_for(std::min<SteadyClock::duration>(time - now, kLook));
  }
  return false;
}

int serve(int argument_count, char** arguments) {
  double memory = 512, seconds = 10, rate = 20, kernel_milliseconds = 5;
  parse_options(
      argument_count, arguments,
      "Answers requests on the first GPU that it sees. SIGTERM ends it with its percentiles.",
      {{"--memory", &memory, 0, 1'000'000, "MiB of model"},
       {"--seconds", &seconds, 0, 10'000'000, "how long"},
       {"--rate", &rate, 0.001, 100'000, "requests a second"},
       {"--kernel-ms", &kernel_milliseconds, 0.001, 60'000, "GPU time of a request, in milliseconds"}});
  note_termination();
  const CudaDriver cuda;
  BusyGpu gpu(cuda, 0);
  gpu.hold(static_cast<size_t>(memory));
  std::printf("serving on %s: %zu MiB of model, %g requests a second\n", gpu.name().c_str(), gpu.held_mib(),
              rate);

  const auto start = SteadyClock::now();
  const auto end =
      start + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
  const auto kernel_microseconds = static_cast<uint64_t>(std::max(1.0, kernel_milliseconds * 1000));
  Arrivals arrivals(rate);
  auto arrival = start;
  std::vector<double> latencies_ms;
  while (true) {
    arrival += std::chrono::duration_cast<SteadyClock::duration>(arrivals.next());
    if (arrival >= end) {
      sleep_until(end);
      break;
    }
    if (!sleep_until(arrival)) break;
    gpu.start_work(kernel_microseconds);
    gpu.finish();
    latencies_ms.push_back(std::chrono::duration<double, std::milli>(SteadyClock::now() - arrival).count());
  }
  report(std::move(latencies_ms));
  return 0;
}

}  // namespace
}  // namespace examples

int main(int argument_count, char** arguments) {
  return examples::run_example("serve", examples::serve, argument_count, arguments);
}
