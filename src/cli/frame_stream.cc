#include "cli/frame_stream.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "linux/system_error.h"

namespace tranche::cli {

FrameStream::FrameStream(int socket, std::string early) : socket_(socket), input_(std::move(early)) {
  const int flags = fcntl(socket, F_GETFL);
  fcntl(socket, F_SETFL, flags | O_NONBLOCK);
}

Result<bool> FrameStream::receive() {
  input_.erase(0, input_offset_);
  input_offset_ = 0;
  char block[16 << 10];
  const ssize_t got = recv(socket_, block, sizeof block, 0);
  if (got > 0) {
    input_.append(block, static_cast<size_t>(got));
    return true;
  }
  if (got == 0 || errno == ECONNRESET || errno == EPIPE) return false;
  if (errno == EAGAIN || errno == EINTR) return true;
  return fail(system_error("read from the job"));
}

Result<std::optional<Frame>> FrameStream::next() {
  wire::FrameHeader header;
  const size_t available = input_.size() - input_offset_;
  if (available < sizeof header) return std::optional<Frame>();
  std::memcpy(&header, input_.data() + input_offset_, sizeof header);
  if (header.size > wire::kMaxFramePayload)
    return fail(ErrorCode::corrupt, "the job's connection carries no frames");
  if (available - sizeof header < header.size) return std::optional<Frame>();
  Frame frame{static_cast<wire::FrameType>(header.type),
              input_.substr(input_offset_ + sizeof header, header.size)};
  input_offset_ += sizeof header + header.size;
  return std::optional<Frame>(std::move(frame));
}

void FrameStream::send(wire::FrameType type, std::string_view payload) {
  wire::FrameHeader header{};
  header.size = static_cast<uint32_t>(payload.size());
  header.type = static_cast<uint8_t>(type);
  output_.append(reinterpret_cast<const char*>(&header), sizeof header);
  output_ += payload;
  flush();
}

void FrameStream::flush() {
  while (!output_.empty()) {
    const ssize_t sent = ::send(socket_, output_.data(), output_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      output_.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      output_.clear();
    }
  }
}

}  // namespace tranche::cli
