// Files as root must handle them: by descriptor of the folder, never following a link in the last component.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>

#include "isolation/failure.h"

namespace tranche::isolation {

// Owns one file descriptor; -1 is none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  void close();
  int release() { return std::exchange(value_, -1); }

 private:
  int value_ = -1;
};

// openat with O_CLOEXEC|O_NOFOLLOW added; `mode` counts with O_CREAT.
Outcome<FileDescriptor> open_at(int folder, const char* name, int flags, unsigned mode = 0);
// Opens a folder that must belong to who runs this (root; in personal mode the user) and that no one else can
// replace entries of: not writable by group or others unless sticky.
Outcome<FileDescriptor> open_own_folder_at(int folder, const char* name);
// The same, made first with `mode` if it does not exist.
Outcome<FileDescriptor> make_own_folder_at(int folder, const char* name, unsigned mode);

// Whole content of a small kernel or status file (at most 64 KiB).
Outcome<std::string> read_text_at(int folder, const char* name);
// One write(2) of `text`, as files of cgroupfs and procfs want it.
Outcome<void> write_text_at(int folder, const char* name, std::string_view text);
Outcome<void> write_text(int file, std::string_view text, std::string_view name_for_errors);

// Writes `content` beside `name` and renames it into place, so that a reader sees the old or the new.
Outcome<void> replace_file_at(int folder, const char* name, std::string_view content, unsigned mode);

// Makes `kept` the only descriptors above 2 (others are closed). `kept` is sorted by this call.
void close_all_but(int* kept, unsigned count);

// The integer at the start of `text` after `key` and blanks on a line of its own ("oom_kill 3"), or 0.
unsigned long long value_of_key(std::string_view text, std::string_view key);

}  // namespace tranche::isolation
