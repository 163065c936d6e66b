// The values of the HTTP API, typed: the daemon encodes answers and decodes requests, the command line does
// the reverse. The contract for people is api/openapi.yaml; a test holds both against each other.
//
// In JSON: times are RFC 3339 with nine digits, durations text with a unit ("90s"), sizes MiB, compute
// thousandths of a GPU. A std::optional that is unset, and what is marked "left out if", does not stand
// there. `struct` members have the JSON names but for the units (`memory` is "memory_mib").
//
// Requests are strict: unknown fields are refused with the nearest name, everything is bounded
// (codec/limits.h), duplicates and malformed text are refused with line and column. Answers are read
// tolerantly: an older command line ignores what a newer daemon adds.
// The caller limits the size of the text. Threading: pure functions. Errors: invalid_argument or too_large.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "model/answer.h"
#include "model/enums.h"
#include "model/event.h"
#include "model/gpu.h"
#include "model/job.h"

namespace tranche::api {

// How strongly a slice is fenced (design section 6), strongest first.
#define TRANCHE_TIER(X) X(enforced) X(guarded) X(courtesy) X(unenforced)
TRANCHE_ENUM(Tier, TRANCHE_TIER)

#define TRANCHE_CHECK_STATUS(X) X(ok) X(warn) X(fail)
TRANCHE_ENUM(CheckStatus, TRANCHE_CHECK_STATUS)

// --- requests ---------------------------------------------------------------------------------------------
// In JSON a number, or {"min":2,"max":4}: as many as fit when it starts, or while it runs if it is elastic.
struct TaskCount {
  uint32_t min = 1;
  uint32_t max = 1;
  bool operator==(const TaskCount&) const = default;
};

// How often the job is tried again, by what ended it, and the pause before the first retry of each kind.
struct RetryRequest {
  uint32_t error = 0;
  uint32_t out_of_memory = 0;
  uint32_t infrastructure = 0;
  std::optional<Duration> delay;  // doubled for each further one; unset: the daemon's
  bool operator==(const RetryRequest&) const = default;
};

// A signal some time before the time limit.
struct SignalRequest {
  int32_t number = 0;
  Duration before;
  bool operator==(const SignalRequest&) const = default;
};

// What a notice tells of a job; `failed`: it ended otherwise than completed.
#define TRANCHE_NOTICE_KIND(X) X(started) X(ended) X(failed)
TRANCHE_ENUM(NoticeKind, TRANCHE_NOTICE_KIND)

// Whom to tell: "mail", or the name of a [hook.NAME] of the configuration.
struct NotifyRequest {
  std::string where;
  std::vector<NoticeKind> events;
  bool operator==(const NotifyRequest&) const = default;
};

// What the holder of a token may do, as its user: look; submit and change the user's jobs too; act as an
// operator too, while the user is one.
#define TRANCHE_TOKEN_SCOPE(X) X(read) X(jobs) X(operate)
TRANCHE_ENUM(TokenScope, TRANCHE_TOKEN_SCOPE)

// One parameter of a sweep (codec/sweep.h).
struct SweepParameter {
  std::string name;
  std::vector<std::string> values;
  bool operator==(const SweepParameter&) const = default;
};

// POST /v1/jobs and /v1/run. Exactly one of argv and script. Who submits is what the kernel says, never a
// field.
struct SubmitRequest {
  std::optional<std::string> name;
  std::vector<std::string> argv;
  std::optional<std::string> script;  // text, with its #! line
  std::vector<std::string> script_args;
  std::vector<std::pair<std::string, std::string>> environment;  // sorted by name, distinct
  std::string directory;                                         // absolute
  std::optional<uint32_t> umask;                                 // an integer up to 511 (0777)
  std::optional<std::string> stdout_path;  // "stdout" in JSON; may hold %j and other patterns
  std::optional<std::string> stderr_path;  // "stderr"
  std::optional<std::string> stdin_path;   // "stdin"
  std::optional<std::string> queue;
  std::optional<JobClass> job_class;  // "class" in JSON
  std::optional<int32_t> priority;
  std::optional<bool> preemptible;
  std::optional<bool> requeue;
  bool held = false;
  std::optional<GpuRequest> gpu;  // unset: no GPU
  std::optional<MilliCpu> cpu;
  std::optional<MiB> memory;  // of the host
  std::optional<TaskCount> tasks;
  bool elastic = false;  // tasks come and go between tasks.min and tasks.max while it runs
  std::optional<Duration> time_limit;
  std::optional<Duration> grace;
  std::optional<RetryRequest> retry;
  std::optional<SignalRequest> signal;
  std::optional<Time> begin;
  std::vector<Dependency> dependencies;
  std::optional<ArraySpec> array;
  std::vector<SweepParameter> sweep;  // its combinations are the elements of `array`, whose indices are 1..N
  std::optional<std::string> snapshot_of;  // `directory` is a copy of this one, made when it was submitted
  std::vector<NotifyRequest> notify;
  bool pty = false;  // /v1/run only
  std::string node_pool;
  bool operator==(const SubmitRequest&) const = default;
};

// POST /v1/jobs/{id}/update. What is unset stays as it is.
struct UpdateRequest {
  std::optional<std::string> name;
  std::optional<Duration> time_limit;
  std::optional<Duration> grace;
  std::optional<int32_t> priority;
  std::optional<Time> begin;
  std::optional<std::vector<Dependency>> dependencies;  // instead of what it had
  bool first = false;                                   // before all others of its queue that wait
  std::optional<MiB> gpu_memory;                        // of each GPU that it shares; guaranteed
  std::optional<MiB> gpu_memory_limit;                  // with it: up to this while it is free
  bool operator==(const UpdateRequest&) const = default;
};

// POST /v1/jobs/{id}/exec. A command inside one of the job's tasks, with the job's environment and these
// besides.
struct ExecRequest {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;
  std::optional<std::string> directory;  // absolute; unset: the job's
  uint32_t rank = 0;
  bool pty = false;
  bool operator==(const ExecRequest&) const = default;
};

// POST /v1/tokens
struct TokenRequest {
  TokenScope scope = TokenScope::read;
  std::string label;                 // what it is for, for people
  std::optional<Duration> lifetime;  // unset: 30 days
  std::optional<std::string> user;   // operators only: somebody else's
  bool operator==(const TokenRequest&) const = default;
};

// POST /v1/gpus/{index}/drain
struct DrainRequest {
  std::string reason;
  bool operator==(const DrainRequest&) const = default;
};

// --- answers
// ------------------------------------------------------------------------------------------------
struct ArrayRange {
  JobId first;
  uint32_t count = 0;
  bool operator==(const ArrayRange&) const = default;
};

struct SubmitResponse {
  JobId job;
  std::optional<ArrayRange> array;
  JobState state = JobState::pending;
  std::optional<Explanation> explanation;
  bool operator==(const SubmitResponse&) const = default;
};

// The answer to ?dry_run=true.
struct DryRunResponse {
  bool would_start = false;  // at once
  Forecast forecast;
  std::string reason;
  bool operator==(const DryRunResponse&) const = default;
};

struct ArrayElement {
  JobId first;
  uint32_t index = 0;
  bool operator==(const ArrayElement&) const = default;
};

struct JobSummary {
  JobId job;
  std::optional<ArrayElement> array;
  std::string display;              // "7" or "7_3"
  std::optional<std::string> name;  // owner and operators only
  std::string user;
  uint32_t uid = 0;
  std::string queue;
  JobClass job_class = JobClass::training;
  JobState state = JobState::pending;
  std::optional<std::string> reason;  // one sentence; of waiting or of the end
  int32_t priority = 0;
  GpuRequest gpu;              // count 0: none; for each task
  std::vector<uint32_t> gpus;  // indices of the GPUs that it holds
  std::optional<Tier> tier;    // unset without a GPU
  Time submitted;
  std::optional<Time> started;  // of this attempt
  std::optional<Time> ended;
  Duration time_limit;
  std::optional<int32_t> exit_code;
  std::optional<int32_t> signal;
  std::optional<ExitCause> cause;
  uint32_t attempt = 1;
  bool over_quota = false;
  bool operator==(const JobSummary&) const = default;
};

struct TaskDetail {
  uint32_t rank = 0;
  uint32_t attempt = 1;
  JobState state = JobState::pending;
  std::string node;
  std::vector<std::string> gpus;  // UUIDs
  std::optional<int64_t> pid;     // owner and operators only
  std::optional<Time> started;
  std::optional<Time> ended;
  std::optional<int32_t> exit_code;
  std::optional<int32_t> signal;
  std::optional<ExitCause> cause;
  bool operator==(const TaskDetail&) const = default;
};

// What one task may use of one GPU's memory, and uses, as the arbiter has it now.
struct ShareRow {
  uint32_t rank = 0;
  uint32_t gpu = 0;  // index
  MiB guarantee;
  MiB limit;
  MiB charged;          // rounded up
  MiB owed;             // of what it borrows beyond the guarantee, to be given back
  uint64_t denied = 0;  // requests refused
  uint32_t processes = 0;
  Tier tier = Tier::guarded;
  bool operator==(const ShareRow&) const = default;
};

struct HistoryEntry {
  Time time;
  JobState state = JobState::pending;
  std::string reason;  // "" if there is nothing to say
  bool operator==(const HistoryEntry&) const = default;
};

// In JSON the fields of JobSummary and these beside them, in one object.
struct JobDetail : JobSummary {
  // Owner and operators only:
  std::optional<std::vector<std::string>> argv;
  std::optional<std::string> directory;
  std::optional<std::string> stdout_path;  // "stdout" in JSON, resolved
  std::optional<std::string> stderr_path;  // "stderr"
  std::optional<std::vector<std::string>> environment_names;
  std::optional<std::vector<std::pair<std::string, std::string>>> parameters;  // of a sweep's element
  std::optional<std::string> snapshot_of;  // the folder that `directory` is a copy of
  // Everybody:
  uint32_t tasks_min = 1;
  uint32_t tasks_max = 1;
  bool elastic = false;  // tasks come and go while it runs
  std::vector<TaskDetail> tasks;
  std::vector<ShareRow> shares;       // while it runs with parts of GPUs
  std::vector<HistoryEntry> history;  // oldest first
  std::vector<Dependency> dependencies;
  std::optional<Time> begin;
  std::optional<Duration> grace;
  std::optional<RetryRequest> retry;
  std::optional<SignalRequest> limit_signal;  // before its time limit
  std::optional<Explanation> explanation;     // while it waits
  bool operator==(const JobDetail&) const = default;
};

struct ArrayChange {  // POST /v1/arrays/{id}/cancel, hold and release: numbers of elements
  JobId array;
  uint32_t elements = 0;
  uint32_t changed = 0;    // are cancelled, held or released now
  uint32_t stopping = 0;   // ran, and are being ended
  uint32_t unchanged = 0;  // had ended, or were not in a state that this changes
  bool operator==(const ArrayChange&) const = default;
};

struct JobList {  // GET /v1/jobs and /v1/history
  std::vector<JobSummary> jobs;
  std::optional<std::string> next_cursor;
  bool operator==(const JobList&) const = default;
};

struct SliceRow {
  JobId job;
  std::string display;  // "7" or "7_3"
  std::string user;
  SliceKind kind = SliceKind::whole;
  MilliGpu compute;
  MiB memory;
  Tier tier = Tier::enforced;
  std::optional<MiB> memory_limit{};    // of a burst: up to this while it is free
  std::optional<MiB> memory_charged{};  // unset: not a part, or not known
  std::optional<uint32_t> processes{};  // that the guard has registered; unset alike
  bool operator==(const SliceRow&) const = default;
};

struct GpuProcess {
  int64_t pid = 0;
  std::string user;
  std::optional<MiB> memory;  // unset: the driver does not say
  std::optional<JobId> job;   // unset: not one of ours
  bool operator==(const GpuProcess&) const = default;
};

// How a GPU reaches another one.
struct GpuPeer {
  uint32_t peer = 0;  // index
  LinkKind kind = LinkKind::system;
  bool operator==(const GpuPeer&) const = default;
};

// A compute instance of a GPU in MIG mode.
struct MigDeviceRow {
  std::string uuid;
  uint32_t gpu_instance = 0;
  uint32_t compute_instance = 0;
  uint32_t multiprocessors = 0;
  MiB memory;
  bool operator==(const MigDeviceRow&) const = default;
};

// An error that the driver has reported; the log keeps them.
struct GpuFault {
  Duration age;
  uint32_t xid = 0;
  bool of_the_job = false;            // the program's error, not the GPU's
  std::string text;                   // a sentence
  std::vector<JobId> jobs;            // that held the GPU then
  std::vector<std::string> displays;  // the same, as users write them
  bool operator==(const GpuFault&) const = default;
};

// What is measured is unset when it is not known: never zero (design section 11).
struct GpuStatus {
  uint32_t index = 0;
  std::string uuid;
  std::string type;
  std::string name;
  MiB memory_total;
  std::optional<MiB> memory_used;
  MiB memory_free_for_slices;
  MilliGpu compute_free;  // for slices
  std::optional<uint32_t> utilisation_percent;
  std::optional<int32_t> temperature_celsius;
  std::optional<int64_t> power_milliwatts;
  Health health = Health::ok;
  bool drained = false;
  std::string reason;  // of drain or ill health, or ""
  std::vector<SliceRow> slices;
  std::vector<GpuProcess> processes;
  std::optional<Duration> sample_age;  // unset: never sampled
  std::optional<int32_t> numa_node;    // unset: unknown
  std::string cpu_affinity;            // processors next to it, "0-15,32-47", or ""
  std::vector<GpuPeer> links;          // to each other GPU of the machine
  bool whole_only = false;             // a virtual GPU: it cannot be shared
  std::optional<bool> mig_enabled;
  std::vector<MigDeviceRow> mig_devices;
  std::vector<GpuFault> faults;  // the last 16, newest last
  bool let_go = false;           // Tranche does not hold it open: it can be reset
  bool operator==(const GpuStatus&) const = default;
};

struct GpuList {
  std::vector<GpuStatus> gpus;
  bool operator==(const GpuList&) const = default;
};

// GET /v1/who: one process on one GPU.
struct ProcessRow {
  uint32_t gpu = 0;  // index
  int64_t pid = 0;
  std::string user;
  uint32_t uid = 0;
  std::optional<JobId> job;
  std::optional<MiB> memory;
  bool managed = false;
  std::optional<std::string> command;  // own processes only
  bool operator==(const ProcessRow&) const = default;
};

struct ProcessList {
  std::vector<ProcessRow> processes;
  bool operator==(const ProcessList&) const = default;
};

// In JSON one object; quota_milli and limit_milli are left out if the queue has none.
struct QueueRow : QueueShare {
  std::optional<std::string> arithmetic;  // one sentence, in /v1/share
  bool operator==(const QueueRow&) const = default;
};

struct QueueList {
  std::vector<QueueRow> queues;
  bool operator==(const QueueList&) const = default;
};

struct StatusReport {
  std::string version;
  Time started;
  uint32_t gpus = 0;
  uint32_t jobs_running = 0;
  uint32_t jobs_waiting = 0;
  uint64_t journal_seq = 0;
  std::optional<uint64_t> state_hash;  // in JSON 16 hex digits; only when asked for
  std::string mode;                    // "system" or "personal", and "emulated" beside it: "system, emulated"
  std::vector<std::string> tiers;      // a sentence each: what is enforced here and what is not
  bool operator==(const StatusReport&) const = default;
};

struct DoctorCheck {
  std::string name;
  CheckStatus status = CheckStatus::ok;
  std::string detail;
  std::string help;  // what to do; "" if ok
  bool operator==(const DoctorCheck&) const = default;
};

struct DoctorReport {
  std::vector<DoctorCheck> checks;
  bool operator==(const DoctorReport&) const = default;
};

struct TokenRow {
  uint64_t id = 0;
  std::string user;
  uint32_t uid = 0;
  TokenScope scope = TokenScope::read;
  std::string label;
  Time created;
  Time expires;
  bool operator==(const TokenRow&) const = default;
};

// The answer to POST /v1/tokens: the only time that the token itself is told.
struct TokenCreated {
  std::string token;
  TokenRow row;
  bool operator==(const TokenCreated&) const = default;
};

struct TokenList {
  std::vector<TokenRow> tokens;
  bool operator==(const TokenList&) const = default;
};

// POST /v1/config/check and /v1/reload: what the policy means.
struct PolicySummary {
  uint32_t queues = 0;
  bool changed = false;  // reload: whether a new policy is in force
  std::vector<std::string> sentences;
  bool operator==(const PolicySummary&) const = default;
};

// RFC 9457. `type` is the error's code as text, `title` its meaning in a few words, `detail` the sentence.
struct Problem {
  std::string type;
  std::string title;
  int32_t status = 500;
  std::string detail;
  std::optional<uint32_t> line;  // of a text that was sent
  std::optional<uint32_t> column;
  bool operator==(const Problem&) const = default;
};

Problem to_problem(const Error& error);
// `internal` if the type is one that only a newer daemon knows.
Error to_error(const Problem& problem);

// --- JSON
// -----------------------------------------------------------------------------------------------------
// Declared for exactly these types; others do not link.
#define TRANCHE_API_REQUESTS(X) \
  X(SubmitRequest) X(UpdateRequest) X(ExecRequest) X(DrainRequest) X(TokenRequest)
// Version 14 never comes to rest on this list.
// clang-format off
#define TRANCHE_API_ANSWERS(X)                                                                     \
  X(SubmitResponse) X(DryRunResponse) X(JobSummary) X(JobDetail) X(ArrayChange) X(JobList) X(GpuStatus) X(GpuList) \
  X(ProcessList) X(QueueRow) X(QueueList) X(StatusReport) X(DoctorReport) X(PolicySummary)         \
  X(TokenCreated) X(TokenList) X(Problem) X(Explanation) X(Proof) X(Forecast)
// clang-format on

// What stands inside of those and has a schema of its own in the document.
#define TRANCHE_API_REQUEST_PARTS(X) \
  X(GpuRequest) X(ArraySpec) X(Dependency) X(RetryRequest) X(SignalRequest) X(SweepParameter) X(NotifyRequest)
// clang-format off
#define TRANCHE_API_ANSWER_PARTS(X)                                                                   \
  X(ArrayRange) X(ArrayElement) X(TaskDetail) X(ShareRow) X(HistoryEntry) X(SliceRow) X(GpuProcess) X(ProcessRow) \
  X(TokenRow) X(DoctorCheck) X(GpuPeer) X(MigDeviceRow) X(GpuFault)
// clang-format on

// Appends, so that a long list can be written into one buffer.
template <class Value>
void append_json(std::string& output, const Value& value);

template <class Value>
std::string encode(const Value& value) {
  std::string output;
  append_json(output, value);
  return output;
}

template <class Value>
Result<Value> decode(std::string_view json);

#define TRANCHE_API_DECODER(Type) \
  template <>                     \
  Result<Type> decode<Type>(std::string_view json);
TRANCHE_API_REQUESTS(TRANCHE_API_DECODER)
TRANCHE_API_ANSWERS(TRANCHE_API_DECODER)
#undef TRANCHE_API_DECODER

// --- for the check of api/openapi.yaml
// ---------------------------------------------------------------------------
struct FieldName {
  std::string name;
  bool required = false;
};
struct SchemaFields {
  std::string schema;  // "JobSummary"
  std::vector<FieldName> fields;
};
std::vector<SchemaFields> schema_fields();

}  // namespace tranche::api
