// tranche config: check a configuration before it is loaded, explain what it means, have it loaded.
//
// Reading TOML needs a library that would cost every other verb half of its start, so check and explain are a
// program of their own beside this one.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "linux/system_error.h"

namespace tranche::cli {
namespace {

constexpr std::string_view kReader = "tranche-config";

Result<std::string> program_directory() {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return fail(system_error("find this program's folder"));
  path.resize(static_cast<size_t>(size));
  return path.substr(0, path.rfind('/') + 1);
}

// Runs the reader with this session's output; its exit code.
Result<int> run_reader(Session& session, std::vector<std::string> words) {
  TRY_ASSIGN(const std::string directory, program_directory());
  words.insert(words.begin(), directory + std::string(kReader));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  session.flush();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, session.setup().output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, session.setup().error, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(system_error("start " + words.front(), error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitTrancheFailed;
}

Result<int> reload(Session& session) {
  Daemon daemon(session);
  TRY_ASSIGN(const api::PolicySummary summary, daemon.post_as<api::PolicySummary>("/v1/reload"));
  session.print(summary.changed ? "the new policy is in force\n" : "nothing has changed\n");
  for (const std::string& sentence : summary.sentences) session.print(printable(sentence) + "\n");
  return 0;
}

}  // namespace

Result<int> run_config(Session& session, const Arguments& arguments) {
  const std::string& what = arguments.words.front();
  if (what == "check" || what == "explain") return run_reader(session, arguments.words);
  if (what == "reload" && arguments.words.size() == 1) return reload(session);
  if (what == "reload")
    return invalid("the daemon reloads its own file; leave out " + in_quotes(arguments.words[1]));
  return invalid(in_quotes(what) + " is not known here; write: tranche config check|explain|reload [FILE]");
}

}  // namespace tranche::cli
