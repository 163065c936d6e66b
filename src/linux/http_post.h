// One POST to an address that the administrator configured (libcurl). Blocks until it is answered or its time
// is up: for a worker's thread, never the loop's.
//
// Nothing leads elsewhere: redirects are not followed, proxies of the environment are not used, and unless
// `private_address` says so no address of this machine, link or private network is connected to, whatever the
// name resolves to at that moment. Of the answer only the status counts; its body is bounded and dropped.
#pragma once

#include <sys/socket.h>

#include <string>

#include "base/result.h"
#include "base/units.h"
#include "linux/http_types.h"

namespace tranche {

struct HttpPost {
  std::string url;
  HttpHeaders headers;
  std::string body;
  std::string ca_file;  // PEM; "": the system's authorities
  bool private_address = false;
  Duration timeout{10 * kSecond.count()};
};

// The status of the answer. Errors, one sentence without the address: timed_out, denied (an address that may
// not be connected to, a certificate that is not believed), unavailable.
Result<int> http_post(const HttpPost& post);

// Whether an address, as sockaddr, is of this machine, link or a private network. For tests.
bool is_private_address(const ::sockaddr& address);

}  // namespace tranche
