// The figures that bench-jobs can take, each of which prints its lines of JSON; see bench/README.md for what
// they mean.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace tranche::bench {

struct Setting {
  std::string socket_path = "/run/tranche/tranche.sock";
  std::string bin;     // programs of this build, as jobs see them
  std::string folder;  // of the user: logs go here
  size_t count = 0;
  size_t connections = 1;
};

Result<void> measure_request(const Setting& setting);  // POST to first instruction
Result<void> measure_submit(const Setting& setting);   // exec of `tranche submit` to first instruction
Result<void> measure_noop(const Setting& setting);     // jobs a second, end to end
Result<void> measure_held(const Setting& setting);     // durable acknowledgements a second; the jobs stay
Result<void> measure_held_by_commands(const Setting& setting);  // the same through `tranche submit` processes
Result<void> measure_list(const Setting& setting);              // `tranche ls`
Result<void> measure_tsp_submit(const Setting& setting);        // exec of `tsp` to first instruction
Result<void> measure_tsp_noop(const Setting& setting);
Result<void> measure_slurm_submit(const Setting& setting);  // exec of `sbatch` to first instruction
Result<void> measure_slurm_run(const Setting& setting);     // exec of `srun` to first instruction
Result<void> measure_slurm_noop(const Setting& setting);
Result<void> measure_slurm_held(const Setting& setting);  // `sbatch --hold` processes; the jobs are cancelled
Result<void> measure_disk(const Setting& setting);        // 4 KiB append and fdatasync in `folder`

}  // namespace tranche::bench
