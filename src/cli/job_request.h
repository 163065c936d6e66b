// The options of a job into the request that is sent. Errors are invalid_argument or not_available_yet and
// name the option.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cli/arguments.h"
#include "codec/api.h"

namespace tranche::cli {

class Session;

// Fills everything but what is to be executed (argv or script). Reads no file; the environment, directory and
// clock are the session's.
Result<api::SubmitRequest> make_submit_request(Session& session, const Arguments& arguments);

// Whether the options could stand in a request: their values, how they go together, and the bounds that the
// daemon checks of each field. For scripts' directives, whose line is known only while they are read.
Result<void> check_job_options(const Arguments& arguments);

// --- parts, for tests -------------------------------------------------------------------------------------
// -G with --gpu-mem, --gpu-compute and --exclusive. `count` 0 is no GPU.
Result<GpuRequest> parse_gpu_request(const Arguments& arguments);
// The value of --gpu-mem: "20G", or "10G..20G", guaranteed and up to.
Result<void> parse_gpu_memory(const std::string& text, GpuRequest& gpu);
// "-5" to "1000000"
Result<int32_t> parse_priority(std::string_view text);
// "3" of each kind, or "error:1,oom:1,infrastructure:3". Without a delay.
Result<api::RetryRequest> parse_retry(std::string_view text);
// "USR1@120", "SIGTERM@5m", "10"
Result<api::SignalRequest> parse_limit_signal(std::string_view text);
// "mail:ended", "mail:started,failed chat:ended"; "mail" alone is mail:ended.
Result<std::vector<api::NotifyRequest>> parse_notify(std::string_view text);
// "USR1", "SIGUSR1" or "10"
Result<int32_t> parse_signal(std::string_view text);
// "1-9%3", "1,5-8", "0-20:5"
Result<ArraySpec> parse_array(std::string_view text);
// "4" or "2-4"
Result<api::TaskCount> parse_task_count(std::string_view text);
// RFC 3339, "2026-12-01T08:30[:00]" and "08:30" in local time, "now+2h". Never in the past for "08:30".
Result<Time> parse_begin(std::string_view text, Time now);
// ALL, NONE, "ALL,A=b", "A,B=c". Variables that are chosen but are not UTF-8 are left out and named in
// `left_out`.
Result<std::vector<std::pair<std::string, std::string>>> parse_export(
    std::string_view text, const std::vector<std::string>& environment, std::vector<std::string>& left_out);

}  // namespace tranche::cli
