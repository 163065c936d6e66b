#include "cli/job_options.h"

namespace tranche::cli {
namespace {

constexpr std::string_view kWholeOrFraction = "ask for whole GPUs (-G 2) or a fraction (-G 0.5) instead";

constexpr Option kResources[] = {
    {"-G,--gpus", "N|TYPE:N|N..M|0.5",
     "GPUs for each task: a number, of a type, as many as are free when it starts, or a fraction of one"},
    {"--gpu-mem", "SIZE",
     "a part of each GPU, not the whole, with that memory: 20G, or 10G..20G: guaranteed, and up to while it "
     "is free"},
    {"--gpu-compute", "PERCENT", "compute of a fraction: 30%"},
    {"--exclusive", "", "whole GPUs, shared with nobody (what -G N means anyway)"},
    {"--mig", "PROFILE", "a MIG instance: 2g.20gb", kWholeOrFraction},
    {"--turns", "QUANTUM", "turns on whole GPUs with other jobs", kWholeOrFraction},
    {"--nvlink", "", "only GPUs that are joined by NVLink with each other (preferred anyway)"},
    {"--numa", "", "only GPUs of one NUMA node (preferred anyway, after NVLink)"},
    {"-c,--cpus,--cpus-per-task", "N", "CPU cores for each task; 0.5 is half a core"},
    {"--mem", "SIZE", "host memory limit for each task: 32G; a bare number is MiB"},
    {"-n,--tasks,--ntasks", "N|MIN-MAX",
     "tasks that start together or not at all; a range: as many as fit when it starts"},
    {"--elastic", "", "tasks come and go while it runs: with -G 1..4 (one GPU each) or -n 1-4"},
    {"-t,--time", "DURATION", "time limit: 90 (minutes), 2h, 1d12h, 1-12:00:00"},
};

constexpr Option kJob[] = {
    {"-J,--name,--job-name", "NAME", "name of the job"},
    {"-q,--queue,-p,--partition", "PATH", "queue: physics/vision"},
    {"-A,--project,--account", "NAME", "project to charge",
     "name its queue with -q, as in -q physics/vision"},
    {"--class", "CLASS", "training, inference or interactive"},
    {"--priority", "N", "higher runs first within the queue"},
    {"-d,--dependency", "KIND:ID[:ID]",
     "afterok, afternotok, afterany or after (its start); several with commas"},
    {"-a,--array", "1-9%3", "one job for each index, at most 3 at a time"},
    {"--sweep,--param", "'NAME=A,B ...'",
     "one job for each combination: 'lr=0.1,0.01 seed=1..5 %4'; {lr} in the command, $lr in its environment"},
    {"--param-file", "FILE",
     "the same from a file, NAME=A,B a line, # begins a comment; together with --sweep all combinations of "
     "both"},
    {"-H,--hold", "", "do not start before 'tranche release'"},
    {"--begin", "TIME", "not before: 08:30, 2026-12-01T08:30, now+2h"},
    {"--deadline", "TIME", "end before this time", "a time limit (-t) bounds the run itself"},
    {"-o,--output", "FILE", "standard output; %j is the job, %x its name (default tranche-%j.out)"},
    {"-e,--error", "FILE", "standard error (default: where the output goes)"},
    {"-i,--input", "FILE", "standard input (default: /dev/null)"},
    {"-D,--chdir", "DIRECTORY", "working directory (default: this one)"},
    {"--export", "ALL|NONE|LIST", "environment: ALL, NONE, ALL,NAME=value or NAME,NAME=value"},
    {"--requeue", "", "run again if its node fails"},
    {"--no-requeue", "", "end as node_failed instead"},
    {"--grace", "DURATION", "time between SIGTERM and SIGKILL: 30s"},
    {"--retry,--retries", "N|KIND:N", "try again after a failure: 3, or error:1,oom:1,infrastructure:3"},
    {"--retry-delay", "DURATION", "pause before the first retry, doubled for each further one (default 10s)"},
    {"--signal", "SIGNAL@TIME", "a signal before the time limit: USR1@5m; a bare number is seconds"},
    {"--notify", "WHERE:EVENT,...",
     "tell when it is started, ended or failed: mail:ended, or a hook of this server; several with spaces"},
    {"--image", "IMAGE", "run in a container image", "the command runs in this machine's own file system"},
    {"--reservation", "ID", "run inside a booking", "there are no bookings yet"},
    {"--snapshot", "",
     "run a copy of the source tree as it is now: what .gitignore and .trancheignore leave out is not in it"},
};

}  // namespace

std::span<const Option> resource_options() { return kResources; }
std::span<const Option> job_options() { return kJob; }

}  // namespace tranche::cli
