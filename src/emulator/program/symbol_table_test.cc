#include "emulator/program/symbol_table.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "base/random.h"

namespace tranche::emulator {
namespace {

// A library that every test machine has: the C library's mathematics.
std::vector<char> mathematics() {
  Dl_info info;
  const auto function = reinterpret_cast<const void*>(dlsym(RTLD_DEFAULT, "cbrt"));
  if (function == nullptr || dladdr(function, &info) == 0) return {};
  std::vector<char> content;
  std::FILE* const file = std::fopen(info.dli_fname, "rb");
  if (file == nullptr) return {};
  for (int byte = std::fgetc(file); byte != EOF; byte = std::fgetc(file))
    content.push_back(static_cast<char>(byte));
  std::fclose(file);
  return content;
}

TEST(SymbolTableTest, ARemovedNameIsNotFoundAndAllOthersAre) {
  std::vector<char> library = mathematics();
  ASSERT_FALSE(library.empty()) << std::cbrt(8.0);
  ASSERT_TRUE(remove_symbols(library, {"cbrt", "no_such_function"}));
  std::string path = testing::TempDir() + "/tranche-libm-XXXXXX";
  const int file = mkstemp(path.data());
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, library.data(), library.size()), static_cast<ssize_t>(library.size()));
  close(file);
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  ASSERT_NE(loaded, nullptr) << dlerror();
  EXPECT_EQ(dlsym(loaded, "cbrt"), nullptr);
  const auto hypotenuse = reinterpret_cast<double (*)(double, double)>(dlsym(loaded, "hypot"));
  ASSERT_NE(hypotenuse, nullptr);
  EXPECT_EQ(hypotenuse(3, 4), 5);
  dlclose(loaded);
}

TEST(SymbolTableTest, WhatIsNotALibraryIsRefusedOrLeftAlone) {
  const std::vector<char> whole = mathematics();
  Random random(20261130);
  for (int round = 0; round < 200; ++round) {
    std::vector<char> library = whole;
    library.resize(random.below(library.size()));
    for (int i = 0; i < 20 && !library.empty(); ++i) {
      const uint64_t place = random.below(std::min<uint64_t>(library.size(), 64));
      if (round % 2 == 0) library[place] = static_cast<char>(random.below(256));
    }
    static_cast<void>(remove_symbols(library, {"cbrt"}));  // no bounds are passed: the sanitizers watch
  }
  std::vector<char> text{'t', 'e', 'x', 't'};
  EXPECT_FALSE(remove_symbols(text, {"cbrt"}));
}

}  // namespace
}  // namespace tranche::emulator
