#include "machine/engine.h"

#include <memory>
#include <utility>

#include "base/assert.h"

namespace tranche::machine {

Engine::Engine(Reactor& reactor, Journal& journal) : reactor_(reactor), journal_(journal) {}

void Engine::adopt(EngineState state) {
  TRANCHE_ASSERT(!clock_ && next_seq_ == 1);
  scheduler_ = std::move(state.scheduler);
  jobs_ = std::move(state.jobs);
  faults_ = std::move(state.faults);
  next_seq_ = state.last_seq.value() + 1;
  last_time_ = state.last_time;
  wake_at_ = state.wake;
}

void Engine::restore(const RecordedStep& step) {
  TRANCHE_ASSERT(!clock_);
  const JournalRow& row = step.row;
  scheduler_.restore(row.event, row.decisions);
  faults_.apply(row.event);
  jobs_.apply(row.event, row.decisions, scheduler_);
  next_seq_ = row.event.seq.value() + 1;
  last_time_ = row.event.time;
  for (const Decision& decision : row.decisions) {
    if (const auto* wake = std::get_if<WakeAt>(&decision)) wake_at_ = wake->time;
  }
  if (std::holds_alternative<Tick>(row.event.payload) && wake_at_ <= row.event.time) wake_at_ = Time();
}

void Engine::resume() {
  clock_.emplace(reactor_.clock(), last_time_);
  if (wake_at_.is_set()) arm({WakeAt{wake_at_}});
}

void Engine::record(EventPayload payload, Attachment attachment) {
  TRANCHE_ASSERT(clock_);
  waiting_.push_back({std::move(payload), std::move(attachment)});
  if (taking_) return;
  taking_ = true;
  while (!waiting_.empty()) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    take(std::move(next));
  }
  taking_ = false;
}

void Engine::take(Waiting waiting) {
  auto row = std::make_shared<JournalRow>();
  row->event = Event{EventSeq(next_seq_++), clock_->next(), std::move(waiting.payload)};
  last_time_ = row->event.time;
  row->decisions = scheduler_.step(row->event);
  faults_.apply(row->event);
  jobs_.apply(row->event, row->decisions, scheduler_);
  Attachment& attachment = waiting.attachment;
  if (attachment.request) {
    const auto& submitted = std::get<JobSubmitted>(row->event.payload);
    const auto count = static_cast<uint32_t>(std::max<size_t>(1, submitted.array.indices.size()));
    jobs_.set_request(submitted.job, count, attachment.payload ? attachment.payload->name : "",
                      std::move(attachment.request));
  }
  arm(row->decisions);

  JournalEntry entry;
  entry.step = {*row, scheduler::kVersion};
  entry.payload = std::move(attachment.payload);
  entry.idempotency = std::move(attachment.idempotency);
  journal_.append(std::move(entry), [this, row, durable = std::move(attachment.durable)] {
    if (durable) durable();
    for (StepObserver* observer : observers_) observer->on_durable(*row);
  });
  for (StepObserver* observer : observers_) observer->on_step(*row);
}

void Engine::arm(const std::vector<Decision>& decisions) {
  for (const Decision& decision : decisions) {
    const auto* wake = std::get_if<WakeAt>(&decision);
    if (wake == nullptr) continue;
    wake_at_ = wake->time;
    wake_ = reactor_.at(clock_->boot_time_of(wake->time), [this] {
      wake_at_ = Time();
      record(Tick{});
    });
  }
}

Time Engine::now() const { return clock_ ? clock_->peek() : last_time_; }

}  // namespace tranche::machine
