// Data-parallel training whose processes come and go: `tranche submit --elastic -G 1..4 -- elastic --state
// DIR`.
//
// Each task is one process on its GPU. What it knows of the others it reads from the file that
// TRANCHE_MEMBERS_FILE names (docs/elastic.md). All of them advance one shared count of samples, which lives
// in a file in --state: in every round each member that is there takes its part of the next batch, so more
// members make more samples a second, and a member that leaves gives back nothing that was done: its part is
// counted when it is finished, and only then. A task that is asked to end (SIGTERM) finishes its part and
// goes.
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cuda_driver.h"
#include "options.h"

namespace examples {
namespace {

// What the members' file says; generation 0: it is not there, or not whole.
struct Members {
  unsigned long long generation = 0;
  std::vector<unsigned> ranks;
};

Members read_members(const std::string& path) {
  Members members;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("GENERATION=", 0) == 0) members.generation = std::strtoull(line.c_str() + 11, nullptr, 10);
    if (line.rfind("RANKS=", 0) != 0) continue;
    std::istringstream list(line.substr(6));
    std::string rank;
    while (std::getline(list, rank, ','))
      members.ranks.push_back(static_cast<unsigned>(std::strtoul(rank.c_str(), nullptr, 10)));
  }
  return members;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr)
    throw Problem(std::string(name) + " is not set: run this as an elastic job of Tranche");
  return value;
}

// The count of samples that all members share: a number in a file, changed under a lock.
class Progress {
 public:
  explicit Progress(const std::string& folder) : path_(folder + "/samples") {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) throw Problem("cannot open " + path_ + ": " + std::strerror(errno));
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { ::close(file_); }

  unsigned long long add(unsigned long long samples) {
    ::flock(file_, LOCK_EX);
    char text[32] = {};
    const ssize_t size = ::pread(file_, text, sizeof text - 1, 0);
    const unsigned long long sum = (size > 0 ? std::strtoull(text, nullptr, 10) : 0) + samples;
    if (samples > 0) {
      const int length = std::snprintf(text, sizeof text, "%020llu\n", sum);
      if (::pwrite(file_, text, static_cast<size_t>(length), 0) != length)
        throw Problem("cannot write " + path_);
    }
    ::flock(file_, LOCK_UN);
    return sum;
  }

 private:
  std::string path_;
  int file_ = -1;
};

int train(int argument_count, char** arguments) {
  double batch = 64, samples = 0, step_milliseconds = 20, memory = 512;
  const char* folder = ".";
  // The one option that is no number comes first.
  if (argument_count > 2 && std::string(arguments[1]) == "--state") {
    folder = arguments[2];
    arguments += 2;
    argument_count -= 2;
  }
  parse_options(argument_count, arguments,
                "[--state FOLDER first] Trains with as many processes as there are just now.",
                {{"--batch", &batch, 1, 1'000'000, "samples of a round, divided among the members"},
                 {"--samples", &samples, 0, 1e15, "end when so many are done, 0: never"},
                 {"--step-ms", &step_milliseconds, 0.001, 60'000, "GPU time of a member's part"},
                 {"--memory", &memory, 0, 1'000'000, "MiB of model on the GPU"}});
  note_termination();
  const std::string members_path = variable("TRANCHE_MEMBERS_FILE");
  const auto rank = static_cast<unsigned>(std::strtoul(variable("TRANCHE_RANK").c_str(), nullptr, 10));
  const std::string attempt = variable("TRANCHE_ATTEMPT");

  const CudaDriver cuda;
  BusyGpu gpu(cuda, 0);
  gpu.hold(static_cast<size_t>(memory));
  Progress progress(folder);
  std::printf("task %u, attempt %s: begins at sample %llu\n", rank, attempt.c_str(), progress.add(0));
  std::fflush(stdout);

  const auto step_microseconds = static_cast<uint64_t>(std::max(1.0, step_milliseconds * 1000));
  unsigned long long seen = 0;
  while (!termination_noted()) {
    const Members members = read_members(members_path);
    const auto place = std::find(members.ranks.begin(), members.ranks.end(), rank);
    if (place == members.ranks.end()) {
      // Not named yet, or not any more: a SIGTERM follows.
      ::usleep(5'000);
      continue;
    }
    if (members.generation != seen) {
      seen = members.generation;
      std::printf("task %u: member %zu of %zu from sample %llu on (generation %llu)\n", rank,
                  static_cast<size_t>(place - members.ranks.begin()) + 1, members.ranks.size(),
                  progress.add(0), seen);
      std::fflush(stdout);
    }
    gpu.start_work(step_microseconds);
    gpu.finish();
    const auto part = std::max(1ULL, static_cast<unsigned long long>(batch) / members.ranks.size());
    const unsigned long long done = progress.add(part);
    if (samples > 0 && static_cast<double>(done) >= samples) break;
  }
  std::printf("task %u: %s at sample %llu\n", rank, termination_noted() ? "leaves" : "done", progress.add(0));
  return 0;
}

}  // namespace
}  // namespace examples

int main(int argument_count, char** arguments) {
  return examples::run_example("elastic", examples::train, argument_count, arguments);
}
