// Identifiers that cannot be mistaken for one another. Zero is "none"; real ones start at 1 and are
// never reused (design section 13), except GpuId and NodeId, which name a device of the running log.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace tranche {

template <class Kind, class Representation = uint64_t>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Representation value) : value_(value) {}

  constexpr Representation value() const { return value_; }
  constexpr bool is_set() const { return value_ != 0; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  Representation value_ = 0;
};

using JobId = Id<struct JobKind>;
using ArrayId = Id<struct ArrayKind>;   // the job id of an array's first element
using EventSeq = Id<struct EventKind>;  // position in the event log
using ReservationId = Id<struct ReservationKind>;
using NodeId = Id<struct NodeKind, uint32_t>;  // given by NodeAdded
using GpuId = Id<struct GpuKind, uint32_t>;    // given by GpuAdded, which also tells its UUID

}  // namespace tranche

template <class Kind, class Representation>
struct std::hash<tranche::Id<Kind, Representation>> {
  size_t operator()(tranche::Id<Kind, Representation> id) const noexcept {
    return std::hash<Representation>()(id.value());
  }
};
