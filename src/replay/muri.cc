#include "replay/muri.h"

#include "replay/trace_file.h"

namespace tranche::replay {

Result<std::vector<MuriJob>> read_muri_jobs(const std::string& path) {
  TRY_ASSIGN(const TraceTable table, TraceTable::read_csv(path));
  TRY_ASSIGN(const size_t id, table.column("job_id"));
  TRY_ASSIGN(const size_t gpus, table.column("num_gpu"));
  TRY_ASSIGN(const size_t submit, table.column("submit_time"));
  TRY_ASSIGN(const size_t iterations, table.column("iterations"));
  TRY_ASSIGN(const size_t iteration, table.column("iteration_time"));
  TRY_ASSIGN(const size_t model, table.column("model_name"));
  std::vector<MuriJob> jobs;
  for (size_t row = 0; row < table.rows(); ++row) {
    jobs.push_back({table.integer(row, id), table.integer(row, gpus), table.integer(row, submit),
                    table.integer(row, iterations), table.micro(row, iteration),
                    std::string(table.cell(row, model))});
    const MuriJob& job = jobs.back();
    if (job.gpus < 1 || job.gpus > 100'000 || job.submit_ms < 0 || job.iterations < 0 ||
        job.iteration_micro_ms < 0)
      return fail(ErrorCode::corrupt, path + ": job " + std::to_string(job.id) + " has an impossible number");
  }
  TRY(table.check());
  return jobs;
}

}  // namespace tranche::replay
