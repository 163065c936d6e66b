// A task's limits of device memory held by the driver itself, on the task's own cgroup: drivers of release
// 615 and later. They are set before the task's first process exists and taken away when the last one is
// gone, before the cgroup goes: the driver keeps its own account of it.
//
// Only for GPUs on which whoever started us has seen the driver refuse what is beyond such a limit
// (`<run-dir>/guard/limits`, root's file: "GPU-<uuid> enforced"). There a task that cannot be limited does
// not start. The work is tranche-memory-limit's, a short-lived process; these calls wait for it, ten seconds
// at most.
#pragma once

#include "launcher/launcher_host.h"

namespace tranche::launcher {

// True: each of the task's parts is held by the driver. False: this driver does not hold some of them.
isolation::Outcome<bool> set_driver_limits(const LauncherHost& host, const wire::StartRequest& request);
// Whatever limits the task's cgroup has, on any GPU.
isolation::Outcome<void> clear_driver_limits(const LauncherHost& host, uint32_t uid,
                                             const wire::TaskKey& key);

}  // namespace tranche::launcher
