#include "machine/doctor.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include "gpu/xid_policy.h"
#include "linux/certificate.h"
#include "linux/files.h"
#include "machine/fences.h"

namespace tranche::machine {
namespace {

using api::CheckStatus;
using api::DoctorCheck;

DoctorCheck driver_check(GpuManager& gpus) {
  gpus.host().look_again();  // for who asks next: the answer takes a moment
  const GpuSourceStatus source = gpus.host().source();
  if (!source.answering) {
    return {
        "driver", CheckStatus::warn, source.problem.empty() ? "no NVIDIA driver answers" : source.problem,
        "install NVIDIA's driver, or set driver.library_dir; `tranche-emulator start` gives emulated GPUs"};
  }
  if (!source.driver_problem.empty()) {
    return {"driver", CheckStatus::fail, source.driver_problem,
            "jobs wait, and what runs goes on; reboot the machine when it suits"};
  }
  return {"driver", CheckStatus::ok, "version " + gpus.driver_version() + " answers", ""};
}

DoctorCheck gpu_check(const Engine& engine, GpuManager& gpus) {
  const auto views = engine.scheduler().gpus();
  std::string trouble;
  bool by_operator = false;
  for (const auto& view : views) {
    if (view.health == Health::ok && !view.drained) continue;
    trouble += (trouble.empty() ? "" : "; ") + ("GPU " + std::to_string(view.gpu->index)) + " is ";
    // Of a GPU that is unwell and drained both are told: the one is often why the other came.
    const GpuStatus* const live = gpus.host().status(view.gpu->index);
    if (view.drained && view.health != Health::ok) {
      trouble += std::string(to_string(view.health)) +
                 (live == nullptr || live->health_reason.empty() ? "" : " (" + live->health_reason + ")") +
                 " and ";
    }
    trouble += (view.drained ? "drained" : std::string(to_string(view.health))) +
               (view.reason.empty() ? "" : " (" + view.reason + ")");
    by_operator = by_operator || (view.drained && GpuDrains::is_operators(view.reason));
  }
  for (const std::string& problem : gpus.problems()) trouble += (trouble.empty() ? "" : "; ") + problem;
  if (!trouble.empty()) {
    const std::string undrain = "`tranche gpus undrain N` puts back what an operator drained; ";
    return {
        "gpus", CheckStatus::warn, trouble,
        (by_operator ? undrain : "") + "what each reason asks for is in docs/operations.md, GPUs that fail"};
  }
  if (views.empty())
    return {"gpus", CheckStatus::warn, "there are none", "jobs without GPUs run all the same"};
  return {"gpus", CheckStatus::ok, std::to_string(views.size()) + " usable", ""};
}

// What the driver has reported of GPUs and programs within a day.
DoctorCheck fault_check(const Engine& engine) {
  std::string text;
  Time newest;
  size_t of_jobs = 0, of_gpus = 0;
  for (const auto& view : engine.scheduler().gpus()) {
    for (const RecordedFault& fault : engine.faults().of(view.gpu->id)) {
      if (engine.now() - fault.time > kDay) continue;
      ++(xid_rule(fault.xid).class_of == XidClass::job ? of_jobs : of_gpus);
      if (fault.time < newest) continue;
      newest = fault.time;
      text = "the last: " + fault_text(fault.xid, view.gpu->index);
      for (const JobId job : fault.jobs) text += ", job " + engine.jobs().display(job);
    }
  }
  if (of_jobs + of_gpus == 0) return {"xids", CheckStatus::ok, "none was reported within a day", ""};
  return {"xids", of_gpus == 0 ? CheckStatus::ok : CheckStatus::warn,
          std::to_string(of_jobs) + " of programs, " + std::to_string(of_gpus) + " of GPUs; " + text,
          of_gpus == 0 ? "" : "`tranche gpus --json` lists them; the kernel log has more"};
}

// Jobs that were told to end and are still there long after their grace: no signal reaches their processes.
DoctorCheck ending_check(const Engine& engine) {
  constexpr Duration kPatience = 15 * kSecond;
  std::string stuck;
  for (const JobId id : engine.scheduler().live_jobs()) {
    const JobRecord* const job = engine.jobs().find(id);
    if (job == nullptr || job->state != JobState::stopping || job->history.empty()) continue;
    if (engine.now() - job->history.back().time < job->spec->grace + kPatience) continue;
    stuck += (stuck.empty() ? "job " : "; job ") + job->display();
    for (const TaskEntry& task : job->tasks) {
      if (task.pid > 0) stuck += ", process " + std::to_string(task.pid);
    }
  }
  if (stuck.empty()) return {"ends", CheckStatus::ok, "no job is slow to end", ""};
  return {"ends", CheckStatus::warn, stuck + ": does not end, not even by SIGKILL",
          "it waits in the kernel, mostly for a driver or a disk: see /proc/PID/stack and the kernel log"};
}

DoctorCheck sharing_check(const GpuManager& gpus) {
  if (!gpus.whole_only()) return {"sharing", CheckStatus::ok, "GPUs can be shared", ""};
  return {"sharing", CheckStatus::ok,
          "the GPUs are virtual ones of a hypervisor (vGPU): they are given whole only", ""};
}

DoctorCheck launcher_check(const DaemonConfig& config, const std::string& trouble) {
  if (trouble.empty()) return {"launcher", CheckStatus::ok, "answers", ""};
  return {"launcher", CheckStatus::fail,
          "tranche-launcher does not answer: no job can start (" + trouble + ")",
          config.personal
              ? "start it: `tranche-up start --personal`"
              : "start it: `systemctl start tranche-launcher`, or `tranche-up start`; one that hangs is "
                "to be ended first, running jobs go on"};
}

DoctorCheck journal_check(const DaemonConfig& config, const std::string& trouble) {
  if (!trouble.empty()) {
    return {"journal", CheckStatus::fail, trouble,
            "free space in " + config.state_dir + "; nothing accepted is lost"};
  }
  struct statvfs disk {};
  if (::statvfs(config.state_dir.c_str(), &disk) == 0) {
    const uint64_t free_mib = (static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize) >> 20;
    if (free_mib < 512) {
      return {"journal", CheckStatus::warn, std::to_string(free_mib) + " MiB are free in " + config.state_dir,
              "free some space: submissions are refused when it is full"};
    }
  }
  return {"journal", CheckStatus::ok, "durable in " + config.state_dir, ""};
}

DoctorCheck cgroup_check(bool personal) {
  if (personal) {
    return {
        "limits", CheckStatus::warn,
        "a job's host memory, processors and processes are counted and not held; its processes are found by "
        "descent and by a mark in their environment",
        "that is all a user may do without root; docs/operations.md, Personal mode, has the table"};
  }
  const bool unified = ::access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0;
  const bool hybrid = ::access("/sys/fs/cgroup/unified/cgroup.procs", R_OK) == 0;
  if (unified) return {"cgroups", CheckStatus::ok, "pure version 2", ""};
  if (hybrid)
    return {"cgroups", CheckStatus::ok, "hybrid: identity and devices on version 2, limits on version 1", ""};
  return {"cgroups", CheckStatus::fail, "no version 2 hierarchy is mounted: devices cannot be filtered",
          "boot with systemd.unified_cgroup_hierarchy=1"};
}

DoctorCheck privilege_check(bool personal) {
  if (personal) {
    return {"privileges", CheckStatus::ok,
            "daemon, launcher and jobs are all the user's own: nobody else is served", ""};
  }
  if (::geteuid() == 0) {
    return {"privileges", CheckStatus::warn, "the daemon runs as root",
            "run tranched as the user `tranche`, as the units and tranche-up do"};
  }
  const auto status = read_file("/proc/self/status", 16 * 1024);
  const bool none = status && status->find("CapEff:\t0000000000000000") != std::string::npos;
  if (!none) {
    return {"privileges", CheckStatus::warn, "the daemon has capabilities that it does not need",
            "start it through tranche-up or its unit"};
  }
  return {"privileges", CheckStatus::ok, "the daemon runs without any capability", ""};
}

DoctorCheck tier_check(const DaemonConfig& config, const GpuManager& gpus) {
  const FractionFence fence = fraction_fence(config, gpus.driver_version());
  return {"fences", fence.remedy.empty() ? CheckStatus::ok : CheckStatus::warn,
          whole_gpu_sentence(fence) + "; fractions are " + fence.sentence, fence.remedy};
}

}  // namespace

api::DoctorCheck certificate_check(const ListenConfig& config, Time now) {
  constexpr size_t kPemBytesMax = size_t{1} << 20;
  constexpr int64_t kSoonDays = 14;
  const std::string renew = "renew it, then restart tranched; jobs go on meanwhile";
  const auto pem = read_file(config.certificate, kPemBytesMax);
  if (!pem)
    return {"tls", CheckStatus::fail, pem.error().message(), "see [api] certificate in the configuration"};
  const auto end = certificate_end(*pem);
  if (!end)
    return {"tls", CheckStatus::fail, config.certificate + ": " + end.error().message(),
            "see [api] certificate in the configuration"};
  const int64_t days = (*end - now).count() / kDay.count();
  if (*end <= now)
    return {"tls", CheckStatus::fail,
            "the certificate " + config.certificate + " has expired: nobody comes in from the network",
            renew};
  const std::string left =
      "the certificate is good for " + std::to_string(days) + (days == 1 ? " day" : " days");
  if (days < kSoonDays) return {"tls", CheckStatus::warn, left + " only: " + config.certificate, renew};
  return {"tls", CheckStatus::ok, left, ""};
}

api::DoctorReport examine(const DaemonConfig& config, const Engine& engine, GpuManager& gpus,
                          const std::string& launcher_trouble, const std::string& journal_trouble) {
  return {{driver_check(gpus), gpu_check(engine, gpus), fault_check(engine), ending_check(engine),
           sharing_check(gpus), launcher_check(config, launcher_trouble),
           journal_check(config, journal_trouble), cgroup_check(config.personal),
           privilege_check(config.personal), tier_check(config, gpus)}};
}

}  // namespace tranche::machine
