#include "cli/helper_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "cli/job_text.h"
#include "cli/session.h"
#include "linux/system_error.h"

namespace tranche::cli {
namespace {

Result<std::string> program_directory() {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return fail(system_error("find this program's folder"));
  path.resize(static_cast<size_t>(size));
  return path.substr(0, path.rfind('/') + 1);
}

}  // namespace

Result<int> run_helper_program(Session& session, std::string_view name, std::vector<std::string> words) {
  TRY_ASSIGN(const std::string directory, program_directory());
  words.insert(words.begin(), directory + std::string(name));
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

Result<void> start_helper_program(std::string_view name, std::vector<std::string> words, int input) {
  TRY_ASSIGN(const std::string directory, program_directory());
  words.insert(words.begin(), directory + std::string(name));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(system_error("start " + words.front(), error));
  return {};
}

}  // namespace tranche::cli
