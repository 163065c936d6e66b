// tranche-emulator: starts, shows and stops emulated GPU servers.

#include <cstdio>
#include <string>
#include <vector>

#include "emulator/program/libraries.h"
#include "emulator/program/options.h"
#include "emulator/program/private_server.h"
#include "emulator/program/report.h"
#include "emulator/program/standing_server.h"
#include "emulator/program/verb_fault.h"
#include "emulator/program/verb_mig.h"
#include "emulator/program/verb_reset.h"

namespace tranche::emulator {
namespace {

constexpr int kFailed = 1;
constexpr int kNotUnderstood = 2;

int complain(const Error& error, int code) {
  std::fprintf(stderr, "tranche-emulator: %s\n", error.message().c_str());
  return code;
}

int start(const Options& options) {
  const auto libraries = start_server(options.server);
  if (!libraries) return complain(libraries.error(), kFailed);
  std::printf("%s\n", libraries->c_str());
  return 0;
}

int status(const Options& options) {
  const auto model = DeviceModel::attach(default_state_directory());
  if (!model) {
    return complain(
        Error(ErrorCode::not_found, "there is no emulated server here (" + model.error().message() +
                                        "); make one with tranche-emulator start"),
        kFailed);
  }
  std::fputs((options.json ? status_json(**model) : status_text(**model)).c_str(), stdout);
  return 0;
}

int dispatch(const Options& options) {
  if (options.help) {
    std::fputs(std::string(help_text(options.verb)).c_str(), stdout);
    return 0;
  }
  if (options.verb == "start") return start(options);
  if (options.verb == "status") return status(options);
  if (options.verb == "boards") {
    std::fputs((options.json ? boards_json() : boards_text()).c_str(), stdout);
    return 0;
  }
  if (options.verb == "fault" || options.verb == "mig" || options.verb == "reset") {
    const auto done = options.verb == "fault" ? run_fault(options.command)
                      : options.verb == "mig" ? run_mig(options.command)
                                              : run_reset(options.command);
    if (done) return 0;
    return complain(done.error(),
                    done.error().code() == ErrorCode::invalid_argument ? kNotUnderstood : kFailed);
  }
  if (options.verb == "stop") {
    const auto stopped = stop_server(options.force);
    return stopped ? 0 : complain(stopped.error(), kFailed);
  }
  const auto code = run_on_private_server(options.server, options.command);
  return code ? *code : complain(code.error(), kFailed);
}

}  // namespace
}  // namespace tranche::emulator

int main(int count, char** arguments) {
  tranche::emulator::remember_program_path();
  const std::vector<std::string> given(arguments + 1, arguments + count);
  const auto options = tranche::emulator::parse_options(given);
  if (!options) return tranche::emulator::complain(options.error(), tranche::emulator::kNotUnderstood);
  return tranche::emulator::dispatch(*options);
}
