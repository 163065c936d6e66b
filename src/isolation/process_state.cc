#include "isolation/process_state.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "isolation/file.h"

namespace tranche::isolation {

InheritedState capture_inherited_state() {
  InheritedState state;
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit{};
    ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    state.limits.push_back(limit);
  }
  const auto score = read_text_at(AT_FDCWD, "/proc/self/oom_score_adj");
  state.has_own_oom_score = !score || *score != "0\n";
  return state;
}

void reset_signals() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) ::sigaction(signal, &standard, nullptr);
  unblock_signals();
}

void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

Outcome<void> restore_limits(const InheritedState& state) {
  for (size_t resource = 0; resource < state.limits.size(); ++resource) {
    rlimit now{};
    const auto kind = static_cast<__rlimit_resource>(resource);
    ::getrlimit(kind, &now);
    const rlimit& wanted = state.limits[resource];
    if (now.rlim_cur == wanted.rlim_cur && now.rlim_max == wanted.rlim_max) continue;
    if (::setrlimit(kind, &wanted) != 0) return call_failed("restoring resource limits");
  }
  // To lower it takes root.
  if (state.has_own_oom_score && ::geteuid() == 0)
    TRY(write_text_at(AT_FDCWD, "/proc/self/oom_score_adj", "0"));
  return {};
}

}  // namespace tranche::isolation
