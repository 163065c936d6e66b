// tranche-config check|explain [FILE]: reads the daemon's configuration for `tranche config`.
#include <unistd.h>

#include <string>
#include <string_view>

#include "cli/session.h"
#include "cli/text.h"
#include "cli/which_daemon.h"
#include "codec/config.h"
#include "linux/personal_folders.h"

namespace tranche::cli {
namespace {

// The server's, or where there is none that of the user's own daemon.
std::string usual_file(const Session& session) {
  std::string server(kConfigPath);
  const auto folders =
      personal_folders([&session](const char* name) { return session.variable(name); }, session.setup().uid);
  const bool personal =
      folders && ::access(folders->config.c_str(), F_OK) == 0 &&
      (::access(server.c_str(), F_OK) != 0 || session.variable("TRANCHE_SOCKET") == kPersonalDaemon);
  return personal ? folders->config : server;
}

Result<void> read_configuration(Session& session, std::string_view what, std::string path) {
  // A server without a file runs under the defaults.
  const bool unnamed = path.empty();
  if (unnamed) path = usual_file(session);
  const bool is_default = unnamed && ::access(path.c_str(), F_OK) != 0;
  DaemonConfig config;
  if (!is_default) {
    TRY_ASSIGN(config, load_config(path));
  }
  if (what == "explain") {
    for (const std::string& sentence : explain_config(config)) session.print(printable(sentence) + "\n");
    return {};
  }
  if (is_default) {
    session.print("there is no " + path + ": the defaults are in force\n");
    return {};
  }
  session.print(printable(path) + " is in order: " + std::to_string(config.policy.queues.size()) +
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
