// Holds our declarations of NVML against the vendor's header of one version (compiled once for each that
// ./setup has fetched): every function of functions.inc that the header knows has the same parameters, and
// every structure and number of nvml_abi.h is the same. All of it happens when this compiles; running it says
// how much was held.
//
// The header is included inside a namespace whose outer one declares every name as Absent: what the version
// lacks is found there, and skipped.
#include "emulator/nvml/nvml_abi.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <type_traits>

#include "emulator/board.h"
#include "emulator/nvml/nvml_requests.h"

namespace tranche::emulator::nvml {

namespace fallback {

struct Absent {};

#define X(name, ...) extern Absent name;
#include "emulator/nvml/functions.inc"
#undef X
#define X(ours, theirs) using theirs = Absent;
#include "emulator/nvml/structures.inc"
#undef X

namespace vendor {

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include NVML_HEADER

// How our structure and the header's of one function belong together.
enum class Match {
  same,
  beginning,  // the header declares the first form with the newest structure, of which it fills the beginning
  several     // the structure says which of several versions it is, or how long it is
};

constexpr Match match_of(std::string_view name) {
  for (const std::string_view first : {"nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2",
                                       "nvmlDeviceGetNvLinkRemotePciInfo", "nvmlEventSetWait"}) {
    if (name == first) return Match::beginning;
  }
  if (name == "nvmlGpmMetricsGet" || name == "nvmlDeviceGetGpuFabricInfoV") return Match::several;
  return Match::same;
}

template <class T>
concept Complete = requires {
  sizeof(T);
};

// Whether a call compiled for `Theirs` reaches a function that was written for `Ours`.
template <class Ours, class Theirs, Match match>
constexpr bool is_same_parameter() {
  if constexpr (std::is_pointer_v<Ours> != std::is_pointer_v<Theirs>) {
    return false;
  } else if constexpr (std::is_pointer_v<Ours>) {
    using OurTarget = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using TheirTarget = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    if constexpr (std::is_void_v<OurTarget>)
      return true;  // not looked into
    else if constexpr (std::is_pointer_v<OurTarget> || std::is_pointer_v<TheirTarget>)
      return is_same_parameter<OurTarget, TheirTarget, match>();
    else if constexpr (Complete<OurTarget> != Complete<TheirTarget>)
      return false;
    else if constexpr (Complete<OurTarget>)
      return match == Match::several ||
             (match == Match::beginning
                  ? sizeof(OurTarget) < sizeof(TheirTarget)
                  : sizeof(OurTarget) == sizeof(TheirTarget) && alignof(OurTarget) == alignof(TheirTarget));
    else
      return true;  // a handle
  } else {
    constexpr bool is_number = (std::is_integral_v<Ours> ||
                                std::is_enum_v<Ours>)&&(std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
    return is_number && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class... Parameters>
struct Signature {
  template <class Theirs>
  struct Held;
  template <class Result, class... TheirParameters>
  struct Held<Result(TheirParameters...)> {
    template <Match match>
    static constexpr bool same() {
      if constexpr (sizeof...(Parameters) != sizeof...(TheirParameters))
        return false;
      else
        return sizeof(Result) == sizeof(Return) &&
               (true && ... && is_same_parameter<Parameters, TheirParameters, match>());
    }
  };
};

template <class Ours, class Theirs, Match match>
constexpr int held_function() {
  if constexpr (std::is_same_v<Theirs, Absent>)
    return 0;
  else {
    static_assert(Ours::template Held<Theirs>::template same<match>(),
                  "a function's parameters are not the vendor's");
    return 1;
  }
}

constexpr int kFunctions = 0
#define X(name, ...) +held_function<Signature<__VA_ARGS__>, decltype(name), match_of(#name)>()
#include "emulator/nvml/functions.inc"
#undef X
    ;

template <class Ours, class Theirs>
constexpr int held_structure() {
  if constexpr (std::is_same_v<Theirs, Absent>)
    return 0;
  else {
    static_assert(sizeof(Ours) == sizeof(Theirs), "a structure's size is not the vendor's");
    return 1;
  }
}

constexpr int kStructures = 0
#define X(ours, theirs) +held_structure<ours, theirs>()
#include "emulator/nvml/structures.inc"
#undef X
    ;

#define M(ours, member, theirs, their_member)                           \
  static_assert(                                                        \
      []<class T>(T*) {                                                 \
        if constexpr (std::is_same_v<T, Absent>)                        \
          return true;                                                  \
        else                                                            \
          return offsetof(ours, member) == offsetof(T, their_member) && \
                 sizeof(ours::member) == sizeof(T::their_member);       \
      }(static_cast<theirs*>(nullptr)),                                 \
      #theirs "::" #their_member);
#include "emulator/nvml/members.inc"
#undef M

#define V(ours, theirs) static_assert(static_cast<uint64_t>(ours) == static_cast<uint64_t>(theirs), #theirs);
#include "emulator/nvml/values.inc"
#undef V

}  // namespace vendor
}  // namespace fallback
}  // namespace tranche::emulator::nvml

int main() {
  using namespace tranche::emulator::nvml::fallback::vendor;
  std::printf("held against %s: %d functions, %d structures\n", NVML_HEADER_NAME, kFunctions, kStructures);
  return kFunctions > 300 && kStructures > 20 ? 0 : 1;
}
