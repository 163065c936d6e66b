#include "cli/source_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>

#include "base/quantity_text.h"
#include "base/state_hash.h"
#include "cli/ignore_rules.h"
#include "cli/text.h"
#include "linux/files.h"
#include "linux/system_error.h"
#include "linux/unique_fd.h"

namespace tranche::cli {
namespace {

constexpr size_t kIgnoreFileBytes = size_t{1} << 20;
constexpr int kDepthMax = 64;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * kSecond.count() + time.tv_nsec; }

Result<std::vector<std::string>> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  if (!open) return fail(system_error("reading the folder " + in_quotes(folder)));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// One walk through a tree.
class Walk {
 public:
  Walk(SourceTree& tree, std::string except, const TreeBounds& bounds)
      : tree_(tree), except_(std::move(except)), bounds_(bounds) {}

  // `folder` relative to the root; "" is the root.
  Result<void> enter(const std::string& folder, int depth) {
    if (depth > kDepthMax) {
      return fail(ErrorCode::too_large, "the folders under " + in_quotes(folder) + " are nested too deep");
    }
    const std::string base = tree_.root + (folder.empty() ? "" : "/" + folder);
    for (const char* name : {".gitignore", ".trancheignore"}) {
      if (const auto text = read_file(base + "/" + name, kIgnoreFileBytes)) rules_.add(folder, *text);
    }
    TRY_ASSIGN(const std::vector<std::string> names, names_in(base));
    for (const std::string& name : names) TRY(take(folder.empty() ? name : folder + "/" + name, depth));
    return {};
  }

 private:
  Result<void> take(const std::string& path, int depth) {
    const std::string whole = tree_.root + "/" + path;
    struct stat found {};
    if (::lstat(whole.c_str(), &found) != 0) {
      if (errno == ENOENT) return {};  // a temporary file of an editor
      return fail(system_error("looking at " + in_quotes(whole)));
    }
    const bool is_folder = S_ISDIR(found.st_mode);
    const bool is_git = path == ".git" || path.ends_with("/.git");
    if (is_git || whole == except_ || rules_.ignores(path, is_folder)) return {};
    if (is_folder) return enter(path, depth + 1);
    SourceFile file{path, S_ISLNK(found.st_mode), "", 0, nanoseconds(found.st_mtim), found.st_mode & 0777};
    if (file.is_link) {
      TRY_ASSIGN(file.target, link_target(whole));
    } else if (S_ISREG(found.st_mode)) {
      file.bytes = static_cast<uint64_t>(found.st_size);
    } else {
      tree_.unfit.push_back(path);
      return {};
    }
    bytes_ += file.bytes;
    by_entry_[path.substr(0, path.find('/'))] += file.bytes;
    tree_.files.push_back(std::move(file));
    if (bytes_ > bounds_.bytes || tree_.files.size() > bounds_.files) return too_large();
    return {};
  }

  static Result<std::string> link_target(const std::string& path) {
    std::array<char, 4096> target{};
    const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
    if (size < 0) return fail(system_error("reading the link " + in_quotes(path)));
    return std::string(target.data(), static_cast<size_t>(size));
  }

  Result<void> too_large() const {
    const auto largest = std::max_element(by_entry_.begin(), by_entry_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    return fail(ErrorCode::too_large, "--snapshot: the tree " + in_quotes(tree_.root) + " has more than " +
                                          std::to_string(bounds_.files) + " files or " +
                                          format_memory(MiB(static_cast<int64_t>(bounds_.bytes >> 20))) +
                                          "; the largest part so far is " + in_quotes(largest->first) +
                                          ": leave data out with a .trancheignore file, as in .gitignore");
  }

  SourceTree& tree_;
  const std::string except_;
  const TreeBounds& bounds_;
  IgnoreRules rules_;
  uint64_t bytes_ = 0;
  std::map<std::string, uint64_t> by_entry_;
};

Result<void> make_folders(const std::string& target, const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = target + "/" + path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return fail(system_error("making the folder " + in_quotes(folder)));
    }
  }
  return {};
}

// A relative link keeps its meaning: within the tree as it is, out of it by its absolute place.
std::string copied_target(const SourceTree& tree, const SourceFile& link) {
  if (link.target.starts_with('/')) return link.target;
  const size_t slash = link.path.rfind('/');
  std::vector<std::string> parts = split(slash == std::string::npos ? "" : link.path.substr(0, slash), '/');
  for (const std::string& part : split(link.target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
      continue;
    }
    while (!parts.empty() && parts.back().empty()) parts.pop_back();
    if (parts.empty()) {
      return tree.root + "/" + (slash == std::string::npos ? "" : link.path.substr(0, slash + 1)) +
             link.target;
    }
    parts.pop_back();
  }
  return link.target;
}

Result<void> copy_file(const SourceFile& file, const std::string& from, const std::string& to, uint64_t& left,
                       StateHash& hash) {
  // What became a FIFO meanwhile must not hold us up.
  const UniqueFd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!source.is_open()) return fail(system_error("reading " + in_quotes(from)));
  const UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!target.is_open()) return fail(system_error("writing " + in_quotes(to)));
  std::string block(size_t{256} << 10, '\0');
  while (true) {
    const ssize_t size = ::read(source.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail(system_error("reading " + in_quotes(from)));
    if (size == 0) break;
    const std::string_view piece(block.data(), static_cast<size_t>(size));
    if (piece.size() > left) return fail(ErrorCode::too_large, in_quotes(from) + " grew while it was copied");
    left -= piece.size();
    hash.add(piece);
    TRY(write_all(target.get(), piece));
  }
  const timespec modified = {file.modified / kSecond.count(), file.modified % kSecond.count()};
  const std::array<timespec, 2> times = {modified, modified};
  ::futimens(target.get(), times.data());
  if (::fchmod(target.get(), (file.mode | 0400) & 0555) != 0)
    return fail(system_error("writing " + in_quotes(to)));
  return {};
}

}  // namespace

std::string tree_root(const std::string& directory) {
  std::string folder = directory;
  while (true) {
    struct stat found {};
    if (::lstat((folder + "/.git").c_str(), &found) == 0) return folder.empty() ? "/" : folder;
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos || folder.size() <= 1) return directory;
    folder.resize(slash);
  }
}

Result<SourceTree> list_tree(const std::string& root, const std::string& except, const TreeBounds& bounds) {
  SourceTree tree;
  tree.root = root;
  TRY(Walk(tree, except, bounds).enter("", 0));
  std::sort(tree.files.begin(), tree.files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

Result<std::string> copy_tree(const SourceTree& tree, const std::string& target, const TreeBounds& bounds) {
  if (::mkdir(target.c_str(), 0700) != 0) return fail(system_error("making " + in_quotes(target)));
  StateHash hash;
  hash.add(std::string_view(tree.root));
  uint64_t left = bounds.bytes;
  for (const SourceFile& file : tree.files) {
    TRY(make_folders(target, file.path));
    const std::string to = target + "/" + file.path;
    hash.add(std::string_view(file.path));
    hash.add(uint64_t{file.mode});
    if (file.is_link) {
      const std::string leads_to = copied_target(tree, file);
      hash.add(std::string_view(leads_to));
      if (::symlink(leads_to.c_str(), to.c_str()) != 0)
        return fail(system_error("making the link " + in_quotes(to)));
      continue;
    }
    TRY(copy_file(file, tree.root + "/" + file.path, to, left, hash));
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash.digest()));
  return std::string(text.data());
}

}  // namespace tranche::cli
