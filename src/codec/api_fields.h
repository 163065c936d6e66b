// The JSON of the API's values, and what is checked about combinations of fields. api/openapi.yaml is the
// description for people; a test holds both against each other.
#pragma once

#include <algorithm>
#include <string>

#include "codec/api.h"
#include "codec/json_decoder.h"
#include "codec/json_encoder.h"
#include "codec/model_fields.h"

namespace tranche::json {

inline constexpr Range kPid{1, INT32_MAX};
inline constexpr Range kExitCode{0, 255};
inline constexpr Range kSignal{1, 1024};
inline constexpr Range kAmount{INT64_MIN, INT64_MAX};
inline constexpr Text kLongText{limits::kArgumentBytes, Content::anything};
inline constexpr Text kNotEmptyName{limits::kNameBytes, Content::line, 1};
inline constexpr DurationText kTimeLimit{kSecond.count(), limits::kDurationNanosecondsMax};

// --- answers of the scheduler
// ---------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<Proof>) {
  v.required("kind", &Proof::kind);
  v.optional("resource", &Proof::resource);
  v.optional("job", &Proof::job, kId);
  v.optional("queue", &Proof::queue, kQueuePath);
  v.optional("needed", &Proof::needed, kAmount);
  v.optional("available", &Proof::available, kAmount);
  v.optional("used", &Proof::used, kAmount);
  v.optional("bound", &Proof::bound, kAmount);
  v.optional("blockers", &Proof::blockers, List{limits::kListItems, kId});
  v.optional("gpus", &Proof::gpus, List{limits::kListItems, kSmallId});
  v.optional("until", &Proof::until, kTime);
}

template <class Visitor>
void describe(Visitor& v, Of<Forecast>) {
  v.required("known", &Forecast::known);
  v.optional("start", &Forecast::start, kTime);
  v.defaulted("position", &Forecast::position, kCount32);
}

template <class Visitor>
void describe(Visitor& v, Of<Explanation>) {
  v.required("job", &Explanation::job, kId);
  v.required("state", &Explanation::state);
  v.required("proof", &Explanation::proof);
  v.required("forecast", &Explanation::forecast);
  v.defaulted("reason", &Explanation::reason, kLongText);
  v.defaulted("helps", &Explanation::helps, List{size_t{64}, kLongText});
}

template <class Visitor>
void describe(Visitor& v, Of<api::QueueRow>) {
  using api::QueueRow;
  v.required("path", &QueueRow::path, kQueuePath);
  v.defaulted("weight", &QueueRow::weight, kAnyCount);
  v.defaulted("priority", &QueueRow::priority, kPriority);
  v.when("quota_milli", &QueueRow::has_quota, &QueueRow::quota, kAmount);
  v.when("limit_milli", &QueueRow::has_limit, &QueueRow::limit, kAmount);
  v.defaulted("demand_milli", &QueueRow::demand, kAmount);
  v.defaulted("used_milli", &QueueRow::used, kAmount);
  v.defaulted("fair_share_milli", &QueueRow::fair_share, kAmount);
  v.defaulted("usage_milli_gpu_hours", &QueueRow::usage_milli_gpu_hours, kAmount);
  v.defaulted("jobs_waiting", &QueueRow::jobs_waiting, kCount32);
  v.defaulted("jobs_running", &QueueRow::jobs_running, kCount32);
  v.defaulted("used_cpu_milli", &QueueRow::used_cpu, kAmount);
  v.defaulted("used_memory_mib", &QueueRow::used_memory, kAmount);
  v.optional("quota_cpu_milli", &QueueRow::quota_cpu, kAmount);
  v.optional("limit_cpu_milli", &QueueRow::limit_cpu, kAmount);
  v.optional("quota_memory_mib", &QueueRow::quota_memory, kAmount);
  v.optional("limit_memory_mib", &QueueRow::limit_memory, kAmount);
  v.optional("arithmetic", &QueueRow::arithmetic, kLongText);
}

// --- requests
// --------------------------------------------------------------------------------------------------- A
// number, or {"min":2,"max":4}.
template <>
struct Custom<api::TaskCount> {
  static constexpr Range kTasks{1, limits::kTasksMax};
  static void write(Encoder& encoder, const api::TaskCount& count) {
    if (count.min == count.max) return encoder.integer(uint64_t{count.min});
    encoder.begin_object();
    encoder.key("min");
    encoder.integer(uint64_t{count.min});
    encoder.key("max");
    encoder.integer(uint64_t{count.max});
    encoder.end_object();
  }
  static bool read(Decoder& decoder, Value value, api::TaskCount& count) {
    if (value.kind() != Kind::object) {
      if (!decoder.read(value, count.min, kTasks)) return false;
      count.max = count.min;
      return true;
    }
    constexpr std::string_view kNames[] = {"min", "max"};
    if (!refuse_unknown(decoder, value, kNames)) return false;
    MemberFinder finder(value);
    Value low = value;
    Value high = value;
    if (!finder.find("min", &low) || !finder.find("max", &high)) {
      return decoder.refuse("must be a number, or an object with \"min\" and \"max\"");
    }
    if (!decoder.read(low, count.min, kTasks)) return decoder.in_member("min");
    if (!decoder.read(high, count.max, kTasks)) return decoder.in_member("max");
    return count.min <= count.max || decoder.refuse("\"min\" must not be above \"max\"");
  }
};

template <class Visitor>
void describe(Visitor& v, Of<api::RetryRequest>) {
  using api::RetryRequest;
  v.optional("error", &RetryRequest::error, kRetries);
  v.optional("out_of_memory", &RetryRequest::out_of_memory, kRetries);
  v.optional("infrastructure", &RetryRequest::infrastructure, kRetries);
  v.optional("delay", &RetryRequest::delay, DurationText{0, kRetryDelayMax.count()});
}

template <class Visitor>
void describe(Visitor& v, Of<api::SignalRequest>) {
  v.required("number", &api::SignalRequest::number, kSignalNumber);
  v.required("before", &api::SignalRequest::before, kTimeLimit);
}

template <class Visitor>
void describe(Visitor& v, Of<api::SweepParameter>) {
  using api::SweepParameter;
  v.required("name", &SweepParameter::name, Text{limits::kSweepNameBytes, Content::line, 1});
  v.required("values", &SweepParameter::values,
             List{limits::kArrayElements, Text{limits::kSweepValueBytes, Content::line, 1}});
}

template <class Visitor>
void describe(Visitor& v, Of<api::NotifyRequest>) {
  using api::NotifyRequest;
  v.required("where", &NotifyRequest::where, kNotEmptyName);
  v.required("events", &NotifyRequest::events, List{size_t{8}, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<api::SubmitRequest>) {
  using api::SubmitRequest;
  v.optional("name", &SubmitRequest::name, kNotEmptyName);
  v.optional("argv", &SubmitRequest::argv, List{limits::kArguments, kArgument});
  v.optional("script", &SubmitRequest::script, Text{limits::kScriptBytes, Content::anything, 1});
  v.optional("script_args", &SubmitRequest::script_args, List{limits::kArguments, kArgument});
  v.optional("environment", &SubmitRequest::environment, Map{limits::kVariables, kArgument, kArgument});
  v.required("directory", &SubmitRequest::directory, kPath);
  v.optional("umask", &SubmitRequest::umask, Range{0, 0777});
  v.optional("stdout", &SubmitRequest::stdout_path, kPath);
  v.optional("stderr", &SubmitRequest::stderr_path, kPath);
  v.optional("stdin", &SubmitRequest::stdin_path, kPath);
  v.optional("queue", &SubmitRequest::queue, Text{limits::kQueuePathBytes, Content::line, 1});
  v.optional("class", &SubmitRequest::job_class);
  v.optional("priority", &SubmitRequest::priority, kPriority);
  v.optional("preemptible", &SubmitRequest::preemptible);
  v.optional("requeue", &SubmitRequest::requeue);
  v.optional("held", &SubmitRequest::held);
  v.optional("gpu", &SubmitRequest::gpu);
  v.optional("cpu_milli", &SubmitRequest::cpu, Range{1, limits::kCpuMilliMax});
  v.optional("memory_mib", &SubmitRequest::memory, Range{1, limits::kMemoryMibMax});
  v.optional("tasks", &SubmitRequest::tasks);
  v.optional("elastic", &SubmitRequest::elastic);
  v.optional("time_limit", &SubmitRequest::time_limit, kTimeLimit);
  v.optional("grace", &SubmitRequest::grace, kDurationText);
  v.optional("retry", &SubmitRequest::retry);
  v.optional("signal", &SubmitRequest::signal);
  v.optional("begin", &SubmitRequest::begin, kTime);
  v.optional("dependencies", &SubmitRequest::dependencies, List{limits::kDependencies, kPlain});
  v.optional("array", &SubmitRequest::array);
  v.optional("sweep", &SubmitRequest::sweep, List{limits::kSweepParameters, kPlain});
  v.optional("snapshot_of", &SubmitRequest::snapshot_of, kPath);
  v.optional("notify", &SubmitRequest::notify, List{limits::kNotices, kPlain});
  v.optional("pty", &SubmitRequest::pty);
  v.optional("node_pool", &SubmitRequest::node_pool, kName);
}

template <class Visitor>
void describe(Visitor& v, Of<api::UpdateRequest>) {
  using api::UpdateRequest;
  v.optional("name", &UpdateRequest::name, kNotEmptyName);
  v.optional("time_limit", &UpdateRequest::time_limit, kTimeLimit);
  v.optional("grace", &UpdateRequest::grace, kDurationText);
  v.optional("priority", &UpdateRequest::priority, kPriority);
  v.optional("begin", &UpdateRequest::begin, kTime);
  v.optional("dependencies", &UpdateRequest::dependencies, List{limits::kDependencies, kPlain});
  v.optional("first", &UpdateRequest::first);
  v.optional("gpu_memory_mib", &UpdateRequest::gpu_memory, Range{1, limits::kMemoryMibMax});
  v.optional("gpu_memory_limit_mib", &UpdateRequest::gpu_memory_limit, Range{1, limits::kMemoryMibMax});
}

template <class Visitor>
void describe(Visitor& v, Of<api::ExecRequest>) {
  using api::ExecRequest;
  v.required("argv", &ExecRequest::argv, List{limits::kArguments, kArgument});
  v.optional("environment", &ExecRequest::environment, Map{limits::kVariables, kArgument, kArgument});
  v.optional("directory", &ExecRequest::directory, kPath);
  v.optional("rank", &ExecRequest::rank, Range{0, limits::kTasksMax - 1});
  v.optional("pty", &ExecRequest::pty);
}

template <class Visitor>
void describe(Visitor& v, Of<api::TokenRequest>) {
  using api::TokenRequest;
  v.required("scope", &TokenRequest::scope);
  v.optional("label", &TokenRequest::label, kName);
  v.optional("lifetime", &TokenRequest::lifetime, DurationText{kSecond.count(), 366 * kDay.count()});
  v.optional("user", &TokenRequest::user, kNotEmptyName);
}

template <class Visitor>
void describe(Visitor& v, Of<api::DrainRequest>) {
  v.required("reason", &api::DrainRequest::reason, Text{limits::kSentenceBytes, Content::line, 1});
}

// --- answers
// -----------------------------------------------------------------------------------------------------
template <class Visitor>
void describe(Visitor& v, Of<api::TokenRow>) {
  using api::TokenRow;
  v.required("id", &TokenRow::id, kId);
  v.required("user", &TokenRow::user, kName);
  v.required("uid", &TokenRow::uid, kCount32);
  v.required("scope", &TokenRow::scope);
  v.optional("label", &TokenRow::label, kName);
  v.required("created", &TokenRow::created, kTime);
  v.required("expires", &TokenRow::expires, kTime);
}

template <class Visitor>
void describe(Visitor& v, Of<api::TokenCreated>) {
  v.required("token", &api::TokenCreated::token, kName);
  v.required("row", &api::TokenCreated::row);
}

template <class Visitor>
void describe(Visitor& v, Of<api::TokenList>) {
  v.required("tokens", &api::TokenList::tokens, List{limits::kListItems, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<api::ArrayRange>) {
  v.required("first", &api::ArrayRange::first, kId);
  v.required("count", &api::ArrayRange::count, kCount32);
}

template <class Visitor>
void describe(Visitor& v, Of<api::SubmitResponse>) {
  using api::SubmitResponse;
  v.required("job", &SubmitResponse::job, kId);
  v.optional("array", &SubmitResponse::array);
  v.required("state", &SubmitResponse::state);
  v.optional("explanation", &SubmitResponse::explanation);
}

template <class Visitor>
void describe(Visitor& v, Of<api::DryRunResponse>) {
  using api::DryRunResponse;
  v.required("would_start", &DryRunResponse::would_start);
  v.required("forecast", &DryRunResponse::forecast);
  v.defaulted("reason", &DryRunResponse::reason, kLongText);
}

template <class Visitor>
void describe(Visitor& v, Of<api::ArrayElement>) {
  v.required("first", &api::ArrayElement::first, kId);
  v.required("index", &api::ArrayElement::index, kCount32);
}

// `Summary` is JobSummary or what extends it: the fields stand in one object.
template <class Visitor, class Summary>
void describe_summary(Visitor& v) {
  v.required("job", &Summary::job, kId);
  v.optional("array", &Summary::array);
  v.defaulted("display", &Summary::display, kName);
  v.optional("name", &Summary::name, kName);
  v.required("user", &Summary::user, kName);
  v.required("uid", &Summary::uid, kCount32);
  v.defaulted("queue", &Summary::queue, kQueuePath);
  v.required("class", &Summary::job_class);
  v.required("state", &Summary::state);
  v.optional("reason", &Summary::reason, kLongText);
  v.defaulted("priority", &Summary::priority, kPriority);
  v.required("gpu", &Summary::gpu);
  v.defaulted("gpus", &Summary::gpus, List{limits::kListItems, kCount32});
  v.optional("tier", &Summary::tier);
  v.required("submitted", &Summary::submitted, kTime);
  v.optional("started", &Summary::started, kTime);
  v.optional("ended", &Summary::ended, kTime);
  v.required("time_limit", &Summary::time_limit, kDurationText);
  v.optional("exit_code", &Summary::exit_code, kExitCode);
  v.optional("signal", &Summary::signal, kSignal);
  v.optional("cause", &Summary::cause);
  v.required("attempt", &Summary::attempt, kCount32);
  v.defaulted("over_quota", &Summary::over_quota);
}

template <class Visitor>
void describe(Visitor& v, Of<api::JobSummary>) {
  describe_summary<Visitor, api::JobSummary>(v);
}

template <class Visitor>
void describe(Visitor& v, Of<api::TaskDetail>) {
  using api::TaskDetail;
  v.required("rank", &TaskDetail::rank, kCount32);
  v.required("attempt", &TaskDetail::attempt, kCount32);
  v.required("state", &TaskDetail::state);
  v.defaulted("node", &TaskDetail::node, kName);
  v.defaulted("gpus", &TaskDetail::gpus, List{limits::kSlicesPerTask, kName});
  v.optional("pid", &TaskDetail::pid, kPid);
  v.optional("started", &TaskDetail::started, kTime);
  v.optional("ended", &TaskDetail::ended, kTime);
  v.optional("exit_code", &TaskDetail::exit_code, kExitCode);
  v.optional("signal", &TaskDetail::signal, kSignal);
  v.optional("cause", &TaskDetail::cause);
}

template <class Visitor>
void describe(Visitor& v, Of<api::ShareRow>) {
  using api::ShareRow;
  v.required("rank", &ShareRow::rank, kCount32);
  v.required("gpu", &ShareRow::gpu, kCount32);
  v.required("guarantee_mib", &ShareRow::guarantee, kMemoryMib);
  v.required("limit_mib", &ShareRow::limit, kMemoryMib);
  v.required("charged_mib", &ShareRow::charged, kMemoryMib);
  v.defaulted("owed_mib", &ShareRow::owed, kMemoryMib);
  v.defaulted("denied", &ShareRow::denied, kAnyCount);
  v.defaulted("processes", &ShareRow::processes, kCount32);
  v.required("tier", &ShareRow::tier);
}

template <class Visitor>
void describe(Visitor& v, Of<api::HistoryEntry>) {
  v.required("time", &api::HistoryEntry::time, kTime);
  v.required("state", &api::HistoryEntry::state);
  v.defaulted("reason", &api::HistoryEntry::reason, kLongText);
}

template <class Visitor>
void describe(Visitor& v, Of<api::JobDetail>) {
  using api::JobDetail;
  describe_summary<Visitor, JobDetail>(v);
  v.optional("argv", &JobDetail::argv, List{limits::kArguments, kArgument});
  v.optional("directory", &JobDetail::directory, kPath);
  v.optional("stdout", &JobDetail::stdout_path, kPath);
  v.optional("stderr", &JobDetail::stderr_path, kPath);
  v.optional("environment_names", &JobDetail::environment_names, List{limits::kVariables, kArgument});
  v.optional("parameters", &JobDetail::parameters, Map{limits::kSweepParameters, kName, kArgument});
  v.optional("snapshot_of", &JobDetail::snapshot_of, kPath);
  v.defaulted("tasks_min", &JobDetail::tasks_min, kCount32);
  v.defaulted("tasks_max", &JobDetail::tasks_max, kCount32);
  v.defaulted("elastic", &JobDetail::elastic);
  v.defaulted("tasks", &JobDetail::tasks, List{limits::kListItems, kPlain});
  v.optional("shares", &JobDetail::shares, List{limits::kListItems, kPlain});
  v.defaulted("history", &JobDetail::history, List{limits::kListItems, kPlain});
  v.defaulted("dependencies", &JobDetail::dependencies, List{limits::kDependencies, kPlain});
  v.optional("begin", &JobDetail::begin, kTime);
  v.optional("grace", &JobDetail::grace, kDurationText);
  v.optional("retry", &JobDetail::retry);
  v.optional("limit_signal", &JobDetail::limit_signal);
  v.optional("explanation", &JobDetail::explanation);
}

template <class Visitor>
void describe(Visitor& v, Of<api::ArrayChange>) {
  using api::ArrayChange;
  v.required("array", &ArrayChange::array, kId);
  v.required("elements", &ArrayChange::elements, kCount32);
  v.required("changed", &ArrayChange::changed, kCount32);
  v.required("stopping", &ArrayChange::stopping, kCount32);
  v.required("unchanged", &ArrayChange::unchanged, kCount32);
}

template <class Visitor>
void describe(Visitor& v, Of<api::JobList>) {
  v.required("jobs", &api::JobList::jobs, List{limits::kListItems, kPlain});
  v.optional("next_cursor", &api::JobList::next_cursor, kName);
}

template <class Visitor>
void describe(Visitor& v, Of<api::SliceRow>) {
  using api::SliceRow;
  v.required("job", &SliceRow::job, kId);
  v.optional("display", &SliceRow::display, kName);
  v.required("user", &SliceRow::user, kName);
  v.required("kind", &SliceRow::kind);
  v.required("compute_milli", &SliceRow::compute, Range{0, limits::kComputeMilliMax});
  v.required("memory_mib", &SliceRow::memory, kMemoryMib);
  v.required("tier", &SliceRow::tier);
  v.optional("memory_limit_mib", &SliceRow::memory_limit, kMemoryMib);
  v.optional("memory_charged_mib", &SliceRow::memory_charged, kMemoryMib);
  v.optional("processes", &SliceRow::processes, kCount32);
}

template <class Visitor>
void describe(Visitor& v, Of<api::GpuProcess>) {
  using api::GpuProcess;
  v.required("pid", &GpuProcess::pid, kPid);
  v.defaulted("user", &GpuProcess::user, kName);
  v.optional("memory_mib", &GpuProcess::memory, kMemoryMib);
  v.optional("job", &GpuProcess::job, kId);
}

template <class Visitor>
void describe(Visitor& v, Of<api::GpuPeer>) {
  v.required("peer", &api::GpuPeer::peer, kCount32);
  v.required("kind", &api::GpuPeer::kind);
}

template <class Visitor>
void describe(Visitor& v, Of<api::MigDeviceRow>) {
  using api::MigDeviceRow;
  v.required("uuid", &MigDeviceRow::uuid, kName);
  v.required("gpu_instance", &MigDeviceRow::gpu_instance, kCount32);
  v.required("compute_instance", &MigDeviceRow::compute_instance, kCount32);
  v.required("multiprocessors", &MigDeviceRow::multiprocessors, kCount32);
  v.required("memory_mib", &MigDeviceRow::memory, kMemoryMib);
}

template <class Visitor>
void describe(Visitor& v, Of<api::GpuFault>) {
  using api::GpuFault;
  v.required("age", &GpuFault::age, kDurationText);
  v.required("xid", &GpuFault::xid, kCount32);
  v.required("of_the_job", &GpuFault::of_the_job);
  v.required("text", &GpuFault::text, kLongText);
  v.optional("jobs", &GpuFault::jobs, List{limits::kListItems, kId});
  v.optional("displays", &GpuFault::displays, List{limits::kListItems, kName});
}

template <class Visitor>
void describe(Visitor& v, Of<api::GpuStatus>) {
  using api::GpuStatus;
  v.required("index", &GpuStatus::index, kCount32);
  v.required("uuid", &GpuStatus::uuid, kName);
  v.required("type", &GpuStatus::type, kName);
  v.defaulted("name", &GpuStatus::name, kName);
  v.required("memory_total_mib", &GpuStatus::memory_total, kMemoryMib);
  v.optional("memory_used_mib", &GpuStatus::memory_used, kMemoryMib);
  v.required("memory_free_for_slices_mib", &GpuStatus::memory_free_for_slices, kMemoryMib);
  v.defaulted("compute_free_milli", &GpuStatus::compute_free, Range{0, limits::kComputeMilliMax});
  v.optional("utilisation_percent", &GpuStatus::utilisation_percent, Range{0, 100});
  v.optional("temperature_celsius", &GpuStatus::temperature_celsius, Range{-273, 1000});
  v.optional("power_milliwatts", &GpuStatus::power_milliwatts, kAnyCount);
  v.required("health", &GpuStatus::health);
  v.defaulted("drained", &GpuStatus::drained);
  v.defaulted("reason", &GpuStatus::reason, kLongText);
  v.defaulted("slices", &GpuStatus::slices, List{limits::kListItems, kPlain});
  v.defaulted("processes", &GpuStatus::processes, List{limits::kListItems, kPlain});
  v.optional("sample_age", &GpuStatus::sample_age, kDurationText);
  v.optional("numa_node", &GpuStatus::numa_node, Range{0, INT32_MAX});
  v.optional("cpu_affinity", &GpuStatus::cpu_affinity, kLongText);
  v.optional("links", &GpuStatus::links, List{limits::kListItems, kPlain});
  v.optional("whole_only", &GpuStatus::whole_only);
  v.optional("mig_enabled", &GpuStatus::mig_enabled);
  v.optional("mig_devices", &GpuStatus::mig_devices, List{limits::kListItems, kPlain});
  v.optional("faults", &GpuStatus::faults, List{limits::kListItems, kPlain});
  v.optional("let_go", &GpuStatus::let_go);
}

template <class Visitor>
void describe(Visitor& v, Of<api::GpuList>) {
  v.required("gpus", &api::GpuList::gpus, List{limits::kListItems, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<api::ProcessRow>) {
  using api::ProcessRow;
  v.required("gpu", &ProcessRow::gpu, kCount32);
  v.required("pid", &ProcessRow::pid, kPid);
  v.defaulted("user", &ProcessRow::user, kName);
  v.required("uid", &ProcessRow::uid, kCount32);
  v.optional("job", &ProcessRow::job, kId);
  v.optional("memory_mib", &ProcessRow::memory, kMemoryMib);
  v.required("managed", &ProcessRow::managed);
  v.optional("command", &ProcessRow::command, kLongText);
}

template <class Visitor>
void describe(Visitor& v, Of<api::ProcessList>) {
  v.required("processes", &api::ProcessList::processes, List{limits::kListItems, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<api::QueueList>) {
  v.required("queues", &api::QueueList::queues, List{limits::kListItems, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<api::StatusReport>) {
  using api::StatusReport;
  v.required("version", &StatusReport::version, kName);
  v.required("started", &StatusReport::started, kTime);
  v.required("gpus", &StatusReport::gpus, kCount32);
  v.required("jobs_running", &StatusReport::jobs_running, kCount32);
  v.required("jobs_waiting", &StatusReport::jobs_waiting, kCount32);
  v.required("journal_seq", &StatusReport::journal_seq, kAnyCount);
  v.optional("state_hash", &StatusReport::state_hash, Hex64{});
  v.defaulted("mode", &StatusReport::mode, kName);
  v.defaulted("tiers", &StatusReport::tiers, List{size_t{64}, kLongText});
}

template <class Visitor>
void describe(Visitor& v, Of<api::DoctorCheck>) {
  using api::DoctorCheck;
  v.required("name", &DoctorCheck::name, kName);
  v.required("status", &DoctorCheck::status);
  v.defaulted("detail", &DoctorCheck::detail, kLongText);
  v.defaulted("help", &DoctorCheck::help, kLongText);
}

template <class Visitor>
void describe(Visitor& v, Of<api::DoctorReport>) {
  v.required("checks", &api::DoctorReport::checks, List{limits::kListItems, kPlain});
}

template <class Visitor>
void describe(Visitor& v, Of<api::PolicySummary>) {
  using api::PolicySummary;
  v.required("queues", &PolicySummary::queues, kCount32);
  v.defaulted("changed", &PolicySummary::changed);
  v.required("sentences", &PolicySummary::sentences, List{limits::kListItems, kLongText});
}

template <class Visitor>
void describe(Visitor& v, Of<api::Problem>) {
  using api::Problem;
  v.required("type", &Problem::type, kName);
  v.defaulted("title", &Problem::title, kSentence);
  v.required("status", &Problem::status, Range{100, 599});
  v.defaulted("detail", &Problem::detail, kLongText);
  v.optional("line", &Problem::line, kCount32);
  v.optional("column", &Problem::column, kCount32);
}

}  // namespace tranche::json

namespace tranche::api {

std::string check_decoded(const SubmitRequest& request);
std::string check_decoded(const UpdateRequest& request);
std::string check_decoded(const ExecRequest& request);
std::string check_decoded(const DrainRequest& request);

}  // namespace tranche::api
