// The openb trace (Alibaba cluster-trace-gpu-v2023): nodes with GPUs of several models, and pods that ask for
// whole GPUs, a fraction of one, or none, some of them for certain models only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::replay {

struct OpenbNode {
  std::string name;
  int64_t cpu_milli = 0;
  int64_t memory_mib = 0;
  int64_t gpus = 0;
  std::string model;
};

struct OpenbPod {
  std::string name;
  int64_t cpu_milli = 0;
  int64_t memory_mib = 0;
  int64_t gpus = 0;
  int64_t gpu_milli = 0;            // of each GPU; 1000 is whole
  std::vector<std::string> models;  // empty: any
  int64_t total_milli() const { return gpus * gpu_milli; }
};

Result<std::vector<OpenbNode>> read_openb_nodes(const std::string& path);
Result<std::vector<OpenbPod>> read_openb_pods(const std::string& path);

}  // namespace tranche::replay
