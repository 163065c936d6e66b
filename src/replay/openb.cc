#include "replay/openb.h"

#include "replay/trace_file.h"

namespace tranche::replay {

Result<std::vector<OpenbNode>> read_openb_nodes(const std::string& path) {
  TRY_ASSIGN(const TraceTable table, TraceTable::read_csv(path));
  TRY_ASSIGN(const size_t name, table.column("sn"));
  TRY_ASSIGN(const size_t cpu, table.column("cpu_milli"));
  TRY_ASSIGN(const size_t memory, table.column("memory_mib"));
  TRY_ASSIGN(const size_t gpus, table.column("gpu"));
  TRY_ASSIGN(const size_t model, table.column("model"));
  std::vector<OpenbNode> nodes;
  for (size_t row = 0; row < table.rows(); ++row) {
    nodes.push_back({std::string(table.cell(row, name)), table.integer(row, cpu), table.integer(row, memory),
                     table.integer(row, gpus), std::string(table.cell(row, model))});
    if (nodes.back().gpus < 0 || nodes.back().gpus > 1024)
      return fail(ErrorCode::corrupt,
                  path + ": node " + nodes.back().name + " has an impossible number of GPUs");
  }
  TRY(table.check());
  return nodes;
}

Result<std::vector<OpenbPod>> read_openb_pods(const std::string& path) {
  TRY_ASSIGN(const TraceTable table, TraceTable::read_csv(path));
  TRY_ASSIGN(const size_t name, table.column("name"));
  TRY_ASSIGN(const size_t cpu, table.column("cpu_milli"));
  TRY_ASSIGN(const size_t memory, table.column("memory_mib"));
  TRY_ASSIGN(const size_t gpus, table.column("num_gpu"));
  TRY_ASSIGN(const size_t milli, table.column("gpu_milli"));
  const auto spec = table.column("gpu_spec");  // some lists have none
  std::vector<OpenbPod> pods;
  for (size_t row = 0; row < table.rows(); ++row) {
    OpenbPod pod;
    pod.name = table.cell(row, name);
    pod.cpu_milli = table.integer(row, cpu);
    pod.memory_mib = table.integer(row, memory);
    pod.gpus = table.integer(row, gpus);
    pod.gpu_milli = table.integer(row, milli);
    std::string_view models = spec ? table.cell(row, *spec) : std::string_view();
    while (!models.empty()) {
      const size_t bar = std::min(models.find('|'), models.size());
      if (bar > 0) pod.models.emplace_back(models.substr(0, bar));
      models.remove_prefix(std::min(bar + 1, models.size()));
    }
    if (pod.gpus < 0 || pod.gpus > 1024 || pod.gpu_milli < 0 || pod.gpu_milli > 1000)
      return fail(ErrorCode::corrupt, path + ": pod " + pod.name + " asks for an impossible number of GPUs");
    pods.push_back(std::move(pod));
  }
  TRY(table.check());
  return pods;
}

}  // namespace tranche::replay
