#include "emulator/program/symbol_table.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tranche::emulator {
namespace {

Error not_a_library() {
  return Error(ErrorCode::corrupt, "the emulated driver's library is not a 64-bit ELF file; build it again");
}

// A structure at `offset`, if the file has all of it.
template <class T>
std::optional<T> read_at(const std::vector<char>& file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::optional<Elf64_Shdr> section(const std::vector<char>& file, const Elf64_Ehdr& header, uint32_t index) {
  if (index >= header.e_shnum || header.e_shoff > file.size()) return std::nullopt;
  return read_at<Elf64_Shdr>(file, header.e_shoff + uint64_t{index} * sizeof(Elf64_Shdr));
}

std::optional<Elf64_Shdr> dynamic_symbols(const std::vector<char>& file, const Elf64_Ehdr& header) {
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    const auto found = section(file, header, i);
    if (found && found->sh_type == SHT_DYNSYM) return found;
  }
  return std::nullopt;
}

std::string_view name_at(const std::vector<char>& file, const Elf64_Shdr& strings, uint32_t offset) {
  if (offset >= strings.sh_size || strings.sh_offset > file.size() ||
      file.size() - strings.sh_offset < strings.sh_size) {
    return {};
  }
  const char* const text = file.data() + strings.sh_offset + offset;
  return {text, strnlen(text, strings.sh_size - offset)};
}

}  // namespace

Result<void> remove_symbols(std::vector<char>& library, const std::vector<std::string_view>& names) {
  const auto header = read_at<Elf64_Ehdr>(library, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64) {
    return fail(not_a_library());
  }
  const auto symbols = dynamic_symbols(library, *header);
  if (!symbols) return fail(not_a_library());
  const auto strings = section(library, *header, symbols->sh_link);
  if (!strings) return fail(not_a_library());
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols->sh_size; at += sizeof(Elf64_Sym)) {
    auto symbol = read_at<Elf64_Sym>(library, symbols->sh_offset + at);
    if (!symbol) return fail(not_a_library());
    if (symbol->st_shndx == SHN_UNDEF) continue;
    if (!std::binary_search(names.begin(), names.end(), name_at(library, *strings, symbol->st_name)))
      continue;
    *symbol = {};
    symbol->st_info = ELF64_ST_INFO(STB_WEAK, STT_NOTYPE);
    std::memcpy(library.data() + symbols->sh_offset + at, &*symbol, sizeof *symbol);
  }
  return {};
}

}  // namespace tranche::emulator
