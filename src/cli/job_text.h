// A job in the words and columns of the lists, and as an exit code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "cli/table.h"
#include "codec/api.h"

namespace tranche::cli {

// The request for each task with its tier where it is no whole GPU: "2", "h100-80:2", "0.5 unenforced",
// "20G unenforced", "-" for none.
std::string gpu_text(const api::JobSummary& job);
// Of one slice: "whole", "0.5 20G unenforced".
std::string slice_text(const api::SliceRow& slice);
// GPU indices: "0-3,6"; "-" for none.
std::string indices_text(std::span<const uint32_t> indices);
// How long it ran or has run; "-" if it has not started.
std::string elapsed_text(const api::JobSummary& job, Time now);
// How it ended: "0", "1", "signal 9"; "-" if it has not.
std::string exit_text(const api::JobSummary& job);
// For people, in local time without the fraction: "2026-12-01 08:30:00 CET".
std::string local_time_text(Time time);
// A sentence of the daemon's with its times, which are UTC there, in the same spelling.
std::string with_local_times(std::string_view sentence);
// Rounded to seconds: "2h30m".
std::string duration_text(Duration duration);

Style state_style(JobState state);

// The program's exit code for a job that has ended (reference: docs/cli.md).
int job_exit_code(const api::JobSummary& job);

// "job 7", or "job 7_3".
std::string job_label(const api::JobSummary& job);

inline constexpr int kExitTimeLimit = 124;
inline constexpr int kExitTrancheFailed = 125;
inline constexpr int kExitOutOfMemory = 137;
inline constexpr int kExitSignalBase = 128;

}  // namespace tranche::cli
