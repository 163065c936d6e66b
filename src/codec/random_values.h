// Tests only: random values of every described struct, within the bounds that its description gives.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "codec/api_fields.h"
#include "codec/event_fields.h"
#include "codec/event_json.h"

namespace tranche::json {

class RandomFiller {
 public:
  explicit RandomFiller(uint64_t seed) : random(seed) {}

  template <class Type>
  Type make() {
    Type value{};
    fill(value, kPlain);
    return value;
  }

  template <class Type>
  void fill(Type& value, const Plain&) {
    if constexpr (std::is_same_v<Type, bool>) {
      value = random.chance(1, 2);
    } else if constexpr (std::is_enum_v<Type>) {
      value = static_cast<Type>(random.below(detail::enum_texts<Type>().size()));
    } else {
      fill_object(value);
      repair(value);
    }
  }
  void fill(ClassPolicies& classes, const Plain&) {
    for (ClassPolicy& one : classes) fill(one, kPlain);
  }
  void fill(api::TaskCount& count, const Plain&) {
    count.min = static_cast<uint32_t>(random.between(1, 10));
    count.max = count.min + static_cast<uint32_t>(random.below(3));
  }
  template <class Type>
  void fill(Type& value, const Range& rule) {
    const int64_t number = between(rule.low, rule.high);
    if constexpr (std::is_integral_v<Type>)
      value = static_cast<Type>(number);
    else if constexpr (requires { value.count(); })
      value = Type(number);
    else
      value = Type(static_cast<decltype(value.value())>(number));
  }
  void fill(std::string& value, const Text& rule) {
    static constexpr std::string_view kPieces[] = {
        "a", "Z", "0", "-", "/", "\"", "\\", " ", "\xC3\xA9", "\xE6\xBC\xA2", "\xF0\x9F\x92\xA1"};
    value.clear();
    const uint64_t pieces = rule.bytes_min + random.below(12);
    for (uint64_t i = 0; i < pieces; ++i) {
      const bool odd = rule.content == Content::anything && random.chance(1, 8);
      const std::string_view piece = odd ? std::string_view("\n") : kPieces[random.below(std::size(kPieces))];
      if (value.size() + piece.size() <= rule.bytes_max) value += piece;
    }
  }
  template <class Element, class Rule>
  void fill(std::vector<Element>& values, const List<Rule>& rule) {
    values.clear();
    const uint64_t count = random.below(std::min<uint64_t>(rule.count_max, 5));
    for (uint64_t i = 0; i < count; ++i) fill(values.emplace_back(), rule.element);
  }
  void fill(std::vector<std::pair<std::string, std::string>>& values, const Map& rule) {
    values.clear();
    for (uint64_t i = 0, count = random.below(5); i < count; ++i) {
      std::string text;
      fill(text, rule.value);
      values.emplace_back("NAME_" + std::to_string(i), text);
    }
  }
  void fill(Time& value, const Timestamp&) {
    value = random.chance(1, 20) ? kNever : Time(random.between(1, kLastSpelt.nanoseconds() - 1));
  }
  void fill(Duration& value, const DurationText& rule) { value = Duration(between(rule.low, rule.high)); }
  void fill(uint64_t& value, const Hex64&) { value = random.next(); }

  // Bounds themselves often, small numbers often.
  int64_t between(int64_t low, int64_t high) {
    switch (random.below(8)) {
      case 0:
        return low;
      case 1:
        return high;
      case 2:
      case 3:
      case 4:
        return std::min(high, std::max(low, int64_t{0}) + static_cast<int64_t>(random.below(50)));
      default:
        break;
    }
    if (low == INT64_MIN || high - 1 > INT64_MAX + std::min(low, int64_t{0}))
      return static_cast<int64_t>(random.next() >> 1);
    return random.between(low, high);
  }

  // Combinations that check_decoded() refuses are made good.
  template <class Type>
  void repair(Type&) {}
  void repair(ArraySpec& array) {
    std::sort(array.indices.begin(), array.indices.end());
    array.indices.erase(std::unique(array.indices.begin(), array.indices.end()), array.indices.end());
    if (array.indices.empty()) array.running_max = 0;
  }
  void repair(Policy& policy) {
    const auto by_path = [](const QueuePolicy& a, const QueuePolicy& b) { return a.path < b.path; };
    const auto same = [](const QueuePolicy& a, const QueuePolicy& b) { return a.path == b.path; };
    std::sort(policy.queues.begin(), policy.queues.end(), by_path);
    policy.queues.erase(std::unique(policy.queues.begin(), policy.queues.end(), same), policy.queues.end());
  }
  void repair(JobSpec& spec) {
    if (spec.tasks_min > spec.tasks_max) std::swap(spec.tasks_min, spec.tasks_max);
    spec.groups_min = 0;
    if (spec.groups.empty()) return;
    spec.tasks_max = 0;
    for (size_t i = 0; i < spec.groups.size(); ++i) {
      TaskGroup& group = spec.groups[i];
      // One group of groups at most, so that every tree is a valid one.
      const bool holds_others = i == 0 && spec.groups.size() > 1;
      group.parent = i > 0 && random.chance(1, 2) ? 1 : 0;
      if (i == 1) group.parent = 1;
      group.groups_min = holds_others ? 1 : 0;
      group.tasks_max = holds_others ? 0 : 1 + group.tasks_max % 1000;
      group.tasks_min = std::min(std::max(group.tasks_min, 1u), group.tasks_max);
      spec.tasks_max += group.tasks_max;
    }
    const std::vector<bool> none(spec.tasks_max);
    spec.tasks_min = static_cast<uint32_t>(TaskGroups(spec).missing(none).size());
  }
  void repair(End& end) {
    while (!is_final(end.state)) fill(end.state, kPlain);
  }
  void repair(api::SubmitRequest& request) {
    if (request.script)
      request.argv.clear();
    else
      request.script_args.clear();
    if (!request.script) request.argv.insert(request.argv.begin(), "/bin/true");
    request.directory = "/home/" + request.directory;
    if (request.array && request.array->indices.empty()) request.array.reset();
    if (request.snapshot_of) request.snapshot_of = "/home/" + *request.snapshot_of;
    if (!request.sweep.empty()) {
      request.sweep = {{"lr", {"0.1", "1e-3"}}, {"seed", {"1", "2", "3"}}};
      request.array = ArraySpec{{1, 2, 3, 4, 5, 6}, 0};
    }
    request.elastic = request.elastic && request.tasks && request.tasks->max > request.tasks->min;
    if (!request.gpu) return;
    GpuRequest& gpu = *request.gpu;
    gpu.count = std::max(gpu.count, 1u);
    if (gpu.kind != SliceKind::whole || gpu.count_max < gpu.count ||
        (request.tasks && request.tasks->max > 1))
      gpu.count_max = 0;
    if (gpu.kind != SliceKind::whole) gpu.topology = GpuTopology::any;
    if (gpu.kind == SliceKind::mig) gpu.kind = SliceKind::whole;
    const bool may_burst = gpu.kind == SliceKind::fraction && gpu.memory.count() > 0;
    if (!may_burst || gpu.memory_limit < gpu.memory) gpu.memory_limit = MiB{};
    if (gpu.kind == SliceKind::whole)
      gpu.compute = MilliGpu{}, gpu.memory = MiB{};
    else
      gpu.compute = std::max(gpu.compute, MilliGpu(1));
  }
  void repair(api::GpuStatus&) {}
  void repair(api::ExecRequest& request) {
    request.argv.insert(request.argv.begin(), "/bin/true");
    if (request.directory) request.directory = "/home/" + *request.directory;
  }
  void repair(api::NotifyRequest& request) { request.events.push_back(api::NoticeKind::ended); }
  void repair(api::UpdateRequest& request) {
    if (!request.gpu_memory || request.gpu_memory_limit < request.gpu_memory)
      request.gpu_memory_limit.reset();
    if (request == api::UpdateRequest()) request.first = true;
  }

  template <class Type>
  void fill_object(Type& value);

  template <class Variant>
  Variant make_alternative() {
    return make_alternative<Variant>(std::make_index_sequence<std::variant_size_v<Variant>>());
  }

  Random random;

 private:
  template <class Variant, size_t... kIndex>
  Variant make_alternative(std::index_sequence<kIndex...>) {
    const size_t wanted = random.below(sizeof...(kIndex));
    Variant out;
    ((kIndex == wanted ? void(out = make<std::variant_alternative_t<kIndex, Variant>>()) : void()), ...);
    return out;
  }
};

template <class Object>
class FieldFiller {
 public:
  FieldFiller(RandomFiller& filler, Object& object) : filler_(filler), object_(object) {}

  template <class Member, class Base, class Rule = Plain>
  void required(std::string_view, Member Base::*member, const Rule& rule = {}) {
    put(object_.*member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void defaulted(std::string_view, Member Base::*member, const Rule& rule = {}) {
    put(object_.*member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void optional(std::string_view, Member Base::*member, const Rule& rule = {}) {
    object_.*member = Member{};
    if (filler_.random.chance(2, 3)) put(object_.*member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void when(std::string_view, bool Base::*present, Member Base::*member, const Rule& rule = {}) {
    object_.*present = filler_.random.chance(1, 2);
    if (object_.*present) put(object_.*member, rule);
  }

 private:
  template <class Member, class Rule>
  void put(Member& value, const Rule& rule) {
    if constexpr (IsOptional<Member>::value) {
      if (filler_.random.chance(1, 2)) filler_.fill(value.emplace(), rule);
    } else {
      filler_.fill(value, rule);
    }
  }

  RandomFiller& filler_;
  Object& object_;
};

template <class Type>
void RandomFiller::fill_object(Type& value) {
  FieldFiller<Type> filler(*this, value);
  describe(filler, Of<Type>{});
}

inline JournalRow random_row(RandomFiller& filler, uint64_t seq) {
  JournalRow row;
  row.event.seq = EventSeq(seq);
  row.event.time = Time(filler.random.between(1, kLastSpelt.nanoseconds() - 1));
  row.event.payload = filler.make_alternative<EventPayload>();
  for (uint64_t i = 0, count = filler.random.below(4); i < count; ++i) {
    row.decisions.push_back(filler.make_alternative<Decision>());
  }
  return row;
}

}  // namespace tranche::json
