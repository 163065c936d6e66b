// The files of a source tree that a snapshot takes, and their copying. Everything happens as the user who
// submits: what that user may not read is an error, and no other process follows these paths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::cli {

struct SourceFile {
  std::string path;  // relative to the root
  bool is_link = false;
  std::string target;  // of a link
  uint64_t bytes = 0;
  int64_t modified = 0;  // ns since the epoch
  uint32_t mode = 0;     // permissions
};

struct SourceTree {
  std::string root;                // absolute
  std::vector<SourceFile> files;   // sorted by path
  std::vector<std::string> unfit;  // sockets, FIFOs and devices, which are left out
};

struct TreeBounds {
  uint64_t bytes = uint64_t{256} << 20;
  size_t files = 20'000;
};

// The nearest folder at or above `directory` that has a .git, else `directory` itself.
std::string tree_root(const std::string& directory);

// What of `root` is taken: all but .git, what the .gitignore and .trancheignore files leave out, and `except`
// (an absolute path). too_large beyond the bounds, naming what is largest.
Result<SourceTree> list_tree(const std::string& root, const std::string& except, const TreeBounds& bounds);

// Copies the files into `target`, a new folder, without write permission, with their times; a relative link
// that leads out of the tree leads to the same file afterwards. Returns a digest of names, modes and contents
// as they were copied.
Result<std::string> copy_tree(const SourceTree& tree, const std::string& target, const TreeBounds& bounds);

}  // namespace tranche::cli
