// The environment and the file names of a task: pure functions of what was submitted and where it runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/event.h"

namespace tranche::machine {

// What a task's own variables and file name patterns are made from.
struct TaskFacts {
  TaskKey task;
  ArrayId array;  // unset: not of an array
  uint32_t array_index = 0;
  uint32_t array_count = 0;
  uint32_t tasks = 1;  // of an elastic job: those that are there now
  bool elastic = false;
  uint32_t tasks_min = 1;    // of an elastic job
  uint32_t tasks_max = 1;    // of an elastic job
  std::string members_file;  // of an elastic job (members.h)
  uint16_t first_port = 0;   // of a gang: MASTER_PORT; 0: not of a gang
  uint16_t task_ports = 0;   // behind it, one for each task; 0: none
  std::string name;
  std::string queue;
  std::string user;
  std::string home;
  std::string shell;
  std::string node;
  std::string directory;         // where it runs
  std::string submit_directory;  // from where it was submitted: the same, but for a snapshot
  MilliCpu cpu;
  MiB memory;
  Duration time_limit;
  std::vector<std::string> gpu_uuids;  // of its slices, ascending by index
  std::vector<uint32_t> gpu_indices;
};

// The caller's variables less those that would lead a program to other GPUs or into another scheduler's job
// (CUDA_VISIBLE_DEVICES, CUDA_MPS_*, NVIDIA_VISIBLE_DEVICES, SLURM_*, TRANCHE_*) or inject code that the
// caller's own shell had (LD_PRELOAD, LD_AUDIT), plus the task's own. "NAME=value", sorted by name.
//
// The tasks of a gang also get what torch.distributed, torchrun and TensorFlow read to find each other. There
// a task counts as a machine of its own: it opens no GPU but its own, and its first one is number 0 to it, so
// that its LOCAL_RANK is 0. Slurm's SLURM_LOCALID is the rank on the real machine, as Slurm has it.
std::vector<std::string> task_environment(const std::vector<std::pair<std::string, std::string>>& caller,
                                          const TaskFacts& facts);

// A variable that the task's own take the place of, or that is not passed on: nothing else may set it.
bool is_reserved_variable(std::string_view name);

// Replaces %j job, %A array's first job, %a array index, %x name, %u user, %N node, %t task rank, %% percent.
// A slash in a job's name becomes "_", so that a name cannot lead elsewhere.
std::string expand_file_pattern(std::string_view pattern, const TaskFacts& facts);

// The command line of a submitted script: its text runs under the interpreter of its first line, /bin/sh if
// it names none.
std::vector<std::string> script_command(const std::string& text, const std::string& name,
                                        const std::vector<std::string>& arguments);

}  // namespace tranche::machine
