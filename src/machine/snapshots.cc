#include "machine/snapshots.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/archive.h"
#include "base/failpoint.h"
#include "linux/log.h"
#include "machine/tables_archive.h"
#include "model/archive.h"

namespace tranche::machine {
namespace {

constexpr uint64_t kRowsWorthIt = 256;  // at a stop: fewer are restored as quickly as a snapshot is read
constexpr Duration kStopPatience = 10 * kSecond;

template <class Archive, OfType<SnapshotContent> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [seq, time, wake, jobs, chain, tables, scheduler] = value;
  archive(seq, time, wake, jobs, chain, tables, scheduler);
}

Result<EngineState> load(const SnapshotContent& content, Journal& journal) {
  EngineState state;
  state.last_seq = content.seq;
  state.last_time = content.time;
  state.wake = content.wake;
  for (const EventSeq seq : content.chain) {
    TRY_ASSIGN(const std::string ended, journal.snapshots().read(seq, SnapshotStore::Kind::ended));
    TRY(load_records(ended, state.jobs));
  }
  TRY(load_tables(content.tables, state.jobs, state.faults));
  if (state.jobs.all().size() != content.jobs)
    return fail(ErrorCode::corrupt, "jobs of the snapshot are missing");
  TRY_ASSIGN(state.scheduler, scheduler::Scheduler::load(content.scheduler));
  return state;
}

}  // namespace

Result<SnapshotContent> read_snapshot_content(EventSeq seq, std::string_view state) {
  ArchiveReader archive(state);
  uint32_t format = 0;
  archive(format);
  if (!archive.failed() && format != kTablesFormat)
    return fail(ErrorCode::conflict, "the snapshot is of format " + std::to_string(format) +
                                         ", and this program writes " + std::to_string(kTablesFormat));
  SnapshotContent content;
  archive_fields(archive, content);
  TRY(archive.finish());
  if (content.seq != seq) return fail(ErrorCode::corrupt, "the snapshot is of another row");
  return content;
}

Result<EventSeq> Snapshots::load_newest() {
  TRY_ASSIGN(const std::vector<EventSeq> known, journal_.snapshots().list());
  EventSeq good;
  for (const EventSeq seq : known) {
    auto loaded = [&]() -> Result<EngineState> {
      TRY_ASSIGN(const bool has_row, journal_.has_row(seq));
      if (!has_row) return fail(ErrorCode::corrupt, "the journal ends before the snapshot");
      TRY_ASSIGN(const std::string state, journal_.snapshots().read(seq, SnapshotStore::Kind::state));
      TRY_ASSIGN(const SnapshotContent content, read_snapshot_content(seq, state));
      TRY_ASSIGN(EngineState engine, load(content, journal_));
      chain_ = content.chain;
      return engine;
    }();
    if (loaded) {
      engine_.adopt(std::move(*loaded));
      good = seq;
      break;
    }
    log(LogLevel::warning, "snapshot_passed_over",
        {{"seq", seq.value()}, {"because", loaded.error()}, {"instead", "the one before it, or all rows"}});
  }
  if (!good.is_set()) chain_.clear();
  TRY(journal_.snapshots().forget_after(good));
  return good;
}

void Snapshots::on_step(const JournalRow&) {
  ++rows_since_;
  if (rows_between_ == 0 || rows_since_ < rows_between_ || is_writing_ || posted_) return;
  // Not between what others do about this step.
  posted_ = reactor_.at(reactor_.clock().since_boot(), [this] {
    const Reactor::Handle self = std::move(posted_);
    take([] {});
  });
}

void Snapshots::finish(std::function<void()> done) {
  if (rows_between_ == 0 || rows_since_ < kRowsWorthIt || is_writing_) return done();
  const auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto finish_once = [once] {
    if (const auto call = std::exchange(*once, {})) call();
  };
  too_long_ = reactor_.at(reactor_.clock().since_boot() + kStopPatience, finish_once);
  take(finish_once);
}

void Snapshots::take(std::function<void()> done) {
  const Duration began = reactor_.clock().since_boot();
  SnapshotTexts texts;
  texts.seq = engine_.last_seq();
  std::vector<JobId> ended = engine_.jobs().take_ended();
  texts.ended = save_records(engine_.jobs(), ended);
  SnapshotContent content{texts.seq,
                          engine_.last_time(),
                          engine_.wake_at(),
                          engine_.jobs().all().size(),
                          chain_,
                          save_tables(engine_.jobs(), engine_.faults()),
                          engine_.scheduler().save()};
  content.chain.push_back(texts.seq);
  ArchiveWriter archive;
  archive(kTablesFormat);
  archive_fields(archive, content);
  texts.state = archive.take();
  const Duration pause = reactor_.clock().since_boot() - began;
  log(LogLevel::info, "snapshot_taken",
      {{"seq", texts.seq.value()},
       {"rows", rows_since_},
       {"bytes", texts.state.size() + texts.ended.size()},
       {"pause_us", pause.count() / 1000}});
  rows_since_ = 0;
  is_writing_ = true;
  const EventSeq seq = texts.seq;
  journal_.append_snapshot(std::move(texts),
                           [this, seq, ended = std::move(ended), done = std::move(done)](bool is_durable) {
                             written(is_durable, seq, ended);
                             done();
                           });
}

void Snapshots::written(bool is_durable, EventSeq seq, std::vector<JobId> ended) {
  is_writing_ = false;
  if (is_durable) {
    failpoint("snapshot.durable");
    chain_.push_back(seq);
  } else {
    engine_.jobs().put_back_ended(std::move(ended));
  }
}

}  // namespace tranche::machine
