#include "machine/hook.h"

#include "machine/daemon_fixture.h"
#include "machine/hook_set.h"

namespace tranche::machine {
namespace {

class HookTest : public DaemonFixture {
 protected:
  HookTest() { behaviour_.run_time = kSecond; }
  ~HookTest() override { hook_.reset(); }

  // A receiver of the ends of all jobs, whose answers `outcome_` decides.
  void start_hook(const std::string& note = "") {
    hook_ = std::make_unique<Hook>(Hook::Parts{
        reactor_, engine(), "chat", std::make_unique<InlineWorker>(reactor_),
        [](const Notice& notice) { return notice.kind == Notice::Kind::kEnded; },
        [this](const Notice& notice) -> Hook::Delivery {
          return [this, id = notice.id()] {
            tries_.push_back({id, reactor_.clock().since_boot()});
            return Hook::Delivered{outcome_, outcome_ == Hook::Outcome::kDelivered ? "" : "it is away"};
          };
        }});
    engine().add_observer(*hook_);
    hook_->start(note);
  }
  std::string note() {
    pass(kMillisecond);
    return engine().journal().read_note("hook.chat").value_or("");
  }
  std::vector<std::string> ids() const {
    std::vector<std::string> found;
    for (const auto& [id, time] : tries_) found.push_back(id);
    return found;
  }

  std::unique_ptr<Hook> hook_;
  Hook::Outcome outcome_ = Hook::Outcome::kDelivered;
  std::vector<std::pair<std::string, Duration>> tries_;
};

TEST_F(HookTest, EachEndIsToldOnce) {
  start_daemon();
  start_hook();
  for (int i = 0; i < 5; ++i) submit(0);
  pass(kMinute);
  EXPECT_EQ(tries_.size(), 5u);
  EXPECT_EQ(hook_->status().delivered, 5u);
  EXPECT_EQ(hook_->status().waiting, 0u);
  EXPECT_EQ(note(), std::to_string(engine().last_seq().value()).substr(0, note().size()))
      << "a place in the journal";
}

TEST_F(HookTest, AFailureIsTriedAgainLaterAndLater) {
  start_daemon();
  start_hook();
  outcome_ = Hook::Outcome::kTryAgain;
  submit(0);
  pass(20 * kSecond);
  ASSERT_GE(tries_.size(), 4u);
  for (size_t i = 1; i < tries_.size(); ++i) {
    EXPECT_EQ(tries_[i].first, tries_[0].first) << "the same id";
    EXPECT_EQ((tries_[i].second - tries_[i - 1].second).count(), kSecond.count() << (i - 1));
  }
  EXPECT_EQ(hook_->status().problem, "it is away");
  pass(3 * kHour);
  EXPECT_EQ((tries_.back().second - tries_[tries_.size() - 2].second), Hook::kRetryMax);
  outcome_ = Hook::Outcome::kDelivered;
  pass(Hook::kRetryMax);
  EXPECT_EQ(hook_->status().delivered, 1u);
  EXPECT_EQ(hook_->status().problem, "");
}

TEST_F(HookTest, AfterADayItIsGivenUpAndTheNextOneIsTold) {
  start_daemon();
  start_hook();
  outcome_ = Hook::Outcome::kTryAgain;
  submit(0);
  pass(25 * kHour);
  EXPECT_EQ(hook_->status().given_up, 1u);
  const size_t before = tries_.size();
  pass(kHour);
  EXPECT_EQ(tries_.size(), before);
  outcome_ = Hook::Outcome::kDelivered;
  submit(0);
  pass(kMinute);
  EXPECT_EQ(hook_->status().delivered, 1u);
}

TEST_F(HookTest, WhatIsRefusedIsNotTriedAgain) {
  start_daemon();
  start_hook();
  outcome_ = Hook::Outcome::kRefused;
  submit(0);
  pass(kHour);
  EXPECT_EQ(tries_.size(), 1u);
  EXPECT_EQ(hook_->status().given_up, 1u);
}

TEST_F(HookTest, WhatWaitsLiesInTheJournalAndComesInOrder) {
  start_daemon();
  start_hook();
  outcome_ = Hook::Outcome::kTryAgain;
  constexpr size_t kJobs = 3 * Hook::kPendingMax;
  for (size_t i = 0; i < kJobs; ++i) submit(0);
  pass(5 * kMinute);
  EXPECT_LE(hook_->status().waiting, Hook::kPendingMax + 8) << "bounded, whatever is behind it";
  outcome_ = Hook::Outcome::kDelivered;
  pass(kHour);
  std::vector<std::string> told = ids();
  told.erase(std::unique(told.begin(), told.end()), told.end());
  EXPECT_EQ(told.size(), kJobs) << "all of them, and none comes back later";
  EXPECT_EQ(hook_->status().delivered, kJobs);
}

TEST_F(HookTest, ARestartGoesOnWhereItWas) {
  start_daemon();
  start_hook();
  submit(0);
  pass(kMinute);
  outcome_ = Hook::Outcome::kTryAgain;
  submit(0);
  submit(0);
  pass(kMinute);
  const std::string place = note();
  const std::string waiting = tries_.back().first;
  hook_.reset();
  stop_daemon();
  tries_.clear();
  outcome_ = Hook::Outcome::kDelivered;
  start_daemon();
  start_hook(place);
  pass(kMinute);
  ASSERT_EQ(tries_.size(), 2u) << "the one that was tried, and the one behind it";
  EXPECT_EQ(tries_[0].first, waiting);
}

TEST_F(HookTest, ANewReceiverHearsOfWhatComesAndNotOfThePast) {
  start_daemon();
  submit(0);
  pass(kMinute);
  start_hook();
  pass(kMinute);
  EXPECT_TRUE(tries_.empty());
}

// An array of `count` whose elements' ends are told in the order of `order`.
std::vector<JobId> told_of(JobTable& jobs, const std::vector<uint64_t>& order) {
  WholeArrays arrays;
  std::vector<JobId> told;
  for (const uint64_t id : order) {
    Notice notice;
    notice.job = JobId(id);
    if (arrays.is_of_the_whole(jobs, notice)) told.push_back(notice.job);
  }
  return told;
}

TEST_F(HookTest, AnArrayIsToldOfOnceWhateverTheOrderAndTheDelay) {
  behaviour_.run_time = kMinute;
  start_daemon();
  JobSpec spec;
  spec.owner = {2001, 2001, "user2001"};
  spec.queue = "default/user2001";
  spec.time_limit = kHour;
  spec.payload_hash = "none";
  Engine::Attachment attachment;
  api::SubmitRequest request;
  request.argv = {"train"};
  request.directory = "/home";
  attachment.payload = StoredPayload{"none", "train", api::encode(request)};
  attachment.request = std::make_shared<const api::SubmitRequest>(std::move(request));
  engine().record(JobSubmitted{JobId(1), spec, ArraySpec{{1, 2, 3, 4}, 1}}, std::move(attachment));
  pass(90 * kSecond);
  EXPECT_TRUE(told_of(engine().jobs(), {1}).empty()) << "three are still to run";
  pass(10 * kMinute);
  ASSERT_EQ(engine().jobs().find(JobId(4))->state, JobState::completed);
  EXPECT_EQ(told_of(engine().jobs(), {1, 2, 3, 4}), (std::vector{JobId(4)})) << "all told after the fact";
  EXPECT_EQ(told_of(engine().jobs(), {4, 3}), (std::vector{JobId(4)}));
}

TEST(SignedHeaders, SignTimeAndBody) {
  const HttpHeaders headers = signed_headers("7-job1", "{}", "key", 1'800'000'000);
  const std::string* signature = find_header(headers, "Tranche-Signature");
  ASSERT_NE(signature, nullptr);
  EXPECT_TRUE(signature->starts_with("t=1800000000,v1=")) << *signature;
  EXPECT_NE(*find_header(signed_headers("7-job1", "{}", "key", 1'800'000'001), "Tranche-Signature"),
            *signature);
  EXPECT_EQ(find_header(signed_headers("7-job1", "{}", "", 1), "Tranche-Signature"), nullptr);
}

}  // namespace
}  // namespace tranche::machine
