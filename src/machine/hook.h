// One receiver of notices: a web hook or the mail program.
//
// It follows the journal, in order, one delivery at a time, on a worker of its own, so that a receiver that
// hangs holds up nobody else. What is not delivered yet lies in the journal, not in memory: up to kPendingMax
// notices are held, beyond that they are read again from where the last one stood. A note in the journal says
// up to which row all is done; after a restart it goes on from there, so a notice is sent at least once, with
// the same id each time. A delivery that fails is tried again after 1 s, 2 s, 4 s, ... up to kRetryMax; one
// that is older than kGiveUpAfter, or that the receiver refuses (4xx), is given up and logged.
//
// Threading: the reactor's thread; `deliver` runs on the worker's.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "linux/worker.h"
#include "machine/engine.h"
#include "machine/notice.h"

namespace tranche::machine {

class Hook final : public StepObserver {
 public:
  enum class Outcome : unsigned char { kDelivered, kRefused, kTryAgain };
  struct Delivered {
    Outcome outcome = Outcome::kTryAgain;
    std::string problem;  // a sentence, unless delivered
  };
  // A delivery that is ready to be made; runs on the worker, touches nothing of this thread's.
  using Delivery = std::function<Delivered()>;

  struct Parts {
    Reactor& reactor;
    Engine& engine;
    std::string name;
    std::unique_ptr<Worker> worker;
    // Whether the notice is for this receiver whatever the job asked for.
    std::function<bool(const Notice&)> takes;
    // Makes the delivery; an empty one skips the notice.
    std::function<Delivery(const Notice&)> prepare;
  };
  explicit Hook(Parts parts);

  // Goes on behind the row of `note` (what read_note gave), "" from now on.
  void start(const std::string& note);
  std::string note_name() const { return "hook." + parts_.name; }

  void on_step(const JournalRow&) override {}
  void on_durable(const JournalRow& row) override;

  struct Status {
    std::string name;
    uint64_t delivered = 0;
    uint64_t given_up = 0;
    size_t waiting = 0;   // held; more may lie in the journal
    std::string problem;  // of the last try; "" if it went well
  };
  Status status() const;

  static constexpr size_t kPendingMax = 256;
  static constexpr Duration kRetryMax{10 * kMinute.count()};
  static constexpr Duration kGiveUpAfter{24 * kHour.count()};

 private:
  bool take(const JournalRow& row);
  void pump();
  void read_more();
  void ask(const Notice& notice);
  void decide(Notice notice, const std::vector<api::NotifyRequest>& wishes);
  void attempt();
  void on_outcome(const Delivered& delivered);
  void finish();
  void save();

  Parts parts_;
  std::deque<Notice> pending_;
  Delivery delivery_;
  EventSeq read_until_;
  EventSeq saved_;
  bool started_ = false;
  bool behind_ = false;  // rows after read_until_ are in the journal only
  bool busy_ = false;    // with the front of pending_, or reading
  uint32_t tries_ = 0;
  Reactor::Handle retry_;
  // The wishes of the job that was looked up last: an array's elements share theirs.
  std::string wishes_of_;
  std::vector<api::NotifyRequest> wishes_;
  WholeArrays arrays_;
  uint64_t delivered_ = 0;
  uint64_t given_up_ = 0;
  std::string problem_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tranche::machine
