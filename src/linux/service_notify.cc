#include "linux/service_notify.h"

#include <systemd/sd-daemon.h>

#include <string>

namespace tranche {

void notify_ready() { ::sd_notify(0, "READY=1"); }
void notify_stopping() { ::sd_notify(0, "STOPPING=1"); }

void notify_status(std::string_view status) {
  std::string line = "STATUS=";
  for (const char c : status) line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  ::sd_notify(0, line.c_str());
}

std::vector<UniqueFd> inherited_sockets() {
  std::vector<UniqueFd> sockets;
  const int count = ::sd_listen_fds(/* unset_environment= */ 1);
  for (int i = 0; i < count; ++i) sockets.emplace_back(SD_LISTEN_FDS_START + i);
  return sockets;
}

}  // namespace tranche
