#include "launcher/task_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tranche::launcher {

using isolation::call_failed;
using isolation::FileDescriptor;
using isolation::Outcome;

namespace {

Outcome<void> make_pipe(FileDescriptor& read_end, FileDescriptor& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return call_failed("making a pipe");
  read_end = FileDescriptor(ends[0]);
  write_end = FileDescriptor(ends[1]);
  return {};
}

Outcome<TaskFileEnds> make_terminal(const wire::StartRequest& request, ClientStream& client) {
  FileDescriptor master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master || ::unlockpt(master.get()) != 0) return call_failed("making a pseudo-terminal");
  FileDescriptor slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave) return call_failed("opening the pseudo-terminal");
  if (::fchown(slave.get(), request.uid, static_cast<gid_t>(-1)) != 0 || ::fchmod(slave.get(), 0600) != 0) {
    return call_failed("giving the pseudo-terminal to the user");
  }
  winsize size{};
  size.ws_row = request.terminal_rows != 0 ? request.terminal_rows : 24;
  size.ws_col = request.terminal_columns != 0 ? request.terminal_columns : 80;
  ::ioctl(master.get(), TIOCSWINSZ, &size);
  client.set_task(std::move(master), {}, {}, true);
  TaskFileEnds ends;
  ends.terminal = true;
  ends.ends[0] = std::move(slave);
  return ends;
}

Outcome<TaskFileEnds> make_pipes(const wire::StartRequest& request, ClientStream& client) {
  TaskFileEnds ends;
  FileDescriptor input;
  FileDescriptor output;
  FileDescriptor error;
  TRY(make_pipe(ends.ends[0], input));
  TRY(make_pipe(output, ends.ends[1]));
  if ((request.flags & wire::kStartMergeStderr) == 0) TRY(make_pipe(error, ends.ends[2]));
  client.set_task(std::move(input), std::move(output), std::move(error), false);
  return ends;
}

}  // namespace

TaskFiles TaskFileEnds::files() const {
  TaskFiles files;
  if (terminal) {
    files.terminal = ends[0].get();
    return files;
  }
  files.input = ends[0].get();
  files.output = ends[1].get();
  files.error = ends[2] ? ends[2].get() : ends[1].get();
  return files;
}

Outcome<TaskFileEnds> make_task_files(const wire::StartRequest& request, ClientStream& client) {
  return (request.flags & wire::kStartTerminal) != 0 ? make_terminal(request, client)
                                                     : make_pipes(request, client);
}

}  // namespace tranche::launcher
