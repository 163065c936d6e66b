// tranche-config check|explain [FILE]: reads the daemon's configuration for `tranche config`.
#include <unistd.h>

#include <string>
#include <string_view>

#include "cli/session.h"
#include "cli/text.h"
#include "codec/config.h"

namespace tranche::cli {
namespace {

Result<void> read_configuration(Session& session, std::string_view what, const std::string& path) {
  // A server without a file runs under the defaults.
  const bool is_default = path.empty() && ::access(std::string(kConfigPath).c_str(), F_OK) != 0;
  DaemonConfig config;
  if (!is_default) {
    TRY_ASSIGN(config, load_config(path.empty() ? std::string(kConfigPath) : path));
  }
  if (what == "explain") {
    for (const std::string& sentence : explain_config(config)) session.print(printable(sentence) + "\n");
    return {};
  }
  if (is_default) {
    session.print("there is no " + std::string(kConfigPath) + ": the defaults are in force\n");
    return {};
  }
  session.print(printable(path.empty() ? std::string(kConfigPath) : path) +
                " is in order: " + std::to_string(config.policy.queues.size()) +
                (config.policy.queues.size() == 1 ? " queue; " : " queues; ") +
                "'tranche config explain' says what it means\n");
  return {};
}

int run(Session& session, int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  const std::string path = count > 2 ? words[2] : "";
  if ((what != "check" && what != "explain") || count > 3) {
    session.warn("write: tranche-config check|explain [FILE]");
    return exit_code(ErrorCode::invalid_argument);
  }
  const Result<void> done = read_configuration(session, what, path);
  if (done) return 0;
  session.warn(printable(done.error().message()));
  return exit_code(done.error().code());
}

}  // namespace
}  // namespace tranche::cli

int main(int count, char** words) {
  tranche::cli::Session session(tranche::cli::Session::current());
  return tranche::cli::run(session, count, words);
}
