// The client's side of TLS 1.3 (OpenSSL): bytes between a socket of this process and a server that proved its
// name.
//
// Threading: blocks until one side ends. Errors, one sentence each: unavailable (nobody answers there),
// denied (the certificate is not believed, or is another name's), timed_out. Never raises SIGPIPE.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace tranche {

struct TlsServerName {
  std::string host;  // a name, or a numeric address
  std::string port;
  std::string ca_file;  // PEM; "": the system's authorities
};

// A connection whose handshake is done.
class TlsConnection {
 public:
  static Result<TlsConnection> connect(const TlsServerName& server, Duration timeout);
  ~TlsConnection();
  TlsConnection(TlsConnection&&) noexcept;
  TlsConnection& operator=(TlsConnection&&) noexcept;

  // Carries bytes both ways until either side ends. `local` becomes non-blocking.
  void relay(int local);

 private:
  struct State;
  explicit TlsConnection(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tranche
