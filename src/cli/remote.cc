#include "cli/remote.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cli/helper_program.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "linux/files.h"
#include "linux/http_client.h"
#include "linux/unix_socket.h"

namespace tranche::cli {
namespace {

constexpr size_t kTokenBytesMax = 4096;

// "https://host:7443", "https://[::1]:7443/": host and port.
Result<std::pair<std::string, std::string>> host_and_port(const std::string& url) {
  std::string rest = url.substr(std::string_view("https://").size());
  while (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string::npos && rest.find(']', colon) == std::string::npos;
  std::string host = has_port ? rest.substr(0, colon) : rest;
  const std::string port = has_port ? rest.substr(colon + 1) : "7443";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool is_good = !host.empty() && !host.starts_with('-') &&
                       host.find_first_of("/@?# ") == std::string::npos && !port.empty() &&
                       port.find_first_not_of("0123456789") == std::string::npos;
  if (!is_good) return invalid("write the daemon's address as https://HOST:7443, not " + in_quotes(url));
  return std::pair(host, port);
}

Result<std::string> read_token(const Session& session) {
  std::string path = session.variable("TRANCHE_TOKEN_FILE");
  if (path.empty()) {
    std::string folder = session.variable("XDG_CONFIG_HOME");
    if (folder.empty()) folder = session.variable("HOME") + "/.config";
    path = folder + "/tranche/token";
  }
  auto token = read_file(path, kTokenBytesMax);
  if (!token) {
    return fail(ErrorCode::denied, "a remote daemon asks for a token, and there is none in " +
                                       in_quotes(path) +
                                       ": make one there with 'tranche token create', and name its file in "
                                       "TRANCHE_TOKEN_FILE");
  }
  struct stat file {};
  if (stat(path.c_str(), &file) == 0 && (file.st_mode & 077) != 0) {
    return fail(ErrorCode::denied, "others may read the token in " + in_quotes(path) +
                                       ": chmod 600 it, and make a new one if they did");
  }
  while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
  return std::move(*token);
}

Result<UniqueFd> connect_remote(const Session& session, const std::string& url) {
  TRY_ASSIGN(const auto where, host_and_port(url));
  TRY_ASSIGN(auto ends, unix_socket_pair(SocketKind::kStream));
  TRY(start_helper_program("tranche-remote", {where.first, where.second, session.variable("TRANCHE_CA_FILE")},
                           ends.second.get()));
  return std::move(ends.first);
}

}  // namespace

void use_remote_daemons(const Session& session) {
  HttpClient::Remote remote;
  remote.connect = [&session](const std::string& url) { return connect_remote(session, url); };
  remote.headers = [&session]() -> Result<HttpHeaders> {
    TRY_ASSIGN(std::string token, read_token(session));
    return HttpHeaders{{"Authorization", "Bearer " + token}};
  };
  HttpClient::set_remote(std::move(remote));
}

}  // namespace tranche::cli
