#include "machine/task_facts.h"

#include <algorithm>

#include "codec/sweep.h"
#include "machine/gang_ports.h"

namespace tranche::machine {
namespace {

constexpr const char* kDefaultPattern = "tranche-%j.out";
constexpr const char* kDefaultArrayPattern = "tranche-%A_%a.out";

std::string absolute(const std::string& pattern, const TaskFacts& facts) {
  const std::string expanded = expand_file_pattern(pattern, facts);
  if (expanded.empty() || expanded.front() == '/') return expanded;
  return facts.submit_directory + "/" + expanded;
}

}  // namespace

TaskFacts task_facts(const TaskKey& task, const JobRecord& job, const UserRecord* user,
                     const GpuManager& gpus, const std::vector<Slice>& slices,
                     const api::SubmitRequest& request) {
  TaskFacts facts;
  facts.task = task;
  facts.array = job.array;
  facts.array_index = job.array_index;
  facts.array_count = job.array_count;
  facts.tasks = static_cast<uint32_t>(std::max<size_t>(1, job.tasks.size()));
  if (job.spec->elastic) {
    facts.elastic = true;
    facts.tasks_min = job.spec->tasks_min;
    facts.tasks_max = job.spec->tasks_max;
    facts.tasks =
        static_cast<uint32_t>(std::count_if(job.tasks.begin(), job.tasks.end(), [](const TaskEntry& each) {
          return !each.ended.is_set() && each.state != JobState::stopping;
        }));
  }
  const GangPorts ports = gang_ports_of(job);
  facts.first_port = ports.first;
  facts.task_ports = ports.count > 1 ? static_cast<uint16_t>(ports.count - 1) : uint16_t{0};
  facts.name = job.element_name();
  facts.queue = job.spec->queue;
  facts.user = job.spec->owner.user;
  facts.node = gpus.node_name();
  if (user != nullptr) {
    facts.home = user->home;
    facts.shell = user->shell;
  }
  facts.directory = request.directory;
  facts.submit_directory = request.snapshot_of.value_or(request.directory);
  facts.cpu = job.spec->task.cpu;
  facts.memory = job.spec->task.memory;
  facts.time_limit = job.spec->time_limit;
  for (const Slice& slice : slices) {
    if (const Gpu* gpu = gpus.find(slice.gpu)) {
      facts.gpu_uuids.push_back(gpu->uuid);
      facts.gpu_indices.push_back(gpu->index);
    }
  }
  return facts;
}

RequestPointer request_of_element(const RequestPointer& request, const JobRecord& job) {
  if (request->sweep.empty()) return request;
  return std::make_shared<const api::SubmitRequest>(api::element_request(*request, job.array_index));
}

std::string stdout_path(const api::SubmitRequest& request, const TaskFacts& facts) {
  return absolute(request.stdout_path.value_or(facts.array.is_set() ? kDefaultArrayPattern : kDefaultPattern),
                  facts);
}

std::string stderr_path(const api::SubmitRequest& request, const TaskFacts& facts) {
  return request.stderr_path ? absolute(*request.stderr_path, facts) : "";
}

std::string stdin_path(const api::SubmitRequest& request, const TaskFacts& facts) {
  return request.stdin_path ? absolute(*request.stdin_path, facts) : "";
}

}  // namespace tranche::machine
