// What the disk itself takes for one durable record: the floor of every acknowledgement.
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "figures.h"
#include "linux/files.h"
#include "linux/unique_fd.h"
#include "measure.h"

namespace tranche::bench {

Result<void> measure_disk(const Setting& setting) {
  const std::string path = setting.folder + "/append";
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file.is_open()) return fail(ErrorCode::internal, path + " cannot be made");
  unlink(path.c_str());
  const std::string block(4096, 'x');
  Samples spans;
  for (size_t i = 0; i < setting.count; ++i) {
    const int64_t began = monotonic_ns();
    TRY(write_all(file.get(), block));
    if (fdatasync(file.get()) != 0) return fail(ErrorCode::internal, path + " cannot be synced");
    spans.add(monotonic_ns() - began);
  }
  print_spans("disk", spans);
  return {};
}

}  // namespace tranche::bench
