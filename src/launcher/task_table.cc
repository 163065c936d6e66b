#include "launcher/task_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "isolation/cgroup_sweep.h"
#include "isolation/mount_view.h"
#include "launcher/courtesy_guard.h"
#include "launcher/driver_limits.h"
#include "launcher/personal_task.h"
#include "launcher/record_file.h"

namespace tranche::launcher {

using isolation::FileDescriptor;
using wire::LauncherKind;
using wire::TaskState;

namespace {

template <class Message>
std::string_view bytes_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

// Which state an event of a shepherd tells; 0 if it is no such event.
uint32_t state_told_by(LauncherKind kind) {
  if (kind == LauncherKind::prepared) return static_cast<uint32_t>(TaskState::prepared);
  if (kind == LauncherKind::started) return static_cast<uint32_t>(TaskState::running);
  if (kind == LauncherKind::start_failed) return static_cast<uint32_t>(TaskState::start_failed);
  if (kind == LauncherKind::exited) return static_cast<uint32_t>(TaskState::exited);
  return 0;
}

bool is_ended(uint32_t state) {
  return state == static_cast<uint32_t>(TaskState::start_failed) ||
         state == static_cast<uint32_t>(TaskState::exited);
}

}  // namespace

TaskTable::TaskTable(EventLoop& loop, const LauncherHost& host, ToDaemon to_daemon)
    : loop_(loop), host_(host), to_daemon_(std::move(to_daemon)) {}

void TaskTable::restore() {
  for (const wire::TaskRecord& record : read_records(host_.tasks_folder.get())) {
    auto task = std::make_unique<Task>();
    task->known = record;
    Task& placed = *(tasks_[order(record.key)] = std::move(task));
    if (record.tasks_gone != 0) continue;
    if (process_start_ticks(record.shepherd_pid) == record.shepherd_start_ticks) watch_process(placed);
    settle(placed);
  }
  failpoint("restore.records_read");
  sweep_left_cgroups();
  const int own = ::openat(host_.jobs_folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = own < 0 ? nullptr : ::fdopendir(own);
  if (folder == nullptr) return;
  std::vector<uint64_t> jobs;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0)
      jobs.push_back(::strtoull(entry->d_name, nullptr, 10));
  }
  ::closedir(folder);
  for (const uint64_t job : jobs) remove_unused_job_space(job);
}

// A record is written before its cgroup is made and goes after it: a cgroup without one belongs to nobody
// that anybody will ask for. The cgroups are found first and the records looked for afterwards, as a shepherd
// that an earlier launcher forked may be making both just now.
void TaskTable::sweep_left_cgroups() {
  if (host_.options.personal) return sweep_courtesy_guards(host_);
  for (const isolation::FoundCgroup& left : isolation::find_task_cgroups(host_.cgroups)) {
    if (contains(left.key) || record_exists(host_.tasks_folder.get(), left.key)) continue;
    (void)clear_driver_limits(host_, left.uid, left.key);
    const auto removed = isolation::TaskCgroup::remove(host_.cgroups, left.uid, left.key);
    if (!removed) {
      ::dprintf(STDERR_FILENO, "tranche-launcher: no task is recorded for a cgroup that is in use: %s\n",
                removed.error().text.c_str());
    }
  }
  isolation::remove_empty_levels(host_.cgroups);
}

bool TaskTable::has_task_of(uint64_t job) const {
  const auto found = tasks_.lower_bound({job, 0, 0});
  return found != tasks_.end() && std::get<0>(found->first) == job;
}

void TaskTable::remove_unused_job_space(uint64_t job) {
  if (!has_task_of(job)) isolation::remove_job_space(host_.jobs_folder.get(), std::to_string(job));
}

void TaskTable::add(const wire::TaskRecord& record, FileDescriptor socket) {
  auto task = std::make_unique<Task>();
  task->known = record;
  Task& placed = *(tasks_[order(record.key)] = std::move(task));
  watch_process(placed);
  connect(placed, std::move(socket));
}

std::vector<wire::TaskRecord> TaskTable::list() const {
  std::vector<wire::TaskRecord> records;
  records.reserve(tasks_.size());
  for (const auto& [key, task] : tasks_) {
    const wire::TaskRecord record = read_record(host_.tasks_folder.get(), task->known.key);
    records.push_back(record.state != 0 ? record : task->known);
  }
  return records;
}

void TaskTable::on_hello(const wire::TaskRecord& record, int peer_pid, FileDescriptor socket) {
  if (record.shepherd_pid != peer_pid) return;
  const auto found = tasks_.find(order(record.key));
  if (found == tasks_.end()) return add(record, std::move(socket));
  if (found->second->known.shepherd_pid != peer_pid || found->second->adopted != nullptr) return;
  connect(*found->second, std::move(socket));
  tell_changes(*found->second, record);
}

void TaskTable::watch_process(Task& task) {
  task.shepherd_process =
      FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, task.known.shepherd_pid, 0)));
  if (!task.shepherd_process) return;
  const Key key = order(task.known.key);
  loop_.watch(task.shepherd_process.get(), EPOLLIN, [this, key](uint32_t) { on_shepherd_ended(key); });
}

void TaskTable::connect(Task& task, FileDescriptor socket) {
  task.shepherd = std::make_unique<PacketConnection>(
      loop_, std::move(socket), [this, &task](Packet& packet) { on_shepherd_packet(task, packet); },
      [this, &task] {
        task.shepherd.reset();
        fail_pending(task);
        settle(task);
      });
}

void TaskTable::on_shepherd_ended(Key key) {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return;
  Task& task = *found->second;
  loop_.forget(task.shepherd_process.get());
  task.shepherd_process.close();
  settle(task);
}

// When process and connection of a shepherd are both gone, everything it said has been heard: either its task
// is gone too, or the task is on its own.
void TaskTable::settle(Task& task) {
  if (task.shepherd != nullptr || task.shepherd_process || task.adopted != nullptr) return;
  wire::TaskRecord record = read_record(host_.tasks_folder.get(), task.known.key);
  if (record.state == 0) record = task.known;  // it died before its first word
  if (record.tasks_gone != 0) return tell_changes(task, record);
  task.adopted = std::make_unique<AdoptedTask>(
      loop_, host_, record, [this, &task](const wire::TaskRecord& now) { tell_changes(task, now); });
  tell_changes(task, record);
  task.adopted->begin();
}

void TaskTable::on_shepherd_packet(Task& task, Packet& packet) {
  const LauncherKind kind = packet.kind();
  if (kind == LauncherKind::reply) {
    const auto found = std::find(task.pending.begin(), task.pending.end(), packet.header.id);
    if (found == task.pending.end()) return;
    task.pending.erase(found);
  } else if (kind == LauncherKind::tasks_gone) {
    task.known.tasks_gone = 1;
  } else if (const uint32_t state = state_told_by(kind); state != 0) {
    task.known.state = state;
  } else {
    return;
  }
  to_daemon_(std::string_view(packet.bytes.data(), packet.bytes.size()));
}

// Makes the events between what the daemon was last told and `record`.
void TaskTable::tell_changes(Task& task, const wire::TaskRecord& record) {
  if (record.state != task.known.state) {
    if (record.state == static_cast<uint32_t>(TaskState::prepared)) {
      auto event = make_message<wire::TaskEvent>(LauncherKind::prepared);
      event.key = record.key;
      to_daemon_(bytes_of(event));
    } else if (record.state == static_cast<uint32_t>(TaskState::running)) {
      auto event = make_message<wire::StartedEvent>(LauncherKind::started);
      event.key = record.key;
      event.task_pid = record.task_pid;
      event.task_start_ticks = record.task_start_ticks;
      event.started_boottime_ns = record.end.started_boottime_ns;
      to_daemon_(bytes_of(event));
    } else if (record.state == static_cast<uint32_t>(TaskState::start_failed)) {
      auto event = make_message<wire::StartFailedEvent>(LauncherKind::start_failed);
      event.key = record.key;
      event.stage = record.stage;
      event.error = record.error;
      std::memcpy(event.text, record.text, sizeof event.text);
      to_daemon_(bytes_of(event));
    } else if (record.state == static_cast<uint32_t>(TaskState::exited)) {
      auto event = make_message<wire::ExitedEvent>(LauncherKind::exited);
      event.key = record.key;
      event.end = record.end;
      to_daemon_(bytes_of(event));
    }
  }
  if (record.tasks_gone != task.known.tasks_gone) {
    auto event = make_message<wire::TaskEvent>(LauncherKind::tasks_gone);
    event.key = record.key;
    to_daemon_(bytes_of(event));
  }
  task.known = record;
}

void TaskTable::answer(uint64_t id, int status, std::string_view text) {
  auto reply = make_message<wire::Reply>(LauncherKind::reply, id);
  reply.status = status;
  set_text(reply.text, text);
  to_daemon_(bytes_of(reply));
}

void TaskTable::fail_pending(Task& task) {
  const bool ended = is_ended(task.known.state);
  for (const uint64_t id : std::exchange(task.pending, {})) {
    answer(id, ended ? ESRCH : EOWNERDEAD,
           ended ? "the task has ended" : "the task's supervisor was lost; ask List");
  }
}

void TaskTable::drop_pending() {
  for (auto& [key, task] : tasks_) task->pending.clear();
}

void TaskTable::forward(Packet& packet, const wire::TaskKey& key) {
  const uint64_t id = packet.header.id;
  const auto found = tasks_.find(order(key));
  if (found == tasks_.end()) return answer(id, ESRCH, "no such attempt of a task");
  Task& task = *found->second;
  if (task.shepherd != nullptr) {
    task.pending.push_back(id);
    task.shepherd->send_bytes(std::string_view(packet.bytes.data(), packet.bytes.size()),
                              std::move(packet.files[0]));
  } else if (task.adopted != nullptr) {
    to_daemon_(bytes_of(task.adopted->handle(packet)));
  } else if (task.known.tasks_gone != 0) {
    answer(id, ESRCH, "the task has ended");
  } else {
    answer(id, EAGAIN, "the task's supervisor has not come back yet; try again in a moment");
  }
}

int TaskTable::forget(const wire::TaskKey& key) {
  const auto found = tasks_.find(order(key));
  if (found == tasks_.end()) return 0;
  Task& task = *found->second;
  if (task.known.tasks_gone == 0) return EBUSY;
  // A task whose shepherd was lost: the only work of the driver's that the launcher waits for.
  if (task.adopted != nullptr) (void)clear_driver_limits(host_, task.known.uid, key);
  if (!remove_task_traces(host_, task.known.uid, key)) return EBUSY;
  failpoint("forget.cgroup_removed");
  remove_record(host_.tasks_folder.get(), key);
  failpoint("forget.record_removed");
  // The shepherd may still be giving an interactive client its last output; it ends by itself.
  if (task.shepherd_process) loop_.forget(task.shepherd_process.get());
  tasks_.erase(found);
  remove_unused_job_space(key.job);
  return 0;
}

void TaskTable::on_reaped(int pid, int status) {
  for (auto& [key, task] : tasks_) {
    if (task->adopted != nullptr && task->adopted->main_pid() == pid)
      return task->adopted->on_main_reaped(status);
  }
}

}  // namespace tranche::launcher
