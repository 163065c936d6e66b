// What is checked about a submission beyond the bounds of its fields. What fits the machine is the
// scheduler's check(); who may use which queue is the policy's.
#include <numeric>

#include "base/utf8.h"
#include "codec/api_fields.h"
#include "codec/sweep.h"

namespace tranche::api {
namespace {

size_t total_bytes(const std::vector<std::string>& texts) {
  return std::accumulate(texts.begin(), texts.end(), size_t{0},
                         [](size_t sum, const std::string& text) { return sum + text.size() + 1; });
}

std::string check_command(const SubmitRequest& request) {
  if (request.argv.empty() == !request.script.has_value()) {
    return "give either \"argv\" (a command) or \"script\" (its text), not both and not neither";
  }
  if (!request.argv.empty() && request.argv.front().empty()) return "argv[0]: the command must not be empty";
  if (!request.script && !request.script_args.empty()) {
    return "\"script_args\" needs \"script\": put the arguments of a command into \"argv\"";
  }
  if (total_bytes(request.argv) > limits::kArgumentsBytes ||
      total_bytes(request.script_args) > limits::kArgumentsBytes) {
    return "the arguments are longer than 1 MiB together: pass a file instead";
  }
  size_t environment = 0;
  for (const auto& [name, value] : request.environment) environment += name.size() + value.size() + 2;
  if (environment > limits::kEnvironmentBytes) {
    return "the environment is larger than 1 MiB: export fewer variables";
  }
  return "";
}

// A name that others read must not act on their terminals, nor look like another name. Paths, arguments and
// variables stay as they are: they have to name what is there. Checked here and not where text is read, since
// journals and answers may hold names from before a rule.
std::string check_name(std::string_view field, std::string_view name) {
  if (is_printable_text(name)) return "";
  return std::string(field) + ": must have no control characters and none that hide or reorder others, not " +
         json::shown(name);
}

std::string check_names(const SubmitRequest& request) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"name", request.name ? *request.name : std::string_view()},
      {"queue", request.queue ? *request.queue : std::string_view()},
      {"gpu.type", request.gpu ? request.gpu->type : std::string_view()},
      {"node_pool", request.node_pool}};
  for (const auto& [field, name] : names) {
    if (std::string problem = check_name(field, name); !problem.empty()) return problem;
  }
  return "";
}

std::string check_gpu(const GpuRequest& gpu) {
  if (gpu.kind == SliceKind::mig)
    return "gpu.kind: MIG slices cannot be asked for, this is not available yet";
  if (gpu.memory_limit.count() != 0 && (gpu.kind != SliceKind::fraction || gpu.memory.count() == 0))
    return "gpu.memory_limit_mib: a burst limit needs \"kind\":\"fraction\" and \"memory_mib\", which is "
           "guaranteed";
  if (gpu.memory_limit.count() != 0 && gpu.memory_limit < gpu.memory)
    return "gpu.memory_limit_mib: must not be below \"memory_mib\", which is guaranteed";
  if (gpu.count == 0) {
    return "gpu.count: must be at least 1; leave \"gpu\" out for a job without GPU";
  }
  const bool has_size = gpu.compute.count() != 0 || gpu.memory.count() != 0;
  if (gpu.kind == SliceKind::fraction && !has_size) {
    return "gpu: a fraction needs \"compute_milli\" or \"memory_mib\"";
  }
  if (gpu.kind == SliceKind::whole && has_size) {
    return "gpu: whole GPUs take no \"compute_milli\" or \"memory_mib\"; ask for \"kind\":\"fraction\"";
  }
  if (gpu.count_max != 0 && (gpu.kind != SliceKind::whole || gpu.count_max < gpu.count))
    return "gpu.count_max: is of whole GPUs and must not be below \"count\"";
  if (gpu.topology != GpuTopology::any && gpu.kind != SliceKind::whole)
    return "gpu.topology: only whole GPUs can be asked to be joined";
  return "";
}

// A range of GPUs is of one task; a range of tasks, each with its GPUs, is what an elastic job grows by.
std::string check_range(const SubmitRequest& request) {
  const bool many = request.tasks && request.tasks->max > 1;
  if (many && request.gpu && request.gpu->is_moldable()) {
    return "gpu.count_max: a range of GPUs is for a job of one task; give \"tasks\" a range instead";
  }
  if (request.elastic && !(request.tasks && request.tasks->max > request.tasks->min)) {
    return "elastic: needs \"tasks\" with \"min\" below \"max\", between which it may grow and shrink";
  }
  return "";
}

// A short command with many placeholders must not become an endless one.
bool may_outgrow(const std::vector<std::string>& words, const std::vector<SweepParameter>& sweep) {
  size_t longest = 0;
  for (const SweepParameter& parameter : sweep) {
    for (const std::string& value : parameter.values) longest = std::max(longest, value.size());
  }
  size_t bytes = 0;
  for (const std::string& word : words) {
    bytes += word.size() + 1 + longest * static_cast<size_t>(std::count(word.begin(), word.end(), '{'));
  }
  return bytes > limits::kArgumentsBytes;
}

std::string check_array(const SubmitRequest& request) {
  if (request.array && request.array->indices.empty()) {
    return "array.indices: must not be empty; leave \"array\" out for a single job";
  }
  if (request.sweep.empty()) return "";
  if (std::string problem = check_sweep(request.sweep); !problem.empty()) return "sweep: " + problem;
  const uint64_t size = sweep_size(request.sweep);
  const bool fits = request.array && request.array->indices.size() == size &&
                    request.array->indices.front() == 1 && request.array->indices.back() == size;
  if (!fits) {
    return "sweep: \"array\" must have the indices 1 to " + std::to_string(size) +
           ", one for each combination";
  }
  if (may_outgrow(request.argv, request.sweep) || may_outgrow(request.script_args, request.sweep)) {
    return "sweep: the arguments may grow beyond 1 MiB together: use fewer placeholders";
  }
  return "";
}

}  // namespace

std::string check_decoded(const SubmitRequest& request) {
  if (std::string problem = check_command(request); !problem.empty()) return problem;
  if (std::string problem = check_names(request); !problem.empty()) return problem;
  if (!request.directory.starts_with('/')) return "directory: must be an absolute path";
  if (request.snapshot_of && !request.snapshot_of->starts_with('/')) {
    return "snapshot_of: must be an absolute path";
  }
  if (std::string problem = check_array(request); !problem.empty()) return problem;
  if (request.gpu) {
    if (std::string problem = check_gpu(*request.gpu); !problem.empty()) return problem;
  }
  return check_range(request);
}

std::string check_decoded(const TokenRequest& request) { return check_name("label", request.label); }

std::string check_decoded(const NotifyRequest& request) {
  return request.events.empty() ? "events: must name at least one" : check_name("where", request.where);
}

std::string check_decoded(const UpdateRequest& request) {
  if (request == UpdateRequest()) return "says nothing to change";
  if (request.gpu_memory_limit && (!request.gpu_memory || *request.gpu_memory_limit < *request.gpu_memory))
    return "gpu_memory_limit_mib: comes with \"gpu_memory_mib\", which is guaranteed, and must not be below "
           "it";
  return request.name ? check_name("name", *request.name) : std::string();
}

std::string check_decoded(const ExecRequest& request) {
  if (request.argv.empty() || request.argv.front().empty()) return "argv: must name a command";
  if (total_bytes(request.argv) > limits::kArgumentsBytes) {
    return "the arguments are longer than 1 MiB together: pass a file instead";
  }
  if (request.directory && !request.directory->starts_with('/')) return "directory: must be an absolute path";
  return "";
}

std::string check_decoded(const DrainRequest& request) { return check_name("reason", request.reason); }

}  // namespace tranche::api
