// Owner of one file descriptor: closed when the owner goes.
#pragma once

#include <unistd.h>

#include <utility>

namespace tranche {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int file_descriptor) : file_descriptor_(file_descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : file_descriptor_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return file_descriptor_; }
  bool is_open() const { return file_descriptor_ >= 0; }
  // Gives the descriptor to the caller, who closes it.
  [[nodiscard]] int release() { return std::exchange(file_descriptor_, -1); }
  // Closes what is held and holds `file_descriptor` instead. Keeps errno, so that it may run while an error
  // is built.
  void reset(int file_descriptor = -1);

 private:
  int file_descriptor_ = -1;
};

}  // namespace tranche
