#include "launcher/hold.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace tranche::launcher {

isolation::Outcome<void> hold_subtree(const Options& options) {
  TRY_ASSIGN(const isolation::CgroupTree tree, isolation::CgroupTree::open(options.cgroup_root));
  TRY(tree.hold());
  ::prctl(PR_SET_NAME, "tranche-hold");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  tell_ready(options);
  int signal = 0;
  while (::sigwait(&ends, &signal) != 0) {
  }
  tree.leave_and_remove();
  return {};
}

}  // namespace tranche::launcher
