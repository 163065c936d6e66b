// The bounds of everything that is decoded: one place, so that the documents, the API and the journal agree.
// A value past its bound is refused in a sentence that names the field and the bound.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/quantity_text.h"
#include "base/units.h"

namespace tranche::limits {

inline constexpr size_t kJsonDepth = 32;
inline constexpr size_t kNameBytes = 128;   // names of jobs, users, types, pools: no control characters
inline constexpr size_t kPathBytes = 4096;  // PATH_MAX of Linux
inline constexpr size_t kQueuePathBytes = 512;
inline constexpr size_t kQueueLevels = 8;       // the user's leaf is one of them
inline constexpr size_t kSentenceBytes = 1024;  // reasons and other text for people
inline constexpr size_t kArgumentBytes =
    131'071;  // one argument or variable: MAX_ARG_STRLEN of Linux, less its NUL
inline constexpr size_t kArguments = 16'384;
inline constexpr size_t kArgumentsBytes = size_t{1} << 20;  // argv together
inline constexpr size_t kVariables = 4'096;
inline constexpr size_t kEnvironmentBytes = size_t{1} << 20;  // names and values together
inline constexpr size_t kScriptBytes = size_t{1} << 20;
inline constexpr size_t kArrayElements = 100'000;
inline constexpr size_t kNotices = 8;  // of one job
inline constexpr size_t kHooks = 16;
inline constexpr size_t kSweepParameters = 16;
inline constexpr size_t kSweepNameBytes = 64;
inline constexpr size_t kSweepValueBytes = 1'024;
inline constexpr size_t kDependencies = 1'000;
inline constexpr size_t kQueues = 10'000;
inline constexpr size_t kListItems = 1'000'000;  // rows of one answer
inline constexpr size_t kGpuLinks = 1'024;
inline constexpr size_t kSlicesPerTask = 1'024;
inline constexpr size_t kDecisionsPerEvent = 10'000'000;
inline constexpr size_t kLabels = 256;
inline constexpr size_t kTopologyLevels = 16;
inline constexpr size_t kTaskGroups = 1'024;    // of one job
inline constexpr size_t kAllowedNodes = 4'096;  // of one job or group

inline constexpr int64_t kIdMax = INT64_MAX;
inline constexpr uint32_t kSmallIdMax = UINT32_MAX;  // NodeId, GpuId
inline constexpr int64_t kGpusPerTaskMax = 100'000;
inline constexpr int64_t kTasksMax = 1'000'000;
inline constexpr int64_t kArrayIndexMax = 999'999'999;
inline constexpr int64_t kComputeMilliMax = 1'000;               // of one GPU
inline constexpr int64_t kQueueComputeMilliMax = 1'000'000'000;  // a million GPUs
inline constexpr int64_t kCpuMilliMax = 1'000'000'000;
inline constexpr int64_t kMemoryMibMax = kMemoryMax.count();
inline constexpr int64_t kRetriesMax = 100;         // of one kind of failure
inline constexpr int64_t kSignalMax = 64;           // SIGRTMAX of Linux
inline constexpr int64_t kPriorityMax = 1'000'000;  // and the same below zero
inline constexpr int64_t kWeightMax = 1'000'000;
inline constexpr int64_t kTimeMax = INT64_MAX;
inline constexpr int64_t kDurationNanosecondsMax = kDurationMax.count();

}  // namespace tranche::limits
