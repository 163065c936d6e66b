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
constexpr uint64_t kJobsBetweenChoices = 64;  // and an eighth of what was learned
constexpr int kPriceOfAllAsked = 10;          // points for a type all of which is asked for by name

}  // namespace

int logistic_percent(int64_t x_milli) {
  const int64_t size = x_milli < 0 ? -x_milli : x_milli;
  const auto above = std::upper_bound(kPasses.begin(), kPasses.end(), size) - kPasses.begin();
  if (x_milli >= 0) return 50 + static_cast<int>(above);
  return 49 - static_cast<int>(above);
}

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
  if (asked_.size() < kAskedMost)
    asked_.push_back({gpu.count, milli, task.cpu.count(), gpu.type, tasks});
}

void Scores::settle(const Capacity& capacity) {
  const bool learned = jobs_ - jobs_at_last_choice_ >= kJobsBetweenChoices + jobs_at_last_choice_ / 8;
  if (!learned && (capacity.machine_version() == machine_at_last_choice_ || targets_.empty())) return;
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
  targets_.clear();
  uint64_t covered = 0;
  for (const Asked* asked : by_jobs) {
    if (covered * 100 >= jobs_ * 95 || targets_.size() == kTargetsMost) break;
    covered += asked->jobs;
    Target target{asked->gpus, asked->milli, asked->cpu, kAnyType, static_cast<int64_t>(asked->jobs)};
    if (!asked->type.empty()) {
      for (TypeIndex type = 0; type < capacity.types(); ++type) {
        if (capacity.type_name(type) == asked->type) target.type = type;
      }
    }
    targets_.push_back(target);
  }
  for (Target& target : targets_)
    target.weight = scale_down(target.weight, kWhole, static_cast<int64_t>(std::max<uint64_t>(covered, 1)));
}

// Pressure of a type: what is asked for by its name, when all that is asked for fills the cluster, over what
// there is of it.
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
    for (TypeIndex type = 0; type < capacity.types(); ++type) {
      if (capacity.type_name(type) == asked.type) asked_by_name[type] += milli;
    }
  }
  for (TypeIndex type = 0; type < capacity.types(); ++type) {
    if (of_type[type] == 0 || asked_in_all == 0) continue;
    prices_[type] = static_cast<int>(scale_down(asked_by_name[type] * kPriceOfAllAsked, gpus, of_type[type]) /
                                     asked_in_all);
  }
}

int Scores::price(const Shape& shape, TypeIndex type) const {
  return shape.type.empty() && type < prices_.size() ? prices_[type] : 0;
}

int64_t Scores::fragmentation(const int64_t* residues, const TypeIndex* types, size_t gpus,
                              int64_t cpu) const {
  int64_t idle = 0;
  for (size_t g = 0; g < gpus; ++g) idle += residues[g];
  int64_t sum = 0;
  for (const Target& target : targets_) {
    uint32_t taking = 0;
    int64_t too_small = 0;
    for (size_t g = 0; g < gpus; ++g) {
      const bool of_type = target.type == kAnyType || types[g] == target.type;
      if (of_type && residues[g] >= target.milli) {
        ++taking;
      } else {
        too_small += residues[g];
      }
    }
    const bool hosts = target.gpus > 0 && taking >= target.gpus && cpu >= target.cpu;
    sum += target.weight * (hosts ? too_small : idle);
  }
  return sum;
}

int Scores::of_gpu(const Shape& shape, const NodeRoom& room, size_t wanted) const {
  if (targets_.empty()) return kNeutral;
  std::array<int64_t, kGpusScored> residues{};
  std::array<TypeIndex, kGpusScored> types{};
  size_t gpus = 0;
  size_t at = kGpusScored;
  for (size_t g = 0; g < room.gpus.size() && gpus < kGpusScored; ++g) {
    const GpuRoom& gpu = room.gpus[g];
    if (!gpu.takes_work()) continue;
    if (g == wanted) at = gpus;
    types[gpus] = gpu.type;
    residues[gpus++] = gpu.whole ? 0 : gpu.compute_free.count();
  }
  if (at == kGpusScored) return kNeutral;
  const int64_t before = fragmentation(residues.data(), types.data(), gpus, room.cpu_free.count());
  const auto slice = slice_on(shape, room.gpus[wanted]);
  residues[at] -= slice ? slice->compute.count() : 0;
  const int64_t after = fragmentation(residues.data(), types.data(), gpus, room.cpu_free.count() - shape.cpu);
  return logistic_percent((before - after) / kWhole);
}

int Scores::of_node(const Shape& shape, TypeIndex type, const NodeRoom& room) const {
  if (targets_.empty()) return kNeutral;
  if (shape.kind != SliceKind::whole && shape.gpu_count > 0) {
    int best = 0;
    for (size_t g = 0; g < room.gpus.size(); ++g) {
      const GpuRoom& gpu = room.gpus[g];
      if (gpu.type != type || gpu.whole || !gpu.takes_work()) continue;
      const auto slice = slice_on(shape, gpu);
      if (!slice || gpu.compute_free < slice->compute || gpu.memory_free < slice->memory) continue;
      best = std::max(best, of_gpu(shape, room, g));
    }
    return best;
  }
  std::array<int64_t, kGpusScored> residues{};
  std::array<TypeIndex, kGpusScored> types{};
  size_t gpus = 0;
  for (size_t g = 0; g < room.gpus.size() && gpus < kGpusScored; ++g) {
    const GpuRoom& gpu = room.gpus[g];
    if (!gpu.takes_work()) continue;
    types[gpus] = gpu.type;
    residues[gpus++] = gpu.whole ? 0 : gpu.compute_free.count();
  }
  const int64_t before = fragmentation(residues.data(), types.data(), gpus, room.cpu_free.count());
  uint32_t left = shape.gpu_count;
  for (size_t g = 0; g < gpus && left > 0; ++g) {
    if (types[g] != type || residues[g] != kWholeGpu.count()) continue;
    residues[g] = 0;
    --left;
  }
  const int64_t after = fragmentation(residues.data(), types.data(), gpus, room.cpu_free.count() - shape.cpu);
  return logistic_percent((before - after) / kWhole);
}

void Scores::add_to(StateHash& hash) const {
  hash.add(jobs_);
  hash.add(jobs_at_last_choice_);
  hash.add(uint64_t{targets_.size()});
  for (const Asked& asked : asked_) {
    hash.add(uint64_t{asked.gpus});
    hash.add(asked.milli);
    hash.add(asked.cpu);
    hash.add(asked.type);
    hash.add(asked.jobs);
  }
}

}  // namespace tranche::scheduler
