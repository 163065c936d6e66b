#include "emulator/cuda/image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace tranche::emulator::cuda {
namespace {

constexpr std::array<unsigned char, 4> kElf{0x7F, 'E', 'L', 'F'};
constexpr uint32_t kFatbin = 0xBA55ED50;
constexpr uint32_t kFatbinWrapper = 0x466243B1;
constexpr size_t kBinaryBytes = size_t{256} << 10;  // chosen: what a binary of unknown size takes

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

// Splits PTX into names, directives, numbers and single punctuation marks; comments are skipped.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  // The next token, or an empty one at the end.
  std::string_view next() {
    skip();
    size_t length = 0;
    while (length < text_.size() && is_name(text_[length])) ++length;
    if (length == 0 && !text_.empty()) length = 1;
    const std::string_view token = text_.substr(0, length);
    text_.remove_prefix(length);
    return token;
  }

 private:
  void skip() {
    for (;;) {
      while (!text_.empty() && (text_.front() == ' ' || (text_.front() >= '\t' && text_.front() <= '\r'))) {
        text_.remove_prefix(1);
      }
      if (text_.starts_with("//"))
        text_.remove_prefix(std::min(text_.find('\n'), text_.size()));
      else if (text_.starts_with("/*"))
        text_.remove_prefix(std::min(text_.find("*/", 2), text_.size() - 2) + 2);
      else
        return;
    }
  }

  std::string_view text_;
};

// Bytes of one element of a PTX type: the digits of ".u32" over 8; 0 for what is not a type.
size_t type_bytes(std::string_view token) {
  const size_t digits = token.find_first_of("0123456789");
  if (digits == std::string_view::npos || !token.starts_with('.')) return 0;
  size_t bits = 0;
  std::from_chars(token.data() + digits, token.data() + token.size(), bits);
  return bits / 8;
}

size_t number_of(std::string_view token) {
  size_t value = 0;
  std::from_chars(token.data(), token.data() + token.size(), value);
  return value;
}

// After the name of an entry: its parameters in parentheses, each a type, a name and dimensions.
void read_parameters(Tokens& tokens, std::vector<size_t>& sizes) {
  std::string_view token = tokens.next();
  if (token != "(") return;
  size_t bytes = 0;
  for (token = tokens.next(); !token.empty() && token != ")"; token = tokens.next()) {
    if (token == ",") {
      sizes.push_back(bytes);
      bytes = 0;
    } else if (token == ".align") {
      tokens.next();
    } else if (token == "[") {
      bytes *= std::max<size_t>(number_of(tokens.next()), 1);
    } else if (token.starts_with('.')) {
      bytes = std::max(bytes, type_bytes(token));
    }
  }
  if (bytes > 0) sizes.push_back(bytes);
  constexpr size_t kSizeMax = 4096;  // of all parameters of a kernel
  for (size_t& size : sizes) size = std::min(size, kSizeMax);
}

// After ".global" or ".const": attributes, a type, a name, dimensions in brackets.
void read_global(Tokens& tokens, Image& image) {
  size_t bytes = 0;
  std::string_view token = tokens.next();
  for (; token.starts_with('.'); token = tokens.next()) {
    if (token == ".align")
      tokens.next();
    else
      bytes = std::max(bytes, type_bytes(token));
  }
  const std::string name(token);
  token = tokens.next();
  while (token == "[") {
    bytes *= std::max<size_t>(number_of(tokens.next()), 1);
    tokens.next();
    token = tokens.next();
  }
  if (!name.empty() && bytes > 0 && bytes <= kImageBytesMax) image.globals.emplace(name, bytes);
}

}  // namespace

Image parse_ptx(std::string_view text) {
  Image image;
  Tokens tokens(text);
  size_t depth = 0;  // inside a function's body
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == "{")
      ++depth;
    else if (token == "}" && depth > 0)
      --depth;
    else if (depth > 0)
      continue;
    else if (token == ".entry") {
      image.kernels.emplace_back(tokens.next());
      read_parameters(tokens, image.parameters[image.kernels.back()]);
    } else if (token == ".global" || token == ".const")
      read_global(tokens, image);
  }
  return image;
}

CUresult read_image(const void* code, std::shared_ptr<const Image>& image) {
  if (code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint32_t magic = 0;
  const size_t readable = strnlen(static_cast<const char*>(code), sizeof magic);
  if (readable == 0) return CUDA_ERROR_INVALID_IMAGE;
  std::memcpy(&magic, code, readable);  // a binary's magic has no zero byte either
  uint32_t elf = 0;
  std::memcpy(&elf, kElf.data(), sizeof elf);
  Image read;
  if (magic == elf || magic == kFatbin || magic == kFatbinWrapper) {
    read.any_name = true;
    read.bytes = kBinaryBytes;
  } else {
    const auto text = static_cast<const char*>(code);
    const size_t length = strnlen(text, kImageBytesMax);
    if (length == kImageBytesMax) return CUDA_ERROR_INVALID_IMAGE;
    const std::string_view ptx(text, length);
    if (ptx.find(".version") == std::string_view::npos) return CUDA_ERROR_INVALID_IMAGE;
    if (ptx.find(".target") == std::string_view::npos) return CUDA_ERROR_INVALID_PTX;
    read = parse_ptx(ptx);
    read.bytes = length;
  }
  image = std::make_shared<const Image>(std::move(read));
  return CUDA_SUCCESS;
}

CUresult read_image_file(const char* path, std::string& bytes) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  struct stat status;
  const bool fits = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                    static_cast<size_t>(status.st_size) < kImageBytesMax;
  if (fits) bytes.resize(static_cast<size_t>(status.st_size));
  const bool complete = fits && ::read(file, bytes.data(), bytes.size()) == status.st_size;
  close(file);
  return complete ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace tranche::emulator::cuda
