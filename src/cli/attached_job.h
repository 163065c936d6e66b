// The client's side of an interactive job: waits with it, carries terminal, bytes and signals, and tells how
// it ended. Speaks wire/attach.h with the daemon and then with the job's shepherd; a daemon that dies
// meanwhile does not matter.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "linux/unique_fd.h"

namespace tranche::cli {

class Session;

struct AttachedEnd {
  bool lost = false;       // the connection broke without an end being told
  bool cancelled = false;  // by the user, while it waited
  int exit_code = 0;       // as the program returns it
  std::string text;        // a sentence for the user, or ""
};

struct AttachedOptions {
  std::string label;                     // "job 7"
  bool terminal = false;                 // the job has a terminal of its own, shown in ours
  bool inside = false;                   // a command inside a job, which goes on without us
  bool input = true;                     // standard input goes to the job
  std::function<Result<void>()> cancel;  // asks the daemon to cancel the job
};

// Stays with the job at the other end of `socket` until it has ended or the connection is gone. `early_bytes`
// were read from the socket already. Signals that are to be forwarded are blocked meanwhile.
Result<AttachedEnd> attend_job(Session& session, UniqueFd socket, std::string early_bytes,
                               AttachedOptions options);

}  // namespace tranche::cli
