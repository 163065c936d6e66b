// The guard in front of the driver for one task in personal mode: by LD_PRELOAD and LD_LIBRARY_PATH, as no
// mount can be made. Each task has a folder of its own, `<run folder>/courtesy/<job>.<rank>.<attempt>`, with
// copies of the fitted libraries that know the task's socket there. It holds programs that leave those
// variables alone.
#pragma once

#include <string>
#include <vector>

#include "launcher/launcher_host.h"

namespace tranche::launcher {

// Makes the folder, and names and opens `socket` (unbound, SEQPACKET) in it.
isolation::Outcome<void> make_courtesy_guard(const LauncherHost& host, const wire::TaskKey& key, int socket);
std::string courtesy_socket(const LauncherHost& host, const wire::TaskKey& key);
void remove_courtesy_guard(const LauncherHost& host, const wire::TaskKey& key);
// Folders of tasks that have no record.
void sweep_courtesy_guards(const LauncherHost& host);

// What the task's environment gets, "NAME=value": its mark, and the guard if its folder is there. `old_path`
// is the LD_LIBRARY_PATH that it would have.
std::vector<std::string> courtesy_variables(const LauncherHost& host, const wire::TaskKey& key,
                                            const std::string& old_path);

}  // namespace tranche::launcher
