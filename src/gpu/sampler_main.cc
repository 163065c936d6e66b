// tranche-sampler: reads NVML for the daemon, which starts it; may hang without harm.
//
// Not meant to be run by hand: it needs a SEQPACKET socket to the daemon as a descriptor.
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "gpu/sampler.h"

namespace tranche {
namespace {

constexpr const char* kHelp =
    "Usage: tranche-sampler --socket FD [--library-dir DIR] [--period-ms N] [--progress-ms N]\n"
    "                       [--proc-root DIR] [--sysfs-root DIR] [--dev-root DIR] [--probe 1]\n"
    "                       [--skip-index N]... [--skip-uuid UUID]... [--look-at N]...\n"
    "Reads NVML for tranched, which starts it with a socket as descriptor FD. It ends when the socket "
    "closes.\n";

Result<int64_t> parse_number(std::string_view name, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < least || value > most) {
    return fail(ErrorCode::invalid_argument, std::string(name) + " takes a number from " +
                                                 std::to_string(least) + " to " + std::to_string(most) +
                                                 ", not \"" + std::string(text) + "\"");
  }
  return value;
}

Result<void> apply(SamplerOptions& options, std::string_view name, std::string_view value) {
  constexpr int64_t kPeriodMax = 3'600'000;
  if (name == "--socket") {
    TRY_ASSIGN(const int64_t socket, parse_number(name, value, 0, 1 << 20));
    options.socket = static_cast<int>(socket);
  } else if (name == "--period-ms") {
    TRY_ASSIGN(const int64_t period, parse_number(name, value, 1, kPeriodMax));
    options.period = period * kMillisecond;
  } else if (name == "--progress-ms") {
    TRY_ASSIGN(const int64_t period, parse_number(name, value, 1, kPeriodMax));
    options.progress_period = period * kMillisecond;
  } else if (name == "--skip-index") {
    TRY_ASSIGN(const int64_t index, parse_number(name, value, 0, sampler::kGpusMax - 1));
    options.skip_indices.insert(static_cast<uint32_t>(index));
  } else if (name == "--look-at") {
    TRY_ASSIGN(const int64_t index, parse_number(name, value, 0, sampler::kGpusMax - 1));
    options.look_at.insert(static_cast<uint32_t>(index));
  } else if (name == "--library-dir") {
    options.library_dir = value;
  } else if (name == "--proc-root") {
    options.roots.proc = value;
  } else if (name == "--sysfs-root") {
    options.roots.sysfs = value;
  } else if (name == "--dev-root") {
    options.roots.dev = value;
  } else if (name == "--probe") {
    options.probe = value == "1";
  } else if (name == "--skip-uuid") {
    options.skip_uuids.emplace(value);
  } else {
    return fail(ErrorCode::invalid_argument, "unknown option " + std::string(name) + "; see --help");
  }
  return {};
}

Result<SamplerOptions> parse(int argument_count, char** arguments) {
  SamplerOptions options;
  for (int i = 1; i < argument_count; i += 2) {
    if (i + 1 >= argument_count) {
      return fail(ErrorCode::invalid_argument, std::string(arguments[i]) + " needs a value; see --help");
    }
    TRY(apply(options, arguments[i], arguments[i + 1]));
  }
  int type = 0;
  socklen_t size = sizeof type;
  if (options.socket < 0 || ::getsockopt(options.socket, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      type != SOCK_SEQPACKET) {
    return fail(ErrorCode::invalid_argument,
                "--socket must name a SEQPACKET socket; tranched starts this program, people do not need to");
  }
  return options;
}

int run(int argument_count, char** arguments) {
  if (argument_count == 2 && std::string_view(arguments[1]) == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  Result<SamplerOptions> options = parse(argument_count, arguments);
  if (!options) {
    std::fprintf(stderr, "tranche-sampler: %s\n", options.error().message().c_str());
    return 2;
  }
  // Never destroyed: its threads may be inside the driver when the process ends.
  Sampler* const sampler = new Sampler(std::move(*options));
  sampler->run();
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace
}  // namespace tranche

int main(int argument_count, char** arguments) { return tranche::run(argument_count, arguments); }
