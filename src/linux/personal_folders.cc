#include "linux/personal_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace tranche {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// What the specification says of relative paths: they are invalid.
bool is_absolute(const std::string& path) { return path.starts_with('/'); }

std::string in_home(const Variable& variable, const char* name, const char* under_home) {
  const std::string chosen = variable(name);
  if (is_absolute(chosen)) return chosen;
  const std::string home = variable("HOME");
  return is_absolute(home) ? home + under_home : "";
}

std::string shared_run_folder(uint32_t uid) { return "/tmp/tranche-" + std::to_string(uid); }

bool is_folder_of(const std::string& path, uint32_t uid) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == uid;
}

// Likeliest first: a login by cron or ssh may lack the variable that another has.
std::vector<std::string> run_folders(const Variable& variable, uint32_t uid) {
  std::vector<std::string> folders;
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  if (is_absolute(runtime)) folders.push_back(runtime + "/tranche");
  folders.push_back("/run/user/" + std::to_string(uid) + "/tranche");
  folders.push_back(shared_run_folder(uid));
  std::erase_if(folders, [&](const std::string& folder) { return !is_folder_of(folder, uid); });
  return folders;
}

}  // namespace

Result<PersonalFolders> personal_folders(const Variable& variable, uint32_t uid) {
  PersonalFolders folders;
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  folders.run = is_absolute(runtime) ? runtime + "/tranche" : shared_run_folder(uid);
  // One daemon for a user: where there is one, another login's variables make no second.
  for (const std::string& folder : run_folders(variable, uid)) {
    if (::access((folder + "/tranche.sock").c_str(), F_OK) != 0) continue;
    folders.run = folder;
    break;
  }
  const std::string state = in_home(variable, "XDG_STATE_HOME", "/.local/state");
  const std::string config = in_home(variable, "XDG_CONFIG_HOME", "/.config");
  if (state.empty() || config.empty())
    return fail(ErrorCode::invalid_argument, "HOME is not set to an absolute path: set it, and try again");
  folders.state = state + "/tranche/" + host_name();
  folders.config = config + "/tranche/tranche.toml";
  return folders;
}

std::vector<std::string> personal_sockets(const Variable& variable, uint32_t uid) {
  std::vector<std::string> sockets;
  for (const std::string& folder : run_folders(variable, uid)) {
    std::string path = folder + "/tranche.sock";
    if (std::find(sockets.begin(), sockets.end(), path) == sockets.end()) sockets.push_back(std::move(path));
  }
  return sockets;
}

}  // namespace tranche
