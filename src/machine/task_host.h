// The daemon's view of the root side: tasks are prepared, told to go, ended and listed.
//
// Real: launcher_task_host.h, which speaks to tranche-launcher. Simulated: simulated_task_host.h.
// Threading: the reactor's thread. Ownership: the listener outlives the host. A host that has lost its
// launcher queues nothing: it reconnects, and then says on_connected(), upon which the daemon asks list().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "linux/unique_fd.h"
#include "model/event.h"

namespace tranche::machine {

// A part of one GPU's memory that the guard holds the task to.
struct MemoryShare {
  std::string uuid;  // as the driver spells it
  MiB limit;
  MiB guarantee;  // of the limit; the rest is lent while nobody needs it
};

// Everything that one task is started with.
struct LaunchPlan {
  TaskKey task;
  Owner owner;
  std::string directory;
  std::string stdin_path;  // "" is /dev/null
  std::string stdout_path;
  std::string stderr_path;  // "": where stdout goes
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // "NAME=value", complete
  uint32_t umask = 022;
  MilliCpu cpu;
  MiB memory;                  // zero: not limited
  uint32_t processes_max = 0;  // zero: not limited
  Duration time_limit;
  Duration grace;
  LimitSignal signal;
  std::vector<uint32_t> gpu_minors;
  std::vector<MemoryShare> memory_shares;  // empty: whole GPUs
  bool job_shares = false;                 // other tasks of the job share /dev/shm and IPC
  bool interactive = false;                // `client` is its standard input and output
  bool terminal = false;
  uint16_t terminal_rows = 0;
  uint16_t terminal_columns = 0;
};

struct StartFailure {
  bool of_the_job = false;  // its own fault (directory, files, command): trying again would not help
  bool cancelled = false;   // ended by kill() before it went
  std::string text;         // one sentence, may name paths: for the owner only
  std::string stage;        // without paths: for everybody
  int32_t code = 0;         // what a shell would have returned: 127, 126; 0: nothing
};

struct TaskEnd {
  ExitCause cause = ExitCause::lost;
  int32_t code = 0;
  int32_t signal = 0;
  Duration cpu_time;
  MiB memory_peak;
};

// What the root side knows of a task: the answer to list().
struct TaskRecord {
  enum class State { preparing, prepared, running, start_failed, exited };
  TaskKey task;
  State state = State::preparing;
  bool all_gone = false;  // no process of the task is left
  int32_t pid = 0;
  std::vector<uint32_t> gpu_minors;  // that it was prepared with, ascending
  Duration time_limit;
  StartFailure failure;
  TaskEnd end;
};

// A process that holds a GPU's device node open.
struct NodeHolder {
  int32_t pid = 0;
  uint32_t uid = 0;
  uint32_t gpu_minor = 0;
  TaskKey task;  // job unset: none of ours
  std::string command;
};

class TaskListener {
 public:
  virtual ~TaskListener() = default;
  virtual void on_connected() = 0;
  virtual void on_disconnected() = 0;
  virtual void on_prepared(const TaskKey& task) = 0;
  virtual void on_started(const TaskKey& task, int32_t pid) = 0;
  virtual void on_start_failed(const TaskKey& task, const StartFailure& failure) = 0;
  virtual void on_exited(const TaskKey& task, const TaskEnd& end) = 0;  // leftovers are being ended
  virtual void on_all_gone(const TaskKey& task) = 0;
};

class TaskHost {
 public:
  using Listed = std::function<void(Result<std::vector<TaskRecord>>)>;
  using Scanned = std::function<void(Result<std::vector<NodeHolder>>)>;

  virtual ~TaskHost() = default;
  virtual bool is_connected() const = 0;
  // Prepares the task and holds it. Refusal comes as on_start_failed.
  virtual void start(const LaunchPlan& plan, UniqueFd client) = 0;
  virtual void go(const TaskKey& task) = 0;
  // TERM, grace, then the end of the whole cgroup.
  virtual void kill(const TaskKey& task, Duration grace) = 0;
  // Again counted from its start.
  virtual void set_time_limit(const TaskKey& task, Duration limit) = 0;
  // The parts that it was started with, in another size.
  virtual void set_gpu_memory(const TaskKey& task, const std::vector<MemoryShare>& shares) = 0;
  // Stops or continues every process of a task that runs, and its time limit's clock.
  virtual void freeze(const TaskKey& task, bool frozen) = 0;
  // A signal to those of its processes that have a handler for it: nobody is ended by it.
  virtual void notify(const TaskKey& task, int32_t signal) = 0;
  // The end is recorded: its record may go.
  virtual void forget(const TaskKey& task) = 0;
  virtual void attach(const TaskKey& task, UniqueFd client, std::function<void(Result<void>)> done) = 0;
  // A command inside a running task, with a client of its own: `plan` has its key, owner, arguments,
  // environment, directory and terminal.
  virtual void exec(const LaunchPlan& plan, UniqueFd client, std::function<void(Result<void>)> done) = 0;
  virtual void list(Listed listed) = 0;
  virtual void scan(const std::vector<uint32_t>& gpu_minors, Scanned scanned) = 0;
  // Whether sockets of this machine could listen on these `count` TCP ports now.
  virtual bool ports_are_free(uint16_t first, uint16_t count) = 0;
};

}  // namespace tranche::machine
