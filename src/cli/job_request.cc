#include "cli/job_request.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/quantity_text.h"
#include "cli/dependency_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "codec/limits.h"
#include "codec/sweep.h"
#include "linux/files.h"

namespace tranche::cli {
namespace {

mode_t current_umask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}

bool is_variable_name(std::string_view name) {
  const bool has_space = name.find_first_of(" \t\r\n") != std::string_view::npos;
  return !name.empty() && !has_space && (name[0] < '0' || name[0] > '9');
}

// What --sweep says behind what --param-file does, because a limit such as %4 comes last.
Result<std::string> sweep_text(const Arguments& arguments) {
  constexpr size_t kFileBytesMax = size_t{1} << 20;
  std::string text;
  if (const std::string* path = arguments.find("param-file")) {
    const auto file = read_file(*path, kFileBytesMax);
    if (!file) return about("--param-file", file.error().clone());
    std::string_view rest = *file;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (!line.starts_with('#')) (text += line) += '\n';
    }
  }
  if (const std::string* value = arguments.find("sweep")) text += *value;
  return text;
}

std::string absolute(const Session& session, std::string_view path) {
  if (path.starts_with('/')) return std::string(path);
  return session.setup().directory + "/" + std::string(path);
}

void take_text(const Arguments& arguments, std::string_view key, std::optional<std::string>& target) {
  if (const std::string* value = arguments.find(key)) target = *value;
}

Result<void> take_retry(const Arguments& arguments, api::SubmitRequest& request) {
  if (const std::string* value = arguments.find("retry")) {
    TRY_OPTION(request.retry, "--retry", parse_retry(*value));
  }
  const std::string* delay = arguments.find("retry-delay");
  if (delay == nullptr) return {};
  if (!request.retry) return invalid("--retry-delay goes with --retry, which says how often");
  TRY_OPTION(const Duration pause, "--retry-delay", parse_duration(*delay));
  if (pause > kRetryDelayMax)
    return invalid("--retry-delay: the pause is at most " + format_duration(kRetryDelayMax));
  request.retry->delay = pause;
  return {};
}

Result<void> take_when_and_how(Time now, const Arguments& arguments, api::SubmitRequest& request) {
  if (const std::string* value = arguments.find("time")) {
    if (*value == "0" || *value == "unlimited" || *value == "UNLIMITED" || *value == "infinite") {
      return invalid("--time: every job has a limit; write the longest that it may need, such as 7d");
    }
    TRY_OPTION(request.time_limit, "--time", parse_duration(*value));
  }
  if (const std::string* value = arguments.find("grace")) {
    TRY_OPTION(request.grace, "--grace", parse_duration(*value));
  }
  if (const std::string* value = arguments.find("begin")) {
    TRY_OPTION(request.begin, "--begin", parse_begin(*value, now));
  }
  if (const std::string* value = arguments.find("dependency")) {
    if (const auto wishes = parse_dependencies(*value); !wishes)
      return about("--dependency", wishes.error().clone());
  }
  if (const std::string* value = arguments.find("signal")) {
    TRY_OPTION(request.signal, "--signal", parse_limit_signal(*value));
  }
  TRY(take_retry(arguments, request));
  if (const std::string* value = arguments.find("array")) {
    TRY_OPTION(request.array, "--array", parse_array(*value));
  }
  if (arguments.has("sweep") || arguments.has("param-file")) {
    if (request.array)
      return invalid("--sweep and --array contradict each other: a sweep is an array of its own");
    TRY_ASSIGN(const std::string text, sweep_text(arguments));
    TRY_OPTION(api::SweepText sweep, arguments.has("sweep") ? "--sweep" : "--param-file",
               api::parse_sweep(text));
    request.sweep = std::move(sweep.parameters);
    request.array.emplace().running_max = sweep.running_max;
    for (uint32_t i = 1; i <= api::sweep_size(request.sweep); ++i) request.array->indices.push_back(i);
  }
  if (const std::string* value = arguments.find("notify")) {
    TRY_OPTION(request.notify, "--notify", parse_notify(*value));
  }
  request.held = arguments.has("hold");
  if (arguments.has("requeue") && arguments.has("no-requeue")) {
    return invalid("--requeue and --no-requeue contradict each other; give one");
  }
  if (arguments.has("requeue")) request.requeue = true;
  if (arguments.has("no-requeue")) request.requeue = false;
  return {};
}

// `--elastic -G 1..4` is `--elastic -n 1-4 -G 1`: tasks come and go, and each keeps its GPUs.
Result<void> take_elastic(const Arguments& arguments, api::SubmitRequest& request) {
  const bool many = request.tasks && request.tasks->max > 1;
  const bool moldable = request.gpu && request.gpu->is_moldable();
  if (many && moldable) {
    return invalid("--gpus: a range of GPUs is for a job of one task; with several, give --tasks a range");
  }
  if (!arguments.has("elastic")) return {};
  request.elastic = true;
  if (moldable) {
    request.tasks = api::TaskCount{request.gpu->count, request.gpu->count_max};
    request.gpu->count = 1;
    request.gpu->count_max = 0;
  }
  if (request.tasks && request.tasks->max > request.tasks->min) return {};
  return invalid(
      "--elastic goes with a range to grow and shrink in: -G 1..4 for tasks of one GPU, or -n 1-4");
}

Result<void> take_resources(const Arguments& arguments, api::SubmitRequest& request) {
  TRY_ASSIGN(const GpuRequest gpu, parse_gpu_request(arguments));
  if (gpu.count > 0) request.gpu = gpu;
  if (const std::string* value = arguments.find("cpus")) {
    TRY_OPTION(const int64_t milli, "--cpus", parse_thousandths(*value));
    if (milli < 1 || milli > limits::kCpuMilliMax) return invalid("--cpus: write at least 0.001, such as 4");
    request.cpu = MilliCpu(milli);
  }
  if (const std::string* value = arguments.find("mem")) {
    TRY_OPTION(request.memory, "--mem", parse_memory(*value));
    if (request.memory->count() == 0) return invalid("--mem: write the memory that it needs, such as 32G");
  }
  if (const std::string* value = arguments.find("tasks")) {
    TRY_OPTION(request.tasks, "--tasks", parse_task_count(*value));
  }
  return take_elastic(arguments, request);
}

Result<void> take_rank(const Arguments& arguments, api::SubmitRequest& request) {
  take_text(arguments, "name", request.name);
  take_text(arguments, "queue", request.queue);
  if (const std::string* value = arguments.find("class")) {
    request.job_class = from_string<JobClass>(*value);
    if (!request.job_class) {
      return invalid("--class: there are training, inference and interactive, not " + in_quotes(*value));
    }
  }
  if (const std::string* value = arguments.find("priority")) {
    TRY_OPTION(request.priority, "--priority", parse_priority(*value));
  }
  return {};
}

// All that depends neither on the directory nor on the environment.
Result<void> take_options(Time now, const Arguments& arguments, api::SubmitRequest& request) {
  TRY(take_resources(arguments, request));
  TRY(take_rank(arguments, request));
  TRY(take_when_and_how(now, arguments, request));
  take_text(arguments, "output", request.stdout_path);
  take_text(arguments, "error", request.stderr_path);
  take_text(arguments, "input", request.stdin_path);
  return {};
}

// One line, however many there are.
std::string left_out_text(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  std::string text = names.size() == 1 ? "the variable" : "the variables";
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    text += (i == 0 ? " " : ", ") + in_quotes(names[i]);
  }
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text +
         (names.size() == 1 ? " is not UTF-8 text and is left out" : " are not UTF-8 text and are left out");
}

}  // namespace

Result<int32_t> parse_priority(std::string_view text) {
  const bool negative = text.starts_with('-');
  TRY_ASSIGN(const int64_t size,
             parse_integer(text.substr(negative ? 1 : 0), 0, limits::kPriorityMax, "a priority"));
  return static_cast<int32_t>(negative ? -size : size);
}

Result<std::vector<std::pair<std::string, std::string>>> parse_export(
    std::string_view text, const std::vector<std::string>& environment, std::vector<std::string>& left_out) {
  std::map<std::string, std::string> chosen;
  std::map<std::string, std::string> all;
  std::vector<std::string> no_text;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    if (is_valid_utf8(entry)) {
      all.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    } else {
      no_text.push_back(entry.substr(0, equals));
    }
  }
  const std::vector<std::string> parts = split(text, ',');
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    const size_t equals = part.find('=');
    const bool is_word = i == 0 && equals == std::string::npos;
    if (is_word && (part == "ALL" || part == "all")) {
      chosen = all;
      left_out = no_text;
    } else if (is_word && (part == "NONE" || part == "none" || part == "NIL")) {
      continue;
    } else if (!is_variable_name(part.substr(0, equals))) {
      return invalid("write ALL, NONE, NAME or NAME=value with commas between them, not " + in_quotes(part));
    } else if (equals != std::string::npos) {
      chosen[part.substr(0, equals)] = part.substr(equals + 1);
    } else if (const auto found = all.find(part); found != all.end()) {
      chosen.insert(*found);
    } else if (std::find(no_text.begin(), no_text.end(), part) != no_text.end() &&
               std::find(left_out.begin(), left_out.end(), part) == left_out.end()) {
      left_out.push_back(part);
    }
  }
  std::erase_if(left_out, [&](const std::string& name) { return chosen.contains(name); });
  return std::vector<std::pair<std::string, std::string>>(chosen.begin(), chosen.end());
}

Result<api::SubmitRequest> make_submit_request(Session& session, const Arguments& arguments) {
  api::SubmitRequest request;
  TRY(take_options(session.setup().now, arguments, request));
  if (const std::string* value = arguments.find("dependency")) {
    TRY_OPTION(request.dependencies, "--dependency", resolve_dependencies(session, *value));
  }
  request.directory = absolute(session, arguments.value_or("chdir", session.setup().directory));
  if (!is_valid_utf8(request.directory)) {
    return invalid("the working directory " + in_quotes(request.directory) +
                   " is not UTF-8 text; name another one with --chdir");
  }
  request.umask = static_cast<uint32_t>(current_umask());
  std::vector<std::string> left_out;
  TRY_OPTION(request.environment, "--export",
             parse_export(arguments.value_or("export", "ALL"), session.setup().environment, left_out));
  if (!left_out.empty()) session.warn(left_out_text(left_out));
  return request;
}

Result<void> check_job_options(const Arguments& arguments) {
  api::SubmitRequest request;
  TRY(take_options(Time(), arguments, request));
  std::vector<std::string> left_out;
  TRY_OPTION(request.environment, "--export",
             parse_export(arguments.value_or("export", "NONE"), {}, left_out));
  request.directory = "/" + arguments.value_or("chdir", "");
  request.argv = {"true"};
  TRY(api::decode<api::SubmitRequest>(api::encode(request)));
  return {};
}

}  // namespace tranche::cli
