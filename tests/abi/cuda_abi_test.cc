// Compile-time test: our declarations of the driver API against one version of the vendor's cuda.h:
// signatures, the numbers of results, sizes of structures and offsets of their members. That it compiles is
// the test; it prints what it compared. Run with the header's folder in the include path and GENERATED made
// by cuda_abi_test.py.

#define __CUDA_API_VERSION_INTERNAL  // all versions of all functions, under their own names
#include <cuda.h>

#include <cstddef>
#include <cstdio>
#include <type_traits>

#include "emulator/cuda/checkpoint.h"
#include "emulator/cuda/graph_types.h"

namespace tranche::emulator::cuda {
#define DECLARE_ENTRIES
#include GENERATED
#undef DECLARE_ENTRIES
}  // namespace tranche::emulator::cuda

namespace ours = tranche::emulator::cuda;

namespace {

// Whether two types are passed alike: integers and enumerations of one size, structures of one size and
// alignment, pointers to alike types, where a pointer to void or to something incomplete is like any pointer.
template <class A, class B>
constexpr bool alike();

template <class T, class = void>
struct IsComplete : std::false_type {};
template <class T>
struct IsComplete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

template <class A, class B>
constexpr bool alike_pointees() {
  using X = std::remove_cv_t<A>;
  using Y = std::remove_cv_t<B>;
  if constexpr (std::is_void_v<X> || std::is_void_v<Y> || std::is_function_v<X> || std::is_function_v<Y>) {
    return true;
  } else if constexpr (!IsComplete<X>::value || !IsComplete<Y>::value) {
    return true;
  } else if constexpr (!std::is_scalar_v<X> && !std::is_scalar_v<Y>) {
    return sizeof(X) == sizeof(Y);  // the caller's memory is as aligned as the caller made it
  } else {
    return alike<X, Y>();
  }
}

template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return alike_pointees<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
  } else {
    const bool numbers =
        (std::is_integral_v<A> || std::is_enum_v<A>)&&(std::is_integral_v<B> || std::is_enum_v<B>);
    const bool reals = std::is_floating_point_v<A> && std::is_floating_point_v<B>;
    const bool structures =
        (std::is_class_v<A> || std::is_union_v<A>)&&(std::is_class_v<B> || std::is_union_v<B>);
    return (numbers || reals || structures) && sizeof(A) == sizeof(B) && alignof(A) == alignof(B);
  }
}

template <class A, class B>
struct AlikeFunctions : std::false_type {};
template <class R, class S, class... P, class... Q>
struct AlikeFunctions<R (*)(P...), S (*)(Q...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(P) != sizeof...(Q))
      return false;
    else
      return (alike<P, Q>() && ... && alike<R, S>());
  }();
};

#define CHECK_FUNCTION(name, vendor)                                               \
  static_assert(AlikeFunctions<decltype(&ours::name), decltype(&::vendor)>::value, \
                #name " differs from the header's");
#define CHECK_RESULT(name) static_assert(static_cast<int>(ours::name) == static_cast<int>(::name), #name);
#include GENERATED

int structures = 0;
#define CHECK_SIZE(type, vendor) static_assert(sizeof(ours::type) == sizeof(::vendor), #type)
#define CHECK_MEMBER(type, member, vendor, vendor_member) \
  static_assert(offsetof(ours::type, member) == offsetof(::vendor, vendor_member), #type "." #member)
#include "cuda_layouts.inc"

}  // namespace

int main() {
  std::printf("CUDA %d: %d functions as the header declares them; structures and results too\n", CUDA_VERSION,
              kFunctions);
  return structures;
}
