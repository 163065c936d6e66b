// tranche: the command line of Tranche.
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cli/program.h"
#include "cli/remote.h"
#include "cli/session.h"

namespace {

// Whatever is opened first would otherwise be taken for a standard stream that was closed (`tranche gpus
// >&-`), and be written to. These cannot be: both ways fail.
void fill_closed_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    const int filled = open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
    if (filled != stream) _exit(125);
  }
}

}  // namespace

int main(int count, char** words) {
  fill_closed_streams();
  tranche::cli::Session session(tranche::cli::Session::current());
  tranche::cli::use_remote_daemons(session);
  return tranche::cli::run_program(session,
                                   std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count));
}
