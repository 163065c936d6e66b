#include "isolation/file.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/failpoint.h"

namespace tranche::isolation {

Failure system_failure(int error, std::string_view what) {
  const char* description = strerrordesc_np(error);
  return Failure{error == 0 ? EIO : error,
                 std::string(what) + ": " + (description != nullptr ? description : "unknown error")};
}

tl::unexpected<Failure> call_failed(std::string_view what) {
  return tl::unexpected<Failure>(system_failure(errno, what));
}

void FileDescriptor::close() {
  if (value_ >= 0) ::close(value_);
  value_ = -1;
}

Outcome<FileDescriptor> open_at(int folder, const char* name, int flags, unsigned mode) {
  FileDescriptor file(::openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file) return call_failed(name);
  return file;
}

Outcome<FileDescriptor> open_own_folder_at(int folder, const char* name) {
  TRY_ASSIGN(FileDescriptor opened, open_at(folder, name, O_RDONLY | O_DIRECTORY));
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) return call_failed(name);
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  const uid_t owner = ::geteuid();
  if (status.st_uid != owner || (others_write && (status.st_mode & S_ISVTX) == 0)) {
    const std::string whose = owner == 0 ? "root" : "you";
    return failed(EPERM, std::string(name) + " must belong to " + whose + " and be writable by " + whose +
                             " alone (or sticky)");
  }
  return opened;
}

Outcome<FileDescriptor> make_own_folder_at(int folder, const char* name, unsigned mode) {
  if (::mkdirat(folder, name, mode) != 0 && errno != EEXIST) return call_failed(name);
  return open_own_folder_at(folder, name);
}

Outcome<std::string> read_text_at(int folder, const char* name) {
  constexpr size_t kMaxSize = 64U << 10;
  TRY_ASSIGN(const FileDescriptor file, open_at(folder, name, O_RDONLY));
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxSize) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return call_failed(name);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

Outcome<void> write_text(int file, std::string_view text, std::string_view name_for_errors) {
  const ssize_t count = ::write(file, text.data(), text.size());
  if (count < 0) return call_failed(name_for_errors);
  if (static_cast<size_t>(count) != text.size())
    return failed(EIO, std::string(name_for_errors) + ": short write");
  return {};
}

Outcome<void> write_text_at(int folder, const char* name, std::string_view text) {
  TRY_ASSIGN(const FileDescriptor file, open_at(folder, name, O_WRONLY));
  return write_text(file.get(), text, name);
}

Outcome<void> replace_file_at(int folder, const char* name, std::string_view content, unsigned mode) {
  const std::string temporary = "." + std::string(name) + ".new";
  {
    TRY_ASSIGN(const FileDescriptor file,
               open_at(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, mode));
    failpoint("record.before_writing");
    TRY(write_text(file.get(), content, temporary));
    failpoint("record.written");
  }
  if (::renameat(folder, temporary.c_str(), folder, name) != 0) return call_failed(name);
  failpoint("record.in_place");
  return {};
}

void close_all_but(int* kept, unsigned count) {
  std::sort(kept, kept + count);
  unsigned next = 3;
  for (unsigned i = 0; i < count; ++i) {
    if (kept[i] < 3) continue;
    const auto file = static_cast<unsigned>(kept[i]);
    if (file > next) ::close_range(next, file - 1, 0);
    next = std::max(next, file + 1);
  }
  ::close_range(next, ~0U, 0);
}

unsigned long long value_of_key(std::string_view text, std::string_view key) {
  size_t line = 0;
  while (line < text.size()) {
    const size_t end = std::min(text.find('\n', line), text.size());
    const std::string_view row = text.substr(line, end - line);
    if (row.size() > key.size() && row.starts_with(key) && row[key.size()] == ' ') {
      unsigned long long value = 0;
      std::from_chars(row.data() + key.size() + 1, row.data() + row.size(), value);
      return value;
    }
    line = end + 1;
  }
  return 0;
}

}  // namespace tranche::isolation
