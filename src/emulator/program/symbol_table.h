// Takes names out of the dynamic symbol table of a shared library, so that a function which a driver release
// lacks is not found by the dynamic loader, dlsym or nm.
//
// The rows stay where they are, since the loader's hash table counts them: a row that is taken out becomes an
// undefined symbol without a name, which no look-up can match. Nothing inside the library refers to its own
// exports by name (it is linked with -Bsymbolic-functions), so the code behind them is untouched.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

// `library` is a 64-bit ELF file in memory; `names` are sorted. Names that it does not have are ignored.
Result<void> remove_symbols(std::vector<char>& library, const std::vector<std::string_view>& names);

}  // namespace tranche::emulator
