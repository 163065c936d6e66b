#include "cli/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "base/quantity_text.h"
#include "cli/daemon.h"
#include "cli/job_list.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "linux/files.h"
#include "linux/system_error.h"
#include "linux/unique_fd.h"

namespace tranche::cli {
namespace {

constexpr size_t kManifestBytes = size_t{128} << 20;
constexpr std::string_view kUnfinished = ".new-";

std::string store_folder(const Session& session) {
  if (std::string chosen = session.variable("TRANCHE_SNAPSHOTS"); chosen.starts_with('/')) return chosen;
  std::string data = session.variable("XDG_DATA_HOME");
  if (!data.starts_with('/')) data = session.variable("HOME") + "/.local/share";
  return data + "/tranche/snapshots";
}

Result<void> make_private_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed)
    return fail(ErrorCode::denied, "cannot make the folder " + in_quotes(path) + ": " + failed.message());
  ::chmod(path.c_str(), 0700);
  return {};
}

// One process at a time changes the store.
Result<UniqueFd> lock_store(const std::string& store) {
  UniqueFd lock(::open((store + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.is_open()) return fail(system_error("locking " + in_quotes(store)));
  int locked = 0;
  do {
    locked = ::flock(lock.get(), LOCK_EX);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0) return fail(system_error("locking " + in_quotes(store)));
  return lock;
}

std::vector<std::string> folder_names(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  if (!open) return names;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "SIZE TIME PATH", each ended by a NUL, since a path may hold anything else; of a link SIZE is "link".
std::string manifest_text(const SourceTree& tree) {
  std::string text;
  for (const SourceFile& file : tree.files) {
    text += (file.is_link ? "link" : std::to_string(file.bytes)) + " " + std::to_string(file.modified) + " " +
            file.path + '\0';
  }
  return text;
}

struct ManifestEntry {
  std::string size;
  int64_t modified = 0;
  std::string path;
};

std::vector<ManifestEntry> read_manifest(const std::string& snapshot) {
  std::vector<ManifestEntry> entries;
  const auto text = read_file(snapshot + "/manifest", kManifestBytes);
  if (!text) return entries;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view row = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), row.size() + 1));
    const size_t first = row.find(' ');
    const size_t second = first == std::string_view::npos ? first : row.find(' ', first + 1);
    if (second == std::string_view::npos) break;
    const std::string_view path = row.substr(second + 1);
    int64_t time = 0;  // all 63 bits, which parse_integer has no use for
    const bool has_time =
        std::from_chars(row.data() + first + 1, row.data() + second, time).ptr == row.data() + second;
    const bool leads_out =
        path.starts_with('/') || path.starts_with("../") || path.find("/../") != std::string_view::npos;
    if (has_time && !path.empty() && !leads_out)
      entries.push_back({std::string(row.substr(0, first)), time, std::string(path)});
  }
  return entries;
}

// Whether it is still what was copied.
bool is_unchanged(const std::string& path, const ManifestEntry& entry) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return false;
  if (entry.size == "link") return S_ISLNK(found.st_mode);
  return S_ISREG(found.st_mode) && std::to_string(found.st_size) == entry.size &&
         int64_t{found.st_mtim.tv_sec} * kSecond.count() + found.st_mtim.tv_nsec == entry.modified;
}

// A copy of the same content exists: what jobs have changed in it comes back from the fresh one.
Result<void> put_back(const std::string& fresh, const std::string& snapshot) {
  for (const ManifestEntry& entry : read_manifest(fresh)) {
    const std::string place = snapshot + "/tree/" + entry.path;
    if (is_unchanged(place, entry)) continue;
    std::error_code failed;
    std::filesystem::create_directories(std::filesystem::path(place).parent_path(), failed);
    if (::rename((fresh + "/tree/" + entry.path).c_str(), place.c_str()) != 0)
      return fail(system_error("putting back " + in_quotes(place)));
  }
  return {};
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// The folder of the finished copy.
Result<std::string> copy_into_store(const SourceTree& tree, const std::string& store,
                                    const TreeBounds& bounds) {
  const std::string fresh = store + "/" + std::string(kUnfinished) + std::to_string(::getpid());
  remove_all(fresh);
  TRY(make_private_folder(fresh));
  auto finished = [&]() -> Result<std::string> {
    TRY_ASSIGN(const std::string digest, copy_tree(tree, fresh + "/tree", bounds));
    TRY(write_file_atomically(fresh + "/manifest", manifest_text(tree), 0600));
    TRY(make_private_folder(fresh + "/jobs"));
    const std::string snapshot = store + "/" + digest;
    if (::rename(fresh.c_str(), snapshot.c_str()) == 0) return snapshot;
    TRY(put_back(fresh, snapshot));
    // It may have been given up meanwhile, with only what jobs wrote left in it.
    TRY(write_file_atomically(snapshot + "/manifest", manifest_text(tree), 0600));
    TRY(make_private_folder(snapshot + "/jobs"));
    return snapshot;
  }();
  remove_all(fresh);
  return finished;
}

void warn_of_paths_into(Session& session, const std::string& root, const api::SubmitRequest& request) {
  for (const auto* words : {&request.argv, &request.script_args}) {
    for (const std::string& word : *words) {
      if (word.find(root + "/") == std::string::npos) continue;
      session.warn("the argument " + in_quotes(word) +
                   " leads to the original, not to its copy; write it relative to the working directory");
    }
  }
}

// "7-3" in jobs/: three jobs from number 7 on.
bool is_used(const std::string& snapshot, const std::set<uint64_t>& live) {
  for (const std::string& name : folder_names(snapshot + "/jobs")) {
    const size_t dash = name.find('-');
    const auto first = parse_integer(name.substr(0, dash), 1, INT64_MAX / 2, "a job");
    const auto count =
        parse_integer(dash == std::string::npos ? "" : name.substr(dash + 1), 1, INT64_MAX / 2, "a number");
    if (!first || !count) continue;
    const auto next = live.lower_bound(static_cast<uint64_t>(*first));
    if (next != live.end() && *next < static_cast<uint64_t>(*first + *count)) return true;
  }
  return false;
}

// What was copied goes; what jobs wrote beside it stays, and so does its folder.
void remove_snapshot(Session& session, const std::string& snapshot) {
  const std::string tree = snapshot + "/tree";
  std::set<std::string, std::greater<>> folders = {tree};  // deepest first
  for (const ManifestEntry& entry : read_manifest(snapshot)) {
    const std::string place = tree + "/" + entry.path;
    if (is_unchanged(place, entry)) ::unlink(place.c_str());
    for (std::string folder = place; folder.size() > tree.size();) {
      folder.resize(folder.rfind('/'));
      folders.insert(folder);
    }
  }
  for (const std::string& folder : folders) ::rmdir(folder.c_str());
  ::unlink((snapshot + "/manifest").c_str());
  ::unlink((snapshot + "/ended").c_str());
  remove_all(snapshot + "/jobs");
  if (::rmdir(snapshot.c_str()) == 0) return;
  session.warn("a snapshot whose jobs have ended was removed, but for what they wrote into it: " +
               in_quotes(tree));
}

void prune_one(Session& session, const std::string& snapshot, const std::set<uint64_t>& live) {
  const std::string mark = snapshot + "/ended";
  if (::access((snapshot + "/manifest").c_str(), F_OK) != 0) return;  // only what jobs wrote
  if (is_used(snapshot, live)) {
    ::unlink(mark.c_str());
    return;
  }
  struct stat found {};
  if (::lstat(mark.c_str(), &found) != 0) {
    const UniqueFd made(::open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    return;
  }
  const Time since(int64_t{found.st_mtim.tv_sec} * kSecond.count());
  if (session.setup().now - since >= kSnapshotKept) remove_snapshot(session, snapshot);
}

Result<void> prune(Session& session, Daemon& daemon, const std::string& store) {
  std::string target = "/v1/jobs";
  add_query(target, "user", session.user());
  TRY_ASSIGN(const FetchedJobs fetched, fetch_jobs(daemon, target, SIZE_MAX));
  std::set<uint64_t> live;
  for (const api::JobSummary& job : fetched.list.jobs) live.insert(job.job.value());
  TRY_ASSIGN(const UniqueFd lock, lock_store(store));
  for (const std::string& name : folder_names(store)) {
    if (name[0] != '.') prune_one(session, store + "/" + name, live);
  }
  return {};
}

}  // namespace

Result<void> take_snapshot(Session& session, api::SubmitRequest& request, const TreeBounds& bounds) {
  const std::string store = store_folder(session);
  TRY(make_private_folder(store));
  const std::string root = tree_root(request.directory);
  if (root == "/") {
    return invalid("--snapshot: " + in_quotes(root) + " is no source tree; go into the project's folder");
  }
  TRY_ASSIGN(const SourceTree tree, list_tree(root, store, bounds));
  if (!tree.unfit.empty()) {
    session.warn("--snapshot leaves out " + in_quotes(tree.unfit.front()) +
                 (tree.unfit.size() > 1 ? " and " + std::to_string(tree.unfit.size() - 1) + " more" : "") +
                 ": not a file");
  }
  warn_of_paths_into(session, root, request);
  TRY_ASSIGN(const UniqueFd lock, lock_store(store));
  TRY_ASSIGN(const std::string snapshot, copy_into_store(tree, store, bounds));
  ::unlink((snapshot + "/ended").c_str());
  const std::string inside = snapshot + "/tree" + request.directory.substr(root.size());
  // A folder without any file that is taken is still where the job runs.
  std::error_code failed;
  std::filesystem::create_directories(inside, failed);
  request.snapshot_of = request.directory;
  request.directory = inside;
  return {};
}

void keep_snapshot(Session& session, Daemon& daemon, const api::SubmitRequest& request,
                   const api::SubmitResponse& response) {
  const std::string store = store_folder(session);
  const std::string below = request.directory.substr(std::min(request.directory.size(), store.size() + 1));
  const std::string snapshot = store + "/" + below.substr(0, below.find('/'));
  const uint32_t count = response.array ? response.array->count : 1;
  const std::string name = std::to_string(response.job.value()) + "-" + std::to_string(count);
  const UniqueFd noted(::open((snapshot + "/jobs/" + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!noted.is_open()) session.warn("cannot note that the job uses " + in_quotes(snapshot));
  if (const auto pruned = prune(session, daemon, store); !pruned) session.warn(pruned.error().message());
}

}  // namespace tranche::cli
