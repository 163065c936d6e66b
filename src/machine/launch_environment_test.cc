#include "machine/launch_environment.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tranche::machine {
namespace {

TaskFacts facts() {
  TaskFacts facts;
  facts.task = {JobId(7), 2, 3};
  facts.name = "a/b";
  facts.user = "alice";
  facts.home = "/home/alice";
  facts.shell = "/bin/bash";
  facts.node = "hopper";
  facts.queue = "default/alice";
  facts.directory = "/home/alice/work";
  facts.tasks = 4;
  facts.cpu = MilliCpu(2000);
  facts.gpu_uuids = {"GPU-1", "GPU-2"};
  facts.gpu_indices = {0, 3};
  return facts;
}

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& variable : environment) {
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
  }
  return "<unset>";
}

TEST(TaskEnvironment, TellsWhichGpusAreTheTasks) {
  const auto environment = task_environment({}, facts());
  EXPECT_EQ(value_of(environment, "CUDA_VISIBLE_DEVICES"), "GPU-1,GPU-2");
  EXPECT_EQ(value_of(environment, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(value_of(environment, "SLURM_JOB_GPUS"), "0,3");
  EXPECT_EQ(value_of(environment, "TRANCHE_JOB_ID"), "7");
  EXPECT_EQ(value_of(environment, "SLURM_PROCID"), "2");
  EXPECT_EQ(value_of(environment, "SLURM_RESTART_COUNT"), "2") << "attempt 3 is the second restart";
}

TEST(TaskEnvironment, HidesEveryGpuFromAJobWithout) {
  TaskFacts without = facts();
  without.gpu_uuids.clear();
  without.gpu_indices.clear();
  const auto environment = task_environment({}, without);
  EXPECT_EQ(value_of(environment, "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(value_of(environment, "NVIDIA_VISIBLE_DEVICES"), "void");
}

TEST(TaskEnvironment, DropsWhatWouldLeadElsewhereAndKeepsTheRest) {
  const auto environment = task_environment({{"CUDA_MPS_PIPE_DIRECTORY", "/x"},
                                             {"CUDA_VISIBLE_DEVICES", "0,1,2"},
                                             {"LD_AUDIT", "x.so"},
                                             {"LD_LIBRARY_PATH", "/opt/conda/lib"},
                                             {"LD_PRELOAD", "x.so"},
                                             {"SLURM_JOB_ID", "1"},
                                             {"TRANCHE_JOB_ID", "1"},
                                             {"USER", "root"},
                                             {"VIRTUAL_ENV", "/home/alice/venv"}},
                                            facts());
  EXPECT_EQ(value_of(environment, "CUDA_MPS_PIPE_DIRECTORY"), "<unset>");
  EXPECT_EQ(value_of(environment, "LD_PRELOAD"), "<unset>");
  EXPECT_EQ(value_of(environment, "LD_AUDIT"), "<unset>");
  EXPECT_EQ(value_of(environment, "SLURM_JOB_ID"), "7");
  EXPECT_EQ(value_of(environment, "USER"), "alice");
  EXPECT_EQ(value_of(environment, "LD_LIBRARY_PATH"), "/opt/conda/lib");
  EXPECT_EQ(value_of(environment, "VIRTUAL_ENV"), "/home/alice/venv");
}

TEST(TaskEnvironment, NamesEachVariableOnce) {
  auto environment = task_environment({{"HOME", "/"}, {"PATH", "/bin"}}, facts());
  std::vector<std::string> names;
  for (const std::string& variable : environment) names.push_back(variable.substr(0, variable.find('=')));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(TaskEnvironment, AGangsTasksFindEachOther) {
  TaskFacts gang = facts();
  gang.first_port = 20'100;
  gang.task_ports = 4;
  const auto environment = task_environment({{"RANK", "9"}, {"PET_RDZV_ENDPOINT", "elsewhere:1"}}, gang);
  EXPECT_EQ(value_of(environment, "MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(value_of(environment, "MASTER_PORT"), "20100");
  EXPECT_EQ(value_of(environment, "RANK"), "2");
  EXPECT_EQ(value_of(environment, "WORLD_SIZE"), "4");
  EXPECT_EQ(value_of(environment, "LOCAL_RANK"), "0") << "its first GPU is number 0 to it";
  EXPECT_EQ(value_of(environment, "LOCAL_WORLD_SIZE"), "1");
  EXPECT_EQ(value_of(environment, "PET_NODE_RANK"), "2");
  EXPECT_EQ(value_of(environment, "PET_NPROC_PER_NODE"), "2") << "a process for each of its GPUs";
  EXPECT_EQ(value_of(environment, "PET_RDZV_ENDPOINT"), "<unset>") << "of the caller's own gang";
  EXPECT_EQ(
      value_of(environment, "TF_CONFIG"),
      R"({"cluster":{"worker":["127.0.0.1:20101","127.0.0.1:20102","127.0.0.1:20103","127.0.0.1:20104"]},)"
      R"("task":{"type":"worker","index":2}})");
  EXPECT_EQ(value_of(environment, "SLURM_LOCALID"), "2") << "Slurm's: the rank on the machine";
  EXPECT_EQ(value_of(environment, "SLURM_STEP_TASKS_PER_NODE"), "4");
  EXPECT_EQ(value_of(environment, "SLURM_NNODES"), "1");
}

TEST(TaskEnvironment, AJobOfOneTaskKeepsWhatItsCallerSays) {
  const auto environment = task_environment({{"RANK", "9"}}, facts());
  EXPECT_EQ(value_of(environment, "RANK"), "9");
  EXPECT_EQ(value_of(environment, "MASTER_ADDR"), "<unset>") << "a library would take it for part of a gang";
  EXPECT_EQ(value_of(environment, "TF_CONFIG"), "<unset>");
}

TEST(FilePattern, ReplacesWhatSlurmReplaces) {
  EXPECT_EQ(expand_file_pattern("%j-%t-%u-%N.out", facts()), "7-2-alice-hopper.out");
  EXPECT_EQ(expand_file_pattern("%x.log", facts()), "a_b.log") << "a name cannot lead to another directory";
  EXPECT_EQ(expand_file_pattern("100%%", facts()), "100%");
  EXPECT_EQ(expand_file_pattern("%q%", facts()), "%q%");
  TaskFacts array = facts();
  array.array = ArrayId(5);
  array.array_index = 9;
  EXPECT_EQ(expand_file_pattern("%A_%a.out", array), "5_9.out");
}

TEST(ScriptCommand, ShellsGetTheTextAndTheName) {
  const auto plain = script_command("echo hi\n", "job.sh", {"a", "b c"});
  EXPECT_EQ(plain, (std::vector<std::string>{"/bin/sh", "-c", "echo hi\n", "job.sh", "a", "b c"}));
  const auto bash = script_command("#!/bin/bash -e\nfalse\n", "job.sh", {});
  EXPECT_EQ(bash, (std::vector<std::string>{"/bin/bash", "-e", "-c", "#!/bin/bash -e\nfalse\n", "job.sh"}));
}

}  // namespace
}  // namespace tranche::machine
