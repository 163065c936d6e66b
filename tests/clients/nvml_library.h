// The NVML library as a client loads it: by dlopen and names, with declarations of the test's own, so that
// a mistake in the emulator's header cannot hide itself.
#pragma once

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace tranche::clients {

// Codes that the tests name.
inline constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
                     kNoPermission = 4, kNotFound = 6, kInsufficientSize = 7, kTimeout = 10,
                     kVersionMismatch = 25;

using Handle = void*;

class NvmlLibrary {
 public:
  NvmlLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  bool is_loaded() const { return library_ != nullptr; }
  void* find(const std::string& name) const { return dlsym(library_, name.c_str()); }

  // Calls an exported function; a missing one ends the program, since the test is wrong then.
  template <class... Arguments>
  int call(const std::string& name, Arguments... arguments) const {
    void* address = find(name);
    if (address == nullptr) std::abort();
    return reinterpret_cast<int (*)(Arguments...)>(address)(arguments...);
  }

  // Names of all exported functions, from the library's dynamic symbol table.
  std::vector<std::string> exported() const {
    const link_map* map = nullptr;
    if (dlinfo(library_, RTLD_DI_LINKMAP, &map) != 0) return {};
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    const uint32_t* hash = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
    }
    if (symbols == nullptr || strings == nullptr || hash == nullptr) return {};
    std::vector<std::string> names;
    const uint32_t count = symbol_count(hash);
    for (uint32_t i = hash[1]; i < count; ++i) {
      if (symbols[i].st_shndx != SHN_UNDEF) names.emplace_back(strings + symbols[i].st_name);
    }
    return names;
  }

 private:
  // The GNU hash table says only where each bucket's chain begins; a chain ends at an odd hash.
  static uint32_t symbol_count(const uint32_t* hash) {
    const uint32_t buckets = hash[0], first = hash[1], bloom_words = hash[2];
    const uint32_t* bucket = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t* chain = bucket + buckets;
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
    if (last < first) return first;
    while ((chain[last - first] & 1) == 0) ++last;
    return last + 1;
  }

  void* library_;
};

}  // namespace tranche::clients
