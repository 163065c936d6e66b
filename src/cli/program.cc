#include "cli/program.h"

#include "cli/command_line.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/which_daemon.h"

namespace tranche::cli {
namespace {

int explain_failure(Session& session, const Error& error) {
  // Sentences may carry what others wrote (a queue's name, a file's path): nothing of it may act on the
  // terminal.
  session.warn(printable(error.message()));
  return exit_code(error.code());
}

}  // namespace

int run_program(Session& session, std::vector<std::string> words) {
  const Result<CommandLine> line = parse_command_line(std::move(words));
  if (!line) return explain_failure(session, line.error());
  if (const std::string* socket = line->arguments.find("socket")) session.socket_path = *socket;
  session.quiet = line->arguments.has("quiet");
  session.socket_path = chosen_socket(session, session.socket_path);
  const Result<int> code = line->verb->run(session, line->arguments);
  session.flush();
  if (!code) return explain_failure(session, code.error());
  if (!session.output_lost()) return *code;
  // What was to be read is not there: whoever goes by the exit code must not go on.
  session.warn("standard output: " + session.output_lost()->message());
  return *code == 0 ? 1 : *code;
}

}  // namespace tranche::cli
