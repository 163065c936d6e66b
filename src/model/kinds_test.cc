#include <gtest/gtest.h>

#include "model/decision.h"
#include "model/event.h"

namespace tranche {
namespace {

TEST(Kinds, EveryPayloadIsNamedAfterItsOwnType) {
#define TRANCHE_CHECK_EVENT(Type, name, category)     \
  EXPECT_EQ(event_kind(EventPayload(Type{})), #name); \
  EXPECT_EQ(is_outcome(EventPayload(Type{})), std::string_view(#category) == "outcome");
  TRANCHE_EVENT_KINDS(TRANCHE_CHECK_EVENT)
#undef TRANCHE_CHECK_EVENT
#define TRANCHE_CHECK_DECISION(Type, name) EXPECT_EQ(decision_kind(Decision(Type{})), #name);
  TRANCHE_DECISION_KINDS(TRANCHE_CHECK_DECISION)
#undef TRANCHE_CHECK_DECISION
}

TEST(Kinds, SpellingsRoundTrip) {
#define TRANCHE_CHECK_STATE(name) EXPECT_EQ(from_string<JobState>(#name), JobState::name);
  TRANCHE_JOB_STATE(TRANCHE_CHECK_STATE)
#undef TRANCHE_CHECK_STATE
  EXPECT_EQ(from_string<JobState>("nonsense"), std::nullopt);
  EXPECT_TRUE(is_final(JobState::completed));
  EXPECT_FALSE(is_final(JobState::stopping));
}

}  // namespace
}  // namespace tranche
