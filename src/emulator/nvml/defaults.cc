// What every function answers that no other file defines: it exists, and no emulated GPU supports it. A
// program that looks it up finds it, as on a real server, and takes its path for boards without.
//
// The definitions are weak: another file's definition of the same function takes their place. This file is
// therefore compiled by itself also in unity builds.
#include <unistd.h>

#include <string_view>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

// Functions that change a GPU take root, which is looked at before whether the board can.
bool changes_a_gpu(std::string_view name) {
  for (const std::string_view verb :
       {"Set", "Clear", "Reset", "Freeze", "Create", "Modify", "Remove", "Lock"}) {
    if (name.substr(std::string_view("nvmlDevice").size(), verb.size()) == verb) return true;
  }
  return false;
}

template <class... Arguments>
Return refuse(std::string_view, Arguments...) {
  return with_session([](const Session&) { return Return::not_supported; });
}

template <class... Arguments>
Return refuse(std::string_view name, Device* device, Arguments...) {
  return with_gpu(device, [&](const Gpu&) {
    return changes_a_gpu(name) && geteuid() != 0 ? Return::no_permission : Return::not_supported;
  });
}

}  // namespace

// X(name, A, B) -> the function name(A a, B b), by the number of its parameters.
#define DEFAULT_OF(name, parameters, ...)                                          \
  extern "C" __attribute__((weak, visibility("default"))) Return name parameters { \
    return refuse(#name __VA_OPT__(, ) __VA_ARGS__);                               \
  }
#define DEFAULT_0(name) DEFAULT_OF(name, (), )
#define DEFAULT_1(name, A) DEFAULT_OF(name, (A a), a)
#define DEFAULT_2(name, A, B) DEFAULT_OF(name, (A a, B b), a, b)
#define DEFAULT_3(name, A, B, C) DEFAULT_OF(name, (A a, B b, C c), a, b, c)
#define DEFAULT_4(name, A, B, C, D) DEFAULT_OF(name, (A a, B b, C c, D d), a, b, c, d)
#define DEFAULT_5(name, A, B, C, D, E) DEFAULT_OF(name, (A a, B b, C c, D d, E e), a, b, c, d, e)
#define DEFAULT_6(name, A, B, C, D, E, F) DEFAULT_OF(name, (A a, B b, C c, D d, E e, F f), a, b, c, d, e, f)
#define PICK(name, a, b, c, d, e, f, chosen, ...) chosen
#define X(...)                                                                                           \
  PICK(__VA_ARGS__, DEFAULT_6, DEFAULT_5, DEFAULT_4, DEFAULT_3, DEFAULT_2, DEFAULT_1, DEFAULT_0, unused) \
  (__VA_ARGS__)
#include "emulator/nvml/functions.inc"
#undef X

}  // namespace tranche::emulator::nvml
