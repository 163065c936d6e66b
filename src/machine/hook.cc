#include "machine/hook.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "linux/log.h"

namespace tranche::machine {
namespace {

constexpr size_t kRowsAtATime = 500;
// How many rows that concern nobody may pass before the place is noted: what a restart reads again.
constexpr uint64_t kRowsUnsaved = 10'000;

}  // namespace

Hook::Hook(Parts parts) : parts_(std::move(parts)) {}

void Hook::start(const std::string& note) {
  const auto seq = parse_integer(note, 0, INT64_MAX / 2, "a row");
  started_ = true;
  if (seq) {
    // A journal whose damaged tail was cut goes on from before.
    read_until_ = std::min(EventSeq(static_cast<uint64_t>(*seq)), parts_.engine.last_seq());
    saved_ = read_until_;
    behind_ = read_until_ < parts_.engine.last_seq();
  } else {
    read_until_ = parts_.engine.last_seq();
    save();
  }
  pump();
}

Hook::Status Hook::status() const { return {parts_.name, delivered_, given_up_, pending_.size(), problem_}; }

// False when there is no room for all that the row holds; then nothing of it was taken.
bool Hook::take(const JournalRow& row) {
  std::vector<Notice> notices = notices_of(row);
  // One row may end a whole array: it is taken at once, however many that are.
  if (!notices.empty() && pending_.size() >= kPendingMax) return false;
  for (Notice& notice : notices) pending_.push_back(std::move(notice));
  read_until_ = row.event.seq;
  return true;
}

void Hook::on_durable(const JournalRow& row) {
  if (!started_ || behind_ || row.event.seq <= read_until_) return;
  if (!take(row)) behind_ = true;
  if (pending_.empty() && read_until_.value() - saved_.value() >= kRowsUnsaved) save();
  pump();
}

void Hook::pump() {
  if (busy_ || !started_) return;
  if (!pending_.empty()) {
    busy_ = true;
    ask(pending_.front());
  } else if (behind_) {
    busy_ = true;
    read_more();
  }
}

void Hook::read_more() {
  parts_.engine.journal().read_rows(
      read_until_, kRowsAtATime, [this, alive = std::weak_ptr(alive_)](Result<std::vector<JournalRow>> rows) {
        if (alive.expired()) return;
        busy_ = false;
        if (!rows) {
          problem_ = "the journal cannot be read: " + rows.error().message();
          retry_ = parts_.reactor.at(parts_.reactor.clock().since_boot() + kMinute, [this] { pump(); });
          return;
        }
        // Rows that became durable meanwhile are read too: the journal's own thread orders both.
        if (rows->empty()) behind_ = false;
        for (const JournalRow& row : *rows) {
          if (!take(row)) break;
        }
        if (pending_.empty() && behind_) save();
        pump();
      });
}

// What the job itself asked for lies with what it runs, in the journal.
void Hook::ask(const Notice& notice) {
  const JobRecord* job = parts_.engine.jobs().find(notice.job);
  if (parts_.takes(notice)) {
    delivery_ = parts_.prepare(notice);
    return delivery_ ? attempt() : finish();
  }
  if (notice.kind == Notice::Kind::kAlert || job == nullptr) return finish();
  if (job->request) return decide(notice, job->request->notify);
  if (job->spec->payload_hash == wishes_of_) return decide(notice, wishes_);
  parts_.engine.journal().read_payload(
      job->spec->payload_hash, [this, alive = std::weak_ptr(alive_), notice,
                                hash = job->spec->payload_hash](Result<std::string> content) {
        if (alive.expired()) return;
        const auto request = content ? api::decode<api::SubmitRequest>(*content)
                                     : Result<api::SubmitRequest>(fail(content.error().clone()));
        wishes_of_ = hash;
        wishes_ = request ? request->notify : std::vector<api::NotifyRequest>();
        decide(notice, wishes_);
      });
}

void Hook::decide(Notice notice, const std::vector<api::NotifyRequest>& wishes) {
  const bool is_named = std::any_of(wishes.begin(), wishes.end(), [&](const api::NotifyRequest& wish) {
    return wish.where == parts_.name;
  });
  if (!is_named || !arrays_.is_of_the_whole(parts_.engine.jobs(), notice)) return finish();
  const bool is_asked = std::any_of(wishes.begin(), wishes.end(), [&](const api::NotifyRequest& wish) {
    return wish.where == parts_.name && asks_for(wish.events, notice);
  });
  if (!is_asked) return finish();
  delivery_ = parts_.prepare(notice);
  if (delivery_) return attempt();
  finish();
}

void Hook::attempt() {
  ++tries_;
  auto delivered = std::make_shared<Delivered>();
  const auto queued = parts_.worker->submit(
      [delivered, delivery = delivery_]() -> Result<void> {
        *delivered = delivery();
        return {};
      },
      [this, alive = std::weak_ptr(alive_), delivered](const Result<void>&) {
        if (!alive.expired()) on_outcome(*delivered);
      });
  if (!queued) on_outcome({Outcome::kTryAgain, queued.error().message()});
}

void Hook::on_outcome(const Delivered& delivered) {
  const Notice& notice = pending_.front();
  problem_ = delivered.problem;
  if (delivered.outcome == Outcome::kDelivered) {
    ++delivered_;
    return finish();
  }
  const bool is_old = parts_.engine.now() - notice.time > kGiveUpAfter;
  if (delivered.outcome == Outcome::kRefused || is_old) {
    ++given_up_;
    log(LogLevel::warning, "notice_given_up",
        {{"hook", parts_.name}, {"notice", notice.id()}, {"tries", tries_}, {"problem", delivered.problem}});
    return finish();
  }
  if (tries_ == 1) {
    log(LogLevel::notice, "notice_delayed",
        {{"hook", parts_.name}, {"notice", notice.id()}, {"problem", delivered.problem}});
  }
  const Duration pause = std::min(kRetryMax, Duration(kSecond.count() << std::min(tries_ - 1, 20u)));
  retry_ = parts_.reactor.at(parts_.reactor.clock().since_boot() + pause, [this] {
    const Reactor::Handle self = std::move(retry_);
    attempt();
  });
}

// The front is done with. Not from within the call that found it: a row may hold thousands.
void Hook::finish() {
  pending_.pop_front();
  delivery_ = nullptr;
  const bool was_tried = tries_ > 0;
  tries_ = 0;
  if (was_tried || pending_.empty()) save();
  parts_.reactor.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    busy_ = false;
    pump();
  });
}

// A row is done when all that it holds is.
void Hook::save() {
  const EventSeq done = pending_.empty() ? read_until_ : EventSeq(pending_.front().seq.value() - 1);
  if (done == saved_ && done.is_set()) return;
  saved_ = done;
  parts_.engine.journal().append_note(note_name(), std::to_string(done.value()));
}

}  // namespace tranche::machine
