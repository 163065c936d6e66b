#include "launcher/launch_block.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "wire/launcher.h"

namespace tranche::launcher {
namespace {

using isolation::failed;
using isolation::Outcome;

// Walks the strings; every step is checked against what is left.
class Reader {
 public:
  Reader(char* begin, size_t size) : next_(begin), left_(size) {}

  // The next string, NUL-terminated in place; nullptr if the block does not hold one.
  char* take(size_t longest) {
    uint32_t length = 0;
    if (left_ < sizeof length + 1) return nullptr;
    std::memcpy(&length, next_, sizeof length);
    if (length > longest || length > left_ - sizeof length - 1) return nullptr;
    char* text = next_ + sizeof length;
    if (text[length] != '\0' || std::memchr(text, '\0', length) != nullptr) return nullptr;
    next_ = text + length + 1;
    left_ -= sizeof length + length + 1;
    return text;
  }
  size_t left() const { return left_; }

 private:
  char* next_;
  size_t left_;
};

Outcome<wire::LaunchBlockHeader> read_header(const std::vector<char>& bytes) {
  wire::LaunchBlockHeader header{};
  if (bytes.size() < sizeof header) return failed(EINVAL, "launch block: too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != wire::kLaunchBlockMagic) return failed(EINVAL, "launch block: not one");
  if (header.version == 0) return failed(EINVAL, "launch block: version 0");
  if (header.header_size < sizeof header || header.header_size > bytes.size()) {
    return failed(EINVAL, "launch block: wrong header size");
  }
  if (header.total_size != bytes.size()) return failed(EINVAL, "launch block: size does not match");
  if (header.umask > 0777) return failed(EINVAL, "launch block: umask above 0777");
  if (header.argument_count == 0) return failed(EINVAL, "launch block: no command");
  if (header.argument_count > wire::kMaxArguments) return failed(E2BIG, "launch block: too many arguments");
  if (header.variable_count > wire::kMaxVariables) return failed(E2BIG, "launch block: too many variables");
  return header;
}

bool take_all(Reader& reader, uint32_t count, std::vector<char*>& strings) {
  for (uint32_t i = 0; i < count; ++i) {
    char* text = reader.take(wire::kMaxLaunchBlock);
    if (text == nullptr) return false;
    strings.push_back(text);
  }
  strings.push_back(nullptr);
  return true;
}

}  // namespace

Outcome<void> check_seals(int memory_file) {
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int seals = ::fcntl(memory_file, F_GET_SEALS);
  if (seals < 0 || (seals & kNeeded) != kNeeded)
    return failed(EINVAL, "the launch block must be a sealed memfd");
  struct stat status {};
  if (::fstat(memory_file, &status) != 0) return isolation::call_failed("launch block");
  if (!S_ISREG(status.st_mode) || status.st_size <= 0) return failed(EINVAL, "launch block: empty");
  if (status.st_size > static_cast<off_t>(wire::kMaxLaunchBlock)) {
    return failed(E2BIG, "command and environment are larger than 4 MiB; export less (--export)");
  }
  return {};
}

Outcome<LaunchBlock> read_launch_block(int memory_file) {
  TRY(check_seals(memory_file));
  struct stat status {};
  if (::fstat(memory_file, &status) != 0) return isolation::call_failed("launch block");
  std::vector<char> bytes(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(memory_file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return failed(EIO, "launch block: cannot be read");
    done += static_cast<size_t>(count);
  }
  return decode_launch_block(std::move(bytes));
}

Outcome<LaunchBlock> decode_launch_block(std::vector<char> bytes) {
  TRY_ASSIGN(const wire::LaunchBlockHeader header, read_header(bytes));
  LaunchBlock block;
  block.storage = std::move(bytes);
  block.umask = header.umask;
  Reader reader(block.storage.data() + header.header_size, block.storage.size() - header.header_size);
  const char* paths[4];
  for (const char*& path : paths) {
    path = reader.take(wire::kMaxPath - 1);
    if (path == nullptr) return failed(EINVAL, "launch block: a path is missing, too long or malformed");
  }
  block.directory = paths[0];
  if (block.directory[0] != '/') return failed(EINVAL, "the working directory must be an absolute path");
  block.stdin_path = paths[1];
  block.stdout_path = paths[2];
  block.stderr_path = paths[3];
  if (!take_all(reader, header.argument_count, block.arguments) ||
      !take_all(reader, header.variable_count, block.variables)) {
    return failed(EINVAL, "launch block: an argument or variable is missing or malformed");
  }
  if (reader.left() != 0) return failed(EINVAL, "launch block: bytes after the last variable");
  if (block.arguments[0][0] == '\0') return failed(EINVAL, "the command is empty");
  return block;
}

}  // namespace tranche::launcher
