// The pipes or the pseudo-terminal between an interactive client and its process.
#pragma once

#include "launcher/birth.h"
#include "launcher/client_stream.h"

namespace tranche::launcher {

// The process's ends, to be closed once it has been born with them.
struct TaskFileEnds {
  isolation::FileDescriptor ends[3];  // input, output, error; or the terminal alone
  bool terminal = false;
  TaskFiles files() const;
};

// Gives `client` its own ends. A terminal belongs to the user and has the size that the request says.
isolation::Outcome<TaskFileEnds> make_task_files(const wire::StartRequest& request, ClientStream& client);

}  // namespace tranche::launcher
