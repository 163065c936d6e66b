// The JSON of the model's values that stand both in events and in the API. docs/journal.md describes them.
#pragma once

#include <string>

#include "codec/json_fields.h"
#include "model/gpu.h"
#include "model/job.h"

namespace tranche::json {

template <class Visitor>
void describe(Visitor& v, Of<TaskKey>) {
  v.required("job", &TaskKey::job, kId);
  v.required("rank", &TaskKey::rank, Range{0, limits::kTasksMax - 1});
  v.required("attempt", &TaskKey::attempt, Range{1, UINT32_MAX});
}

template <class Visitor>
void describe(Visitor& v, Of<GpuRequest>) {
  v.required("count", &GpuRequest::count, Range{0, limits::kGpusPerTaskMax});
  v.defaulted("kind", &GpuRequest::kind);
  v.optional("compute_milli", &GpuRequest::compute, Range{0, limits::kComputeMilliMax});
  v.optional("memory_mib", &GpuRequest::memory, kMemoryMib);
  v.optional("memory_limit_mib", &GpuRequest::memory_limit, kMemoryMib);
  v.optional("type", &GpuRequest::type, kName);
  v.optional("count_max", &GpuRequest::count_max, Range{0, limits::kGpusPerTaskMax});
  v.optional("topology", &GpuRequest::topology);
}

template <class Visitor>
void describe(Visitor& v, Of<Dependency>) {
  v.required("kind", &Dependency::kind);
  v.required("job", &Dependency::job, kId);
}

template <class Visitor>
void describe(Visitor& v, Of<ArraySpec>) {
  v.required("indices", &ArraySpec::indices, List{limits::kArrayElements, Range{0, limits::kArrayIndexMax}});
  v.optional("running_max", &ArraySpec::running_max, kCount32);
}

}  // namespace tranche::json

namespace tranche {

inline std::string check_decoded(const ArraySpec& array) {
  for (size_t i = 1; i < array.indices.size(); ++i) {
    if (array.indices[i - 1] >= array.indices[i]) return "indices must ascend and be distinct";
  }
  return "";
}

}  // namespace tranche
