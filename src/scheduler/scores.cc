#include "scheduler/scores.h"

#include <algorithm>
#include <array>

#include "scheduler/wide.h"

namespace tranche::scheduler {
namespace {

// 1000 ln(L / (100 - L)) for L = 51..99: where the logistic curve passes L percent.
constexpr std::array<int64_t, 49> kPasses = {
    40,   80,   120,  160,  201,  241,  282,  323,  364,  405,  447,  490,  532,  575,  619,  663,  708,
    754,  800,  847,  895,  944,  995,  1046, 1099, 1153, 1208, 1266, 1325, 1386, 1450, 1516, 1586, 1658,
    1735, 1815, 1901, 1992, 2091, 2197, 2314, 2442, 2587, 2752, 2944, 3178, 3476, 3892, 4595};

constexpr int64_t kWhole = 1024;              // of the mix
constexpr size_t kGpusScored = 64;            // of a node; what is beyond does not count
constexpr size_t kTargetsMost = 128;          // requests in the mix
constexpr size_t kAskedMost = 1024;           // different requests that are told apart
constexpr uint64_t kJobsBetweenChoices = 64;  // and a quarter of what was learned
constexpr int kPriceOfAllAsked = 10;          // points for a type all of which is asked for by name

}  // namespace

int logistic_percent(int64_t x_milli) {
  const int64_t size = x_milli < 0 ? -x_milli : x_milli;
  const auto above = std::upper_bound(kPasses.begin(), kPasses.end(), size) - kPasses.begin();
  if (x_milli >= 0) return 50 + static_cast<int>(above);
  return 49 - static_cast<int>(above);
}

namespace {

// The points for as much less broken up, in milli-GPU times kWhole.
int points_for(int64_t gain) {
  return logistic_percent(gain >= 0 ? gain / kWhole : -((kWhole - 1 - gain) / kWhole));
}

}  // namespace

void Scores::learn(const JobSpec& spec, uint32_t count) {
  if (spec.groups.empty()) return learn_tasks(spec.task, uint64_t{count} * std::max(spec.tasks_min, 1u));
  for (const TaskGroup& group : spec.groups) {
    if (group.tasks_max > 0) learn_tasks(group.task, uint64_t{count} * std::max(group.tasks_min, 1u));
  }
}

void Scores::learn_tasks(const TaskRequest& task, uint64_t tasks) {
  const GpuRequest& gpu = task.gpu;
  const bool whole = gpu.kind == SliceKind::whole;
  const int64_t milli = gpu.count == 0 ? 0 : whole ? kWholeGpu.count() : gpu.compute.count();
  if (gpu.count > 0 && milli == 0) return;  // by memory alone: another share of every type
  jobs_ += tasks;
  for (Asked& asked : asked_) {
    if (asked.gpus != gpu.count || asked.milli != milli || asked.cpu != task.cpu.count() ||
        asked.type != gpu.type)
      continue;
    asked.jobs += tasks;
    return;
  }
  if (asked_.size() < kAskedMost) asked_.push_back({gpu.count, milli, task.cpu.count(), gpu.type, tasks});
}

void Scores::settle(const Capacity& capacity) {
  const bool learned = jobs_ - jobs_at_last_choice_ >= kJobsBetweenChoices + jobs_at_last_choice_ / 4;
  if (!learned && (capacity.machine_version() == machine_at_last_choice_ || mixes_.empty())) return;
  jobs_at_last_choice_ = jobs_;
  machine_at_last_choice_ = capacity.machine_version();
  choose_targets(capacity);
  set_prices(capacity);
  ++version_;
}

void Scores::choose_targets(const Capacity& capacity) {
  std::vector<const Asked*> by_jobs;
  for (const Asked& asked : asked_) by_jobs.push_back(&asked);
  std::stable_sort(by_jobs.begin(), by_jobs.end(),
                   [](const Asked* a, const Asked* b) { return a->jobs > b->jobs; });
  uint64_t covered = 0;
  size_t targets = 0;
  while (targets < by_jobs.size() && targets < kTargetsMost && covered * 100 < jobs_ * 95)
    covered += by_jobs[targets++]->jobs;
  mixes_.assign(targets == 0 ? 0 : std::max<size_t>(capacity.types(), 1), Mix{});
  for (size_t i = 0; i < targets; ++i) {
    const auto jobs = static_cast<int64_t>(by_jobs[i]->jobs);
    add_target(*by_jobs[i], scale_down(jobs, kWhole, static_cast<int64_t>(covered)), capacity);
  }
  for (Mix& mix : mixes_) {
    std::sort(mix.steps.begin(), mix.steps.end(), [](const Step& a, const Step& b) {
      return std::pair(a.milli, a.gpus) < std::pair(b.milli, b.gpus);
    });
    for (Step& step : mix.steps) {
      std::sort(step.by_cpu.begin(), step.by_cpu.end());
      for (size_t i = 1; i < step.by_cpu.size(); ++i) step.by_cpu[i].second += step.by_cpu[i - 1].second;
    }
  }
}

void Scores::add_target(const Asked& asked, int64_t weight, const Capacity& capacity) {
  for (TypeIndex type = 0; type < mixes_.size(); ++type) {
    Mix& mix = mixes_[type];
    const bool runs_here =
        asked.gpus > 0 && type < capacity.types() && accepts_type(asked.type, capacity.type_name(type));
    if (!runs_here) {
      mix.elsewhere += weight;
      continue;
    }
    auto step = std::find_if(mix.steps.begin(), mix.steps.end(), [&](const Step& each) {
      return each.milli == asked.milli && each.gpus == asked.gpus;
    });
    if (step == mix.steps.end()) {
      mix.steps.push_back({asked.milli, asked.gpus, 0, {}});
      step = mix.steps.end() - 1;
    }
    step->weight += weight;
    step->by_cpu.push_back({asked.cpu, weight});
  }
}

// Pressure of a type: what is asked for by its name, when all that is asked for fills the cluster, over what
// there is of it. What would do with one of several types asks for each in proportion to what there is.
void Scores::set_prices(const Capacity& capacity) {
  prices_.assign(capacity.types(), 0);
  int64_t gpus = 0;
  std::vector<int64_t> of_type(capacity.types());
  for (const Kind& kind : capacity.kinds()) {
    of_type[kind.type] += kind.installed;
    gpus += kind.installed;
  }
  int64_t asked_in_all = 0;
  std::vector<int64_t> asked_by_name(capacity.types());
  for (const Asked& asked : asked_) {
    const int64_t milli = asked.milli * int64_t{asked.gpus} * static_cast<int64_t>(asked.jobs);
    asked_in_all += milli;
    if (asked.type.empty()) continue;
    int64_t that_would_do = 0;
    for (TypeIndex type = 0; type < capacity.types(); ++type) {
      if (accepts_type(asked.type, capacity.type_name(type))) that_would_do += of_type[type];
    }
    for (TypeIndex type = 0; type < capacity.types(); ++type) {
      if (that_would_do > 0 && accepts_type(asked.type, capacity.type_name(type)))
        asked_by_name[type] += scale_down(milli, of_type[type], that_would_do);
    }
  }
  for (TypeIndex type = 0; type < capacity.types(); ++type) {
    if (of_type[type] == 0 || asked_in_all == 0) continue;
    prices_[type] = static_cast<int>(scale_down(asked_by_name[type] * kPriceOfAllAsked, gpus, of_type[type]) /
                                     asked_in_all);
  }
}

int Scores::price(const Shape& shape, TypeIndex type) const {
  if (type >= prices_.size()) return 0;
  if (shape.type.empty()) return prices_[type];
  return shape.type.find('|') == std::string::npos ? 0 : prices_[type] / 2;
}

struct Scores::Residues {
  TypeIndex type = 0;
  size_t gpus = 0;
  int64_t idle = 0;                          // their sum
  std::array<int64_t, kGpusScored> milli{};  // ascending

  void change(int64_t from, int64_t to) {
    const auto end = milli.begin() + static_cast<std::ptrdiff_t>(gpus);
    auto at = static_cast<size_t>(std::lower_bound(milli.begin(), end, from) - milli.begin());
    if (at == gpus) return;  // of one that is not scored
    for (; at > 0 && milli[at - 1] > to; --at) milli[at] = milli[at - 1];
    milli[at] = to;
    idle += to - from;
  }
};

Scores::Residues Scores::residues_of(const NodeRoom& room) {
  Residues residues;
  for (const GpuRoom& gpu : room.gpus) {
    if (!gpu.takes_work() || residues.gpus == kGpusScored) continue;
    residues.type = gpu.type;
    const int64_t left = gpu.whole ? 0 : gpu.compute_free.count();
    size_t at = residues.gpus++;
    for (; at > 0 && residues.milli[at - 1] > left; --at) residues.milli[at] = residues.milli[at - 1];
    residues.milli[at] = left;
    residues.idle += left;
  }
  return residues;
}

int64_t Scores::fragmentation(const Residues& residues, int64_t cpu) const {
  const Mix& mix = mixes_[std::min<size_t>(residues.type, mixes_.size() - 1)];
  int64_t sum = mix.elsewhere * residues.idle;
  size_t too_few = 0;  // GPUs with less than the step's part
  int64_t too_small = 0;
  for (const Step& step : mix.steps) {
    for (; too_few < residues.gpus && residues.milli[too_few] < step.milli; ++too_few)
      too_small += residues.milli[too_few];
    int64_t hosted = 0;
    if (residues.gpus - too_few >= step.gpus) {
      for (const auto& [asked, weight] : step.by_cpu) {
        if (asked > cpu) break;
        hosted = weight;
      }
    }
    sum += hosted * too_small + (step.weight - hosted) * residues.idle;
  }
  return sum;
}

template <class Visit>
void Scores::visit_gpus(const Shape& shape, TypeIndex type, const NodeRoom& room, Visit visit) const {
  const int64_t cpu = room.cpu_free.count();
  const Residues before = residues_of(room);
  const int64_t broken_before = fragmentation(before, cpu);
  int64_t scored = -1;  // what the last one had left: another with as much is scored alike
  int points = kNeutral;
  for (size_t g = 0; g < room.gpus.size(); ++g) {
    const GpuRoom& gpu = room.gpus[g];
    if (gpu.type != type || gpu.whole || !gpu.takes_work()) continue;
    const auto slice = slice_on(shape, gpu);
    if (!slice || gpu.compute_free < slice->compute || gpu.memory_free < slice->memory) continue;
    const int64_t left = gpu.compute_free.count();
    if (left != scored) {
      Residues after = before;
      after.change(left, left - slice->compute.count());
      points = points_for(broken_before - fragmentation(after, cpu - shape.cpu));
      scored = left;
    }
    visit(g, points);
  }
}

int Scores::of_node(const Shape& shape, TypeIndex type, const NodeRoom& room) const {
  if (mixes_.empty()) return kNeutral;
  const int64_t cpu = room.cpu_free.count();
  if (shape.kind == SliceKind::whole || shape.gpu_count == 0) {
    const Residues before = residues_of(room);
    Residues after = before;
    for (uint32_t i = 0; i < shape.gpu_count; ++i) after.change(kWholeGpu.count(), 0);
    return points_for(fragmentation(before, cpu) - fragmentation(after, cpu - shape.cpu));
  }
  int best = 0;
  visit_gpus(shape, type, room, [&](size_t, int points) { best = std::max(best, points); });
  return best;
}

std::vector<int> Scores::of_gpus(const Shape& shape, TypeIndex type, const NodeRoom& room) const {
  std::vector<int> points(room.gpus.size(), kNeutral);
  if (!mixes_.empty()) visit_gpus(shape, type, room, [&](size_t g, int of_gpu) { points[g] = of_gpu; });
  return points;
}

void Scores::add_to(StateHash& hash) const {
  hash.add(jobs_);
  hash.add(jobs_at_last_choice_);
  hash.add(uint64_t{mixes_.size()});
  for (const Asked& asked : asked_) {
    hash.add(uint64_t{asked.gpus});
    hash.add(asked.milli);
    hash.add(asked.cpu);
    hash.add(asked.type);
    hash.add(asked.jobs);
  }
}

}  // namespace tranche::scheduler
