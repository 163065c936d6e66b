// Interactive work, as a GPU sees it: somebody types, computes, thinks, and keeps the memory meanwhile.
//
// Reads commands from standard input; `help` lists them. Between commands the GPU idles.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "cuda_driver.h"
#include "options.h"

namespace examples {
namespace {

constexpr char kCommands[] =
    "load MIB         hold so much more device memory\n"
    "compute SECONDS  keep the GPU busy for so long\n"
    "free             give all memory back\n"
    "status           what is held and what is free\n"
    "quit             end; so does the end of input\n";

bool read_number(std::istringstream& words, double most, double& number) {
  return (words >> number) && number >= 0 && number <= most;
}

void compute(BusyGpu& gpu, double seconds) {
  // In pieces, so that a request to end is heard.
  constexpr double kPieceSeconds = 0.1;
  const auto start = std::chrono::steady_clock::now();
  for (double left = seconds; left > 0 && !termination_noted(); left -= kPieceSeconds) {
    gpu.start_work(static_cast<uint64_t>(std::min(left, kPieceSeconds) * 1e6) + 1);
    gpu.finish();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("computed: %.2f s of GPU time took %.2f s\n", seconds, took.count());
}

// False at `quit`.
bool obey(BusyGpu& gpu, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  double number = 0;
  if (!(words >> verb)) return true;
  if (verb == "quit" || verb == "exit") return false;
  if (verb == "help") {
    std::fputs(kCommands, stdout);
  } else if (verb == "load" && read_number(words, 1e6, number)) {
    gpu.hold(static_cast<size_t>(number));
    std::printf("holding %zu MiB\n", gpu.held_mib());
  } else if (verb == "compute" && read_number(words, 86'400, number)) {
    compute(gpu, number);
  } else if (verb == "free") {
    gpu.release();
    std::printf("holding 0 MiB\n");
  } else if (verb == "status") {
    std::printf("%s: holding %zu MiB, %zu MiB free\n", gpu.name().c_str(), gpu.held_mib(), gpu.free_mib());
  } else {
    std::printf("not understood: \"%s\"; type help\n", line.c_str());
  }
  return true;
}

int notebook(int argument_count, char** arguments) {
  parse_options(argument_count, arguments,
                "Computes on the first GPU that it sees, as its input says: type help when it runs.", {});
  note_termination();
  const CudaDriver cuda;
  BusyGpu gpu(cuda, 0);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  std::printf("%s is ready; type help\n", gpu.name().c_str());
  std::string line;
  while (!termination_noted()) {
    if (terminal) {
      std::fputs("> ", stdout);
      std::fflush(stdout);
    }
    if (!std::getline(std::cin, line)) break;
    try {
      if (!obey(gpu, line)) break;
    } catch (const Problem& problem) {
      std::printf("%s\n", problem.what());  // as in a notebook: the cell fails, the session goes on
    }
  }
  std::printf("bye\n");
  return 0;
}

}  // namespace
}  // namespace examples

int main(int argument_count, char** arguments) {
  return examples::run_example("notebook", examples::notebook, argument_count, arguments);
}
