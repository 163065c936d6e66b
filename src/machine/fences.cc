#include "machine/fences.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "linux/files.h"

namespace tranche::machine {
namespace {

constexpr size_t kMaxProof = 64 * 1024;

constexpr std::string_view kDriver = "driver ";

template <class Take>
void each_line(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty()) take(line);
  }
}

// A line with the driver's release, and one for each GPU: its UUID and `held`, or what did not hold.
std::string faults_of(std::string_view proof) {
  std::string faults;
  each_line(proof, [&](std::string_view line) {
    if (line.starts_with(kDriver) || (line.starts_with("GPU-") && line.ends_with(" held"))) return;
    faults += (faults.empty() ? "" : "; ") + std::string(line.substr(0, 200));
  });
  return faults;
}

// The release that it was tried out on; "" if it does not say.
std::string release_of(std::string_view proof) {
  std::string release;
  each_line(proof, [&](std::string_view line) {
    if (line.starts_with(kDriver)) release = line.substr(kDriver.size(), 100);
  });
  return release;
}

// GPUs on which the driver itself refused.
std::set<std::string> enforced_gpus(const std::string& run_dir) {
  std::set<std::string> enforced;
  const auto text = read_file(run_dir + "/guard/limits", kMaxProof);
  if (!text) return enforced;
  constexpr std::string_view kEnforced = " enforced";
  each_line(*text, [&](std::string_view line) {
    if (!line.starts_with("GPU-") || !line.ends_with(kEnforced)) return;
    enforced.emplace(line.substr(0, line.size() - kEnforced.size()));
  });
  return enforced;
}

bool all_are_enforced(std::string_view proof, const std::set<std::string>& enforced) {
  bool all = !enforced.empty();
  each_line(proof, [&](std::string_view line) {
    if (line.starts_with("GPU-")) all = all && enforced.contains(std::string(line.substr(0, line.find(' '))));
  });
  return all;
}

// A socket file outlives an arbiter that was killed, so its being there says nothing.
bool somebody_listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  const bool connected =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
  ::close(socket);
  return connected;
}

FractionFence unproven(const std::string& why) {
  return {api::Tier::enforced,
          api::Tier::unenforced,
          "unenforced: " + why,
          "`tranche-up start` tries each GPU out; it needs them free",
          {}};
}

FractionFence proven(std::string_view proof, std::set<std::string> enforced) {
  FractionFence fence;
  fence.enforced = std::move(enforced);
  if (all_are_enforced(proof, fence.enforced)) {
    fence.tier = api::Tier::enforced;
    fence.sentence =
        "enforced: the driver itself holds each job's cgroup to its part, whatever its programs do; managed "
        "memory is held by the guard";
    return fence;
  }
  fence.tier = api::Tier::guarded;
  fence.sentence =
      "guarded: the guard in front of the driver's libraries holds a job's memory to its part; a program "
      "that "
      "goes around it is not held";
  if (!fence.enforced.empty()) {
    fence.sentence += "; on " + std::to_string(fence.enforced.size()) +
                      " of the GPUs the driver itself holds it too (enforced)";
  }
  return fence;
}

}  // namespace

api::Tier FractionFence::on(const std::string& uuid) const {
  return enforced.contains(uuid) ? api::Tier::enforced : std::max(tier, api::Tier::guarded);
}

bool has_guard(const std::string& run_dir) {
  return ::access((run_dir + "/guard/libcuda.so.1").c_str(), R_OK) == 0;
}

FractionFence fraction_fence(const std::string& run_dir, const std::string& driver_version) {
  if (!has_guard(run_dir)) {
    return {api::Tier::enforced,
            api::Tier::unenforced,
            "unenforced: the guard's libraries are missing, or do not fit this driver",
            "'tranche-up stop' and 'tranche-up start' fit the guard to the driver again and say what they "
            "lack (--guard-dir)",
            {}};
  }
  const auto proof = read_file(run_dir + "/guard/fences", kMaxProof);
  if (!proof || proof->empty()) return unproven("the guard is there, but was not tried out on these GPUs");
  const std::string release = release_of(*proof);
  if (!release.empty() && !driver_version.empty() && release != driver_version) {
    return unproven("the guard was tried out on driver " + release + ", and now " + driver_version +
                    " is there");
  }
  if (const std::string faults = faults_of(*proof); !faults.empty()) {
    return {
        api::Tier::enforced,
        api::Tier::unenforced,
        "unenforced: the guard did not hold when it was tried out (" + faults + ")",
        "restart the launcher when the GPUs are free, and see that the driver is one that the guard knows",
        {}};
  }
  FractionFence fence = proven(*proof, enforced_gpus(run_dir));
  if (!somebody_listens(run_dir + "/arbiter.sock")) {
    fence.sentence = std::string(to_string(fence.tier)) +
                     ", but the arbiter is not running: jobs keep what they have and get nothing more";
    fence.remedy = "start it: `tranche-up start`";
  }
  return fence;
}

FractionFence fraction_fence(const DaemonConfig& config, const std::string& driver_version) {
  FractionFence fence = fraction_fence(config.run_dir, driver_version);
  if (!config.personal) return fence;
  fence.whole = api::Tier::unenforced;
  fence.enforced.clear();
  if (const size_t at = fence.remedy.find("tranche-up start`"); at != std::string::npos)
    fence.remedy.insert(at + std::string_view("tranche-up start").size(), " --personal");
  if (fence.tier == api::Tier::unenforced) return fence;
  fence.tier = api::Tier::courtesy;
  if (!fence.remedy.empty()) {
    fence.sentence =
        "courtesy, but the arbiter is not running: jobs keep what they have and get nothing more";
    return fence;
  }
  fence.sentence =
      "courtesy: the guard comes before the driver by LD_PRELOAD; a program that drops that variable, a "
      "setuid or "
      "static one, and what others do on the GPU is not held";
  return fence;
}

api::Tier tier_of(SliceKind kind, const FractionFence& fence) {
  return kind == SliceKind::fraction ? fence.tier : fence.whole;
}

std::string whole_gpu_sentence(const FractionFence& fence) {
  if (fence.whole == api::Tier::enforced) return "whole GPUs are enforced by the kernel's device filter";
  return "whole GPUs are unenforced: a job is told its GPUs by CUDA_VISIBLE_DEVICES alone";
}

Policy effective_policy(const DaemonConfig& config, const std::string& driver_version,
                        const scheduler::Scheduler& scheduler) {
  Policy policy = config.policy;
  if (config.users_share != UsersShare::enforced || policy.users_share_gpu) return policy;
  const FractionFence fence = fraction_fence(config, driver_version);
  policy.users_share_gpu = fence.tier == api::Tier::enforced;
  if (policy.users_share_gpu) return policy;
  for (const auto& view : scheduler.gpus()) {
    if (fence.enforced.contains(view.gpu->uuid)) policy.users_share_gpus.push_back(view.gpu->id);
  }
  std::sort(policy.users_share_gpus.begin(), policy.users_share_gpus.end());
  return policy;
}

}  // namespace tranche::machine
