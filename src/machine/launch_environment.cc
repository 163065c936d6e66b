#include "machine/launch_environment.h"

#include <algorithm>
#include <map>

#include "machine/gang_ports.h"

namespace tranche::machine {
namespace {

constexpr std::string_view kDroppedNames[] = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD",
                                              "LD_AUDIT", "CUDA_DEVICE_ORDER"};
constexpr std::string_view kDroppedPrefixes[] = {"CUDA_MPS_", "SLURM_", "TRANCHE_"};
// What would have a task look for another job's gang; a gang's tasks get their own.
constexpr std::string_view kGangNames[] = {"MASTER_ADDR", "MASTER_PORT",      "RANK",       "WORLD_SIZE",
                                           "LOCAL_RANK",  "LOCAL_WORLD_SIZE", "GROUP_RANK", "TF_CONFIG"};

bool is_dropped(std::string_view name) {
  return std::find(std::begin(kDroppedNames), std::end(kDroppedNames), name) != std::end(kDroppedNames) ||
         std::any_of(std::begin(kDroppedPrefixes), std::end(kDroppedPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_of_a_gang(std::string_view name) {
  return std::find(std::begin(kGangNames), std::end(kGangNames), name) != std::end(kGangNames) ||
         name.starts_with("PET_");
}

template <class Item, class Format>
std::string join(const std::vector<Item>& items, Format format) {
  std::string out;
  for (const Item& item : items) out += (out.empty() ? "" : ",") + format(item);
  return out;
}

// The same fact under Tranche's name and Slurm's, so that existing scripts find it.
void add_both(std::map<std::string, std::string>& variables, const std::string& suffix,
              const std::string& slurm_suffix, const std::string& value) {
  variables["TRANCHE_" + suffix] = value;
  variables["SLURM_" + slurm_suffix] = value;
}

void add_gpu_variables(std::map<std::string, std::string>& variables, const TaskFacts& facts) {
  const std::string uuids = join(facts.gpu_uuids, [](const std::string& uuid) { return uuid; });
  const std::string indices = join(facts.gpu_indices, [](uint32_t index) { return std::to_string(index); });
  // An empty list hides every GPU; "void" says the same to container runtimes.
  variables["CUDA_VISIBLE_DEVICES"] = uuids;
  variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  variables["NVIDIA_VISIBLE_DEVICES"] = uuids.empty() ? "void" : uuids;
  add_both(variables, "JOB_GPUS", "JOB_GPUS", indices);
  add_both(variables, "GPUS", "GPUS_ON_NODE", std::to_string(facts.gpu_uuids.size()));
}

// What TensorFlow's MultiWorkerMirroredStrategy reads: where every worker listens, and which one this is.
std::string tensorflow_cluster(const TaskFacts& facts) {
  std::string workers;
  for (uint32_t rank = 0; rank < facts.tasks; ++rank) {
    workers += (rank == 0 ? "\"" : ",\"") + std::string(kGangAddress) + ":" +
               std::to_string(facts.first_port + 1 + rank) + "\"";
  }
  return R"({"cluster":{"worker":[)" + workers + R"(]},"task":{"type":"worker","index":)" +
         std::to_string(facts.task.rank) + "}}";
}

void add_gang_variables(std::map<std::string, std::string>& variables, const TaskFacts& facts) {
  if (facts.first_port == 0) return;
  const std::string tasks = std::to_string(facts.tasks);
  const std::string rank = std::to_string(facts.task.rank);
  const std::string port = std::to_string(facts.first_port);
  variables["MASTER_ADDR"] = kGangAddress;
  variables["MASTER_PORT"] = port;
  variables["WORLD_SIZE"] = tasks;
  variables["RANK"] = rank;
  variables["GROUP_RANK"] = rank;
  variables["LOCAL_RANK"] = "0";
  variables["LOCAL_WORLD_SIZE"] = "1";
  // torchrun takes what its command line does not say from these: one agent a task, a process for each GPU.
  variables["PET_NPROC_PER_NODE"] = std::to_string(std::max<size_t>(1, facts.gpu_uuids.size()));
  if (facts.elastic) {
    // Agents that come and go meet by a rendezvous; a fixed list of workers would be wrong a moment later.
    variables["PET_NNODES"] = std::to_string(facts.tasks_min) + ":" + std::to_string(facts.tasks_max);
    variables["PET_RDZV_BACKEND"] = "c10d";
    variables["PET_RDZV_ENDPOINT"] = std::string(kGangAddress) + ":" + port;
    variables["PET_RDZV_ID"] = std::to_string(facts.task.job.value());
  } else {
    variables["PET_NNODES"] = tasks;
    variables["PET_NODE_RANK"] = rank;
    variables["PET_MASTER_ADDR"] = kGangAddress;
    variables["PET_MASTER_PORT"] = port;
    if (facts.task_ports == facts.tasks) variables["TF_CONFIG"] = tensorflow_cluster(facts);
  }
  variables["TRANCHE_MASTER_ADDR"] = kGangAddress;
  variables["TRANCHE_MASTER_PORT"] = port;
}

// The names by which Slurm's users and libraries (TensorFlow's SlurmClusterResolver, submitit, Lightning) ask
// how many tasks there are and where: always on this one machine.
void add_slurm_step_variables(std::map<std::string, std::string>& variables, const TaskFacts& facts) {
  const std::string tasks = std::to_string(facts.tasks);
  for (const char* name : {"SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
                           "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}) {
    variables[name] = tasks;
  }
  for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"})
    variables[name] = "1";
  for (const char* name : {"SLURM_NODELIST", "SLURM_STEP_NODELIST", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST"}) {
    variables[name] = facts.node;
  }
  variables["SLURM_NODEID"] = "0";
  variables["SLURM_LOCALID"] = std::to_string(facts.task.rank);
  variables["SLURM_LAUNCH_NODE_IPADDR"] = kGangAddress;
  variables["SLURM_JOB_CPUS_PER_NODE"] = variables["SLURM_CPUS_ON_NODE"];
  variables["SLURM_GPUS"] = std::to_string(facts.gpu_uuids.size() * facts.tasks);
  variables["SLURM_GPUS_PER_TASK"] = std::to_string(facts.gpu_uuids.size());
}

// Interpreters that take a script's text after -c and its name as $0.
bool is_shell(std::string_view interpreter) {
  const std::string_view base = interpreter.substr(interpreter.rfind('/') + 1);
  return base == "sh" || base == "bash" || base == "dash" || base == "zsh" || base == "ksh";
}

// The words of a "#!" line: the interpreter and at most one argument, as the kernel reads it; for
// "/usr/bin/env NAME" the NAME counts as the interpreter's own argument.
std::vector<std::string> interpreter_words(const std::string& text) {
  if (!text.starts_with("#!")) return {"/bin/sh"};
  const std::string line = text.substr(2, text.find('\n') - 2);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return {"/bin/sh"};
  const size_t end = line.find_first_of(" \t", begin);
  std::vector<std::string> words = {line.substr(begin, end == std::string::npos ? end : end - begin)};
  if (end != std::string::npos) {
    const size_t rest = line.find_first_not_of(" \t", end);
    const size_t last = line.find_last_not_of(" \t\r");
    if (rest != std::string::npos && last >= rest) words.push_back(line.substr(rest, last - rest + 1));
  }
  return words;
}

}  // namespace

bool is_reserved_variable(std::string_view name) {
  constexpr std::string_view kOwn[] = {"USER", "LOGNAME", "HOME", "PWD"};
  return is_dropped(name) || is_of_a_gang(name) ||
         std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

std::vector<std::string> task_environment(const std::vector<std::pair<std::string, std::string>>& caller,
                                          const TaskFacts& facts) {
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : caller) {
    if (is_dropped(name) || (facts.first_port != 0 && is_of_a_gang(name))) continue;
    variables.emplace(name, value);
  }
  // Identity is the kernel's word, whatever the caller's environment says.
  variables["USER"] = facts.user;
  variables["LOGNAME"] = facts.user;
  variables["HOME"] = facts.home;
  variables.emplace("SHELL", facts.shell);
  variables.emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  variables["PWD"] = facts.directory;

  const std::string job = std::to_string(facts.task.job.value());
  add_both(variables, "JOB_ID", "JOB_ID", job);
  variables["SLURM_JOBID"] = job;
  add_both(variables, "JOB_NAME", "JOB_NAME", facts.name);
  add_both(variables, "JOB_USER", "JOB_USER", facts.user);
  add_both(variables, "QUEUE", "JOB_PARTITION", facts.queue);
  add_both(variables, "SUBMIT_DIR", "SUBMIT_DIR",
           facts.submit_directory.empty() ? facts.directory : facts.submit_directory);
  add_both(variables, "RANK", "PROCID", std::to_string(facts.task.rank));
  add_both(variables, "TASKS", "NTASKS", std::to_string(facts.tasks));
  add_both(variables, "ATTEMPT", "RESTART_COUNT", std::to_string(facts.task.attempt - 1));
  variables["TRANCHE_ATTEMPT"] = std::to_string(facts.task.attempt);
  add_both(variables, "NODE", "JOB_NODELIST", facts.node);
  variables["SLURM_CPUS_ON_NODE"] = std::to_string(std::max<int64_t>(1, facts.cpu.count() / 1000));
  variables["SLURM_CPUS_PER_TASK"] = variables["SLURM_CPUS_ON_NODE"];
  if (facts.memory > MiB{}) variables["SLURM_MEM_PER_NODE"] = std::to_string(facts.memory.count());
  if (facts.array.is_set()) {
    add_both(variables, "ARRAY_JOB_ID", "ARRAY_JOB_ID", std::to_string(facts.array.value()));
    add_both(variables, "ARRAY_INDEX", "ARRAY_TASK_ID", std::to_string(facts.array_index));
    add_both(variables, "ARRAY_COUNT", "ARRAY_TASK_COUNT", std::to_string(facts.array_count));
  }
  if (facts.elastic) {
    variables["TRANCHE_ELASTIC"] = "1";
    variables["TRANCHE_TASKS_MIN"] = std::to_string(facts.tasks_min);
    variables["TRANCHE_TASKS_MAX"] = std::to_string(facts.tasks_max);
    variables["TRANCHE_MEMBERS_FILE"] = facts.members_file;
  }
  add_gpu_variables(variables, facts);
  add_slurm_step_variables(variables, facts);
  add_gang_variables(variables, facts);

  std::vector<std::string> out;
  out.reserve(variables.size());
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

std::string expand_file_pattern(std::string_view pattern, const TaskFacts& facts) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const uint64_t array = facts.array.is_set() ? facts.array.value() : facts.task.job.value();
    switch (pattern[++i]) {
      case 'j':
        out += std::to_string(facts.task.job.value());
        break;
      case 'A':
        out += std::to_string(array);
        break;
      case 'a':
        out += std::to_string(facts.array_index);
        break;
      case 'x': {
        std::string name = facts.name;
        std::replace(name.begin(), name.end(), '/', '_');
        out += name;
        break;
      }
      case 'u':
        out += facts.user;
        break;
      case 'N':
        out += facts.node;
        break;
      case 't':
        out += std::to_string(facts.task.rank);
        break;
      case '%':
        out += '%';
        break;
      default:
        (out += '%') += pattern[i];
        break;
    }
  }
  return out;
}

std::vector<std::string> script_command(const std::string& text, const std::string& name,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command = interpreter_words(text);
  if (command.size() == 1 && is_shell(command[0])) {
    command.insert(command.end(), {"-c", text, name});
  } else if (command.size() == 2 && is_shell(command[0]) && command[1].starts_with('-')) {
    command.insert(command.end(), {"-c", text, name});
  } else {
    // Any other interpreter reads the text as a file: descriptor 9, fed from this argument by a
    // here-document. The interpreter's words come first, then the script's own arguments.
    constexpr const char* kFeed =
        "text=$1; words=$2; shift 2\n"
        "first=$1; shift\n"
        "if [ \"$words\" = 2 ]; then second=$1; shift; set -- \"$second\" /proc/self/fd/9 \"$@\"; "
        "else set -- /proc/self/fd/9 \"$@\"; fi\n"
        "exec \"$first\" \"$@\" 9<<END_OF_SUBMITTED_SCRIPT\n$text\nEND_OF_SUBMITTED_SCRIPT\n";
    std::vector<std::string> fed = {"/bin/sh", "-c", kFeed, name, text, std::to_string(command.size())};
    fed.insert(fed.end(), command.begin(), command.end());
    command = std::move(fed);
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace tranche::machine
