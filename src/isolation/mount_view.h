// What a task sees of the file system beyond the host's: a /dev/shm of its own, and the driver's libraries.
// All of it happens in the task's mount namespace and goes with it.
#pragma once

#include <string>

#include "isolation/failure.h"

namespace tranche::isolation {

struct MountView {
  std::string shared_memory_folder;   // bound on /dev/shm; empty: a new tmpfs of the task's own
  std::string driver_library_folder;  // laid over library_folder, read-only; empty: none
  std::string library_folder;         // where this system keeps its libraries
  std::string guard_folder;           // with the guard's libraries, laid over all of these; empty: no guard
  std::string hidden_folder;          // detached if it is a mount point; empty: none
};

// Called by a process that has just entered a mount namespace of its own, as root.
Outcome<void> build_mount_view(const MountView& view);

// The place in the task's view for its way to the arbiter (wire/guard.h): made on the host, empty there.
Outcome<void> make_guard_mount_point();

// Gives an unbound SEQPACKET socket its name in the view that build_mount_view has made, and listens on it.
// The name exists in this mount namespace only: who connects is of this task.
Outcome<void> name_guard_socket(int file);

// The folder that libc.so.6 was loaded from, as "/usr/lib/x86_64-linux-gnu".
Outcome<std::string> find_library_folder();

// What ranks of one job share, kept by the launcher in `<run-dir>/jobs/<id>`: a tmpfs `shm` and a bound IPC
// namespace `ipc`. `jobs` is a folder on a mount of its own, see make_job_root.
Outcome<void> make_job_space(int jobs_folder, const std::string& job);
void remove_job_space(int jobs_folder, const std::string& job);
// Mounts a small private tmpfs on `path` unless there is one already.
Outcome<void> make_job_root(const std::string& path);

}  // namespace tranche::isolation
