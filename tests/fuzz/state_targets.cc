// What the daemon reads back from its disk, and what users bring as recorded histories: rows, snapshots,
// tokens.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/checksum.h"
#include "codec/event_json.h"
#include "fuzz_target.h"
#include "linux/files.h"
#include "machine/snapshots.h"
#include "machine/tables_archive.h"
#include "machine/tokens.h"
#include "replay/recorded_history.h"
#include "replay/trace_file.h"
#include "scheduler/history.h"

namespace tranche::fuzz {
namespace {

// A random machine's rows, each as the journal has it.
template <class After>
void play(uint64_t seed, int events, After after) {
  scheduler::Scheduler scheduler;
  scheduler::test::History history(seed, {});
  history.accepts = [&](const JobSpec& spec, const ArraySpec& array) {
    return scheduler.check(spec, array).has_value();
  };
  std::vector<Decision> decisions;
  const auto step = [&](const Event& event) {
    decisions = scheduler.step(event);
    after(scheduler, event, decisions);
  };
  for (EventPayload& payload : history.opening()) step(history.opening_event(std::move(payload)));
  for (int i = 0; i < events; ++i) step(history.next(decisions));
}

// --- rows in a file that `tranche replay` is given

constexpr size_t kReplayedInputs = 64;

bool run_history(std::string_view bytes) {
  const auto history = replay::read_history_lines(bytes);
  if (!history) return false;
  if (history->inputs.size() <= kReplayedInputs) (void)replay::replay_history(*history, nullptr, {});
  return true;
}

std::vector<std::string> history_seeds() {
  std::vector<std::string> inputs;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::string lines;
    play(seed, 30, [&](const scheduler::Scheduler&, Event event, const std::vector<Decision>& decisions) {
      // As a configuration would have it.
      if (auto* changed = std::get_if<PolicyChanged>(&event.payload))
        std::sort(changed->policy.queues.begin(), changed->policy.queues.end(),
                  [](const QueuePolicy& a, const QueuePolicy& b) { return a.path < b.path; });
      append_row(lines, event, decisions);
      lines += '\n';
    });
    if (lines.size() <= 30'000) inputs.push_back(std::move(lines));
  }
  return inputs;
}

// --- snapshots: the scheduler's state and the daemon's tables. A first byte says which; checksums are made
// right, because a broken one hides all else.

bool run_snapshot(std::string_view bytes) {
  if (bytes.empty()) return false;
  const char kind = bytes.front();
  bytes.remove_prefix(1);
  if (kind == 's') {
    const auto loaded = scheduler::Scheduler::load(with_checksum(std::string(bytes)));
    if (!loaded) return false;
    // Bytes that a list makes nothing of are accepted here and there: what they are read as is what counts.
    const std::string written = loaded->save();
    const auto again = scheduler::Scheduler::load(written);
    require(again.has_value() && again->save() == written && again->state_hash() == loaded->state_hash(),
            "a state is not what it was after writing and reading it");
    return true;
  }
  machine::JobTable jobs;
  machine::FaultLog faults;
  if (kind == 'r') {
    if (!machine::load_records(bytes, jobs)) return false;
    std::vector<JobId> ids;
    for (const auto& [id, job] : jobs.all()) ids.push_back(id);
    (void)machine::save_records(jobs, ids);
    return true;
  }
  if (kind == 't') {
    if (!machine::load_tables(bytes, jobs, faults)) return false;
    const std::string written = machine::save_tables(jobs, faults);
    machine::JobTable jobs_again;
    machine::FaultLog faults_again;
    require(machine::load_tables(written, jobs_again, faults_again).has_value() &&
                machine::save_tables(jobs_again, faults_again) == written,
            "tables are not what they were after writing and reading them");
    return true;
  }
  return machine::read_snapshot_content(EventSeq(300), bytes).has_value();
}

std::vector<std::string> snapshot_seeds() {
  std::vector<std::string> inputs;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    machine::JobTable jobs;
    machine::FaultLog faults;
    int row = 0;
    play(seed, 120,
         [&](const scheduler::Scheduler& scheduler, const Event& event,
             const std::vector<Decision>& decisions) {
           faults.apply(event);
           jobs.apply(event, decisions, scheduler);
           if (++row % 40 != 0) return;
           const std::string state = scheduler.save();
           inputs.push_back("s" + std::string(*without_checksum(state)));
           inputs.push_back("t" + machine::save_tables(jobs, faults));
           std::vector<JobId> ids;
           for (const auto& [id, job] : jobs.all()) ids.push_back(id);
           inputs.push_back("r" + machine::save_records(jobs, ids));
         });
  }
  std::erase_if(inputs, [](const std::string& input) { return input.size() > 24'000; });
  return inputs;
}

std::vector<std::string> snapshot_words() {
  return {std::string(1, '\0'),
          "\x01",
          "\x7f",
          std::string("\x80\x01", 2),
          "\xff\xff\xff\xff\x0f",
          "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
          "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"};
}

// --- the file of tokens

struct TokenFolder {
  TokenFolder() {
    char name[] = "/dev/shm/tranche-fuzz-XXXXXX";
    require(::mkdtemp(name) != nullptr, "no folder for tokens");
    path = name;
  }
  ~TokenFolder() {
    ::unlink((path + "/tokens").c_str());
    ::rmdir(path.c_str());
  }
  std::string path;
};

bool run_tokens(std::string_view bytes) {
  static const TokenFolder folder;
  std::FILE* file = std::fopen((folder.path + "/tokens").c_str(), "w");
  require(file != nullptr, "no file of tokens");
  (void)std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  const auto store = machine::TokenStore::open(folder.path);
  if (!store) return false;
  for (const api::TokenRow& row : store->rows()) {
    require(store->row(row.id) != nullptr, "a token has no row");
    require(store->find("tranche_" + std::to_string(row.id) + "_" + std::string(64, '0'), Time(1)) == nullptr,
            "a guess is a token");
  }
  return true;
}

std::vector<std::string> token_seeds() {
  const std::string hash(64, 'a');
  return {"tranche-tokens 1 1\n",
          "tranche-tokens 1 9\n7\t2001\tread\t1789000000000000000\t1799000000000000000\t" + hash +
              "\talice\tlaptop\n",
          "tranche-tokens 1 9\n7\t2001\tjobs\t1\t9223372036854775807\t" + hash +
              "\tbob\t\n8\t2002\tread\t0\t0\t" + hash + "\tcarol\tx y\n"};
}

std::vector<std::string> token_words() {
  return {"\t", "\n", "read", "jobs", "operate", "tranche-tokens 1 "};
}

// --- published traces

bool run_trace(std::string_view bytes) {
  bool accepted = false;
  for (const auto& parsed : {replay::TraceTable::parse_csv(std::string(bytes), "fuzz"),
                             replay::TraceTable::parse_columns(std::string(bytes), "fuzz", ';')}) {
    if (!parsed) continue;
    for (size_t row = 0; row < parsed->rows(); ++row) {
      for (size_t column = 0; column < 20; ++column) {
        (void)parsed->integer(row, column);
        (void)parsed->micro(row, column);
      }
    }
    accepted = parsed->check().has_value() || accepted;
  }
  return accepted;
}

std::vector<std::string> trace_seeds() {
  return {"job,gpu_milli,start\n1,500,12.0\n2,,3\n", "; a comment\n1 0 -1 100 4\n2 10 5 7 1\n",
          "a,b\n5,2.0\n"};
}

std::vector<std::string> trace_words() { return {",", "\n", ";", " ", "1e3", "-0.5", "1e999", "12.0"}; }

}  // namespace

std::vector<Target> state_targets() {
  return {{"history", run_history, history_seeds, row_words},
          {"snapshot", run_snapshot, snapshot_seeds, snapshot_words},
          {"tokens", run_tokens, token_seeds, token_words},
          {"trace", run_trace, trace_seeds, trace_words}};
}

}  // namespace tranche::fuzz
