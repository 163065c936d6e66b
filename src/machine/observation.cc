#include "machine/observation.h"

#include <algorithm>
#include <charconv>

#include "base/quantity_text.h"
#include "codec/config.h"
#include "machine/views.h"

namespace tranche::machine {
namespace {

constexpr std::string_view kNotePrefix = "observed ";
constexpr size_t kDaysKept = 400;
constexpr size_t kDaysTold = 7;
constexpr size_t kUsersMost = 10'000;  // of a day
constexpr Duration kNoteEvery = kMinute;
// A longer span without a reading is one of which nothing is known.
constexpr Duration kLongestSpan = 30 * kSecond;

std::string day_text(int64_t day) { return format_time(Time(day * kDay.count() + 1)).substr(0, 10); }

std::string hours_text(Duration time) {
  return format_thousandths(time.count() / (kHour.count() / 1000)) + " GPU hours";
}

// "uid held busy" a line, in nanoseconds.
std::string note_text(const std::map<uint32_t, ObservedUse>& users) {
  std::string text;
  for (const auto& [uid, use] : users) {
    text += std::to_string(uid) + " " + std::to_string(use.held.count()) + " " +
            std::to_string(use.busy.count()) + "\n";
  }
  return text;
}

Result<std::map<uint32_t, ObservedUse>> parse_note(std::string_view text) {
  std::map<uint32_t, ObservedUse> users;
  while (!text.empty()) {
    uint32_t uid = 0;
    int64_t held = 0, busy = 0;
    const auto take = [&text](auto& number, char end) {
      const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || rest == text.data() + text.size() || *rest != end) return false;
      text.remove_prefix(static_cast<size_t>(rest - text.data()) + 1);
      return true;
    };
    if (!take(uid, ' ') || !take(held, ' ') || !take(busy, '\n') || held < 0 || busy < 0)
      return fail(ErrorCode::corrupt, "a note of observed use in the journal cannot be read");
    users[uid] = {Duration(held), Duration(busy)};
  }
  return users;
}

}  // namespace

Result<void> Observation::load() {
  TRY_ASSIGN(const auto notes, parts_.engine.journal().read_notes(std::string(kNotePrefix)));
  for (const auto& [name, value] : notes) {
    TRY_ASSIGN(const int64_t day,
               parse_integer(std::string_view(name).substr(kNotePrefix.size()), 0, INT32_MAX, "day"));
    TRY_ASSIGN(by_day_[day], parse_note(value));
  }
  return {};
}

void Observation::start() {
  again_ = parts_.reactor.at(parts_.reactor.clock().since_boot() + parts_.interval, [this] {
    start();
    look();
  });
}

void Observation::look() {
  now_.clear();
  for (const scheduler::GpuView& view : parts_.engine.scheduler().gpus()) look_at(view);
  if (parts_.reactor.clock().since_boot() - noted_ >= kNoteEvery) note();
}

void Observation::look_at(const scheduler::GpuView& view) {
  const Duration now = parts_.reactor.clock().since_boot();
  Duration& looked = looked_[view.gpu->id];
  const Duration span = now - looked;
  const bool is_first = looked == Duration{};
  looked = now;
  const GpuStatus* const status = parts_.gpus.host().status(view.gpu->index);
  if (status == nullptr || !status->reading || !status->reading->processes) return;
  const GpuReading& reading = *status->reading;
  if (now - reading.taken_at > kLongestSpan) return;
  std::set<uint32_t> users;
  for (const GpuProcess& process : *reading.processes) {
    if (process.uid && process_exists(process)) users.insert(*process.uid);
  }
  if (users.empty()) return;
  const auto parts = static_cast<int64_t>(users.size());
  for (const uint32_t uid : users) now_[uid] += MilliGpu(kWholeGpu.count() / parts);
  if (is_first || span > kLongestSpan) return;
  const Day day = parts_.reactor.clock().wall().nanoseconds() / kDay.count();
  std::map<uint32_t, ObservedUse>& today = by_day_[day];
  while (by_day_.size() > kDaysKept) by_day_.erase(by_day_.begin());
  const Duration held(span.count() / parts);
  const Duration busy(held.count() / 100 * std::min<int64_t>(reading.utilisation_percent.value_or(0), 100));
  for (const uint32_t uid : users) {
    if (today.size() >= kUsersMost && !today.contains(uid)) continue;
    today[uid].held += held;
    today[uid].busy += busy;
  }
  changed_.insert(day);
}

void Observation::note() {
  noted_ = parts_.reactor.clock().since_boot();
  for (const Day day : changed_) {
    const auto users = by_day_.find(day);
    if (users == by_day_.end()) continue;
    parts_.engine.journal().append_note(std::string(kNotePrefix) + std::to_string(day),
                                        note_text(users->second));
  }
  changed_.clear();
}

api::QueueList Observation::report() const {
  struct Sum {
    ObservedUse all;
    std::string days;  // the newest first
    size_t told = 0;
  };
  std::map<uint32_t, Sum> sums;
  for (auto day = by_day_.rbegin(); day != by_day_.rend(); ++day) {
    for (const auto& [uid, use] : day->second) {
      Sum& sum = sums[uid];
      sum.all.held += use.held;
      sum.all.busy += use.busy;
      if (sum.told++ >= kDaysTold) continue;
      sum.days += (sum.days.empty() ? "" : ", ") + day_text(day->first) + " " +
                  format_thousandths(use.held.count() / (kHour.count() / 1000));
    }
  }
  for (const auto& [uid, gpus] : now_) sums.try_emplace(uid);
  api::QueueList list;
  for (const auto& [uid, sum] : sums) {
    api::QueueRow row;
    row.path = parts_.users.name(uid);
    const auto held = now_.find(uid);
    if (held != now_.end()) row.demand = row.used = row.fair_share = held->second;
    row.usage_milli_gpu_hours = sum.all.held.count() / (kHour.count() / 1000);
    row.arithmetic = "observed, nothing is shared out: holds " + format_gpus(row.used) + " now; " +
                     hours_text(sum.all.held) + " in all, with kernels at work in " +
                     hours_text(sum.all.busy) + " of them" +
                     (sum.days.empty() ? "" : "; by day (UTC): " + sum.days);
    list.queues.push_back(std::move(row));
  }
  std::sort(list.queues.begin(), list.queues.end(), [](const api::QueueRow& a, const api::QueueRow& b) {
    return std::pair(-a.usage_milli_gpu_hours, a.path) < std::pair(-b.usage_milli_gpu_hours, b.path);
  });
  return list;
}

}  // namespace tranche::machine
