#include "cli/which_daemon.h"

#include <unistd.h>

#include <vector>

#include "cli/session.h"
#include "cli/text.h"
#include "linux/personal_folders.h"
#include "linux/unix_socket.h"

namespace tranche::cli {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// A socket file outlives a daemon that was killed.
bool answers(const std::string& path) { return static_cast<bool>(connect_unix(path, SocketKind::kStream)); }

std::string personal_socket(const Session& session) {
  const auto variable = [&session](const char* name) { return session.variable(name); };
  const std::vector<std::string> sockets = personal_sockets(variable, session.setup().uid);
  for (const std::string& socket : sockets) {
    if (exists(socket)) return socket;
  }
  return "";
}

}  // namespace

std::string chosen_socket(Session& session, const std::string& wanted) {
  if (wanted == kSystemDaemon) return std::string(kDefaultSocket);
  if (!wanted.empty() && wanted != kPersonalDaemon) return wanted;
  const std::string own = personal_socket(session);
  if (wanted == kPersonalDaemon) {
    if (!own.empty()) return own;
    const auto variable = [&session](const char* name) { return session.variable(name); };
    const auto folders = personal_folders(variable, session.setup().uid);
    return folders ? folders->run + "/tranche.sock" : std::string(kDefaultSocket);
  }
  const std::string system(kDefaultSocket);
  if (own.empty()) return system;
  if (!exists(system) || !answers(system)) return answers(own) ? own : system;
  if (answers(own)) {
    session.note(
        "tranche: asking this server's daemon; --socket personal (or TRANCHE_SOCKET=personal) asks yours, "
        "TRANCHE_SOCKET=system says nothing\n");
  }
  return system;
}

}  // namespace tranche::cli
