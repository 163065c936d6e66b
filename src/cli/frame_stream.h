// Frames of wire/attach.h over a non-blocking socket: bytes in, frames out, and the reverse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/attach.h"

namespace tranche::cli {

struct Frame {
  wire::FrameType type{};
  std::string payload;
};

class FrameStream {
 public:
  // `socket` is borrowed and made non-blocking; `early` is what was read from it already.
  FrameStream(int socket, std::string early);

  // Reads what is there; false at the end of the connection.
  Result<bool> receive();
  // The next whole frame that was received. `corrupt` if a frame is larger than allowed.
  Result<std::optional<Frame>> next();

  void send(wire::FrameType type, std::string_view payload);
  // Writes what the socket takes. A connection that is gone drops it: receive() will tell.
  void flush();
  size_t unsent() const { return output_.size(); }

 private:
  int socket_;
  std::string input_;
  size_t input_offset_ = 0;
  std::string output_;
};

}  // namespace tranche::cli
