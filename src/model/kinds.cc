#include <iterator>

#include "base/assert.h"
#include "model/decision.h"
#include "model/event.h"

namespace tranche {
namespace {

struct EventKindRow {
  std::string_view name;
  bool outcome;
};

constexpr bool kInput = false;
constexpr bool kOutcome = true;
constexpr bool category(std::string_view text) { return text == "outcome" ? kOutcome : kInput; }

constexpr EventKindRow kEventKinds[] = {
#define TRANCHE_EVENT_ROW(Type, name, kind) {#name, category(#kind)},
    TRANCHE_EVENT_KINDS(TRANCHE_EVENT_ROW)
#undef TRANCHE_EVENT_ROW
};
static_assert(std::size(kEventKinds) == std::variant_size_v<EventPayload>);

constexpr std::string_view kDecisionKinds[] = {
#define TRANCHE_DECISION_ROW(Type, name) #name,
    TRANCHE_DECISION_KINDS(TRANCHE_DECISION_ROW)
#undef TRANCHE_DECISION_ROW
};
static_assert(std::size(kDecisionKinds) == std::variant_size_v<Decision>);

}  // namespace

std::string_view event_kind(const EventPayload& payload) { return kEventKinds[payload.index()].name; }
bool is_outcome(const EventPayload& payload) { return kEventKinds[payload.index()].outcome; }
std::string_view decision_kind(const Decision& decision) { return kDecisionKinds[decision.index()]; }

}  // namespace tranche
