#include "launcher/client_stream.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tranche::launcher {
namespace {

using isolation::FileDescriptor;
using wire::FrameType;

void set_nonblocking(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags >= 0) ::fcntl(file, F_SETFL, flags | O_NONBLOCK);
}

std::string encode_frame(FrameType type, std::string_view payload) {
  wire::FrameHeader header{};
  header.size = static_cast<uint32_t>(payload.size());
  header.type = static_cast<uint8_t>(type);
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame.append(payload);
  return frame;
}

template <class Payload>
bool decode_payload(std::string_view bytes, Payload& payload) {
  if (bytes.size() < sizeof payload) return false;
  std::memcpy(&payload, bytes.data(), sizeof payload);
  return true;
}

}  // namespace

ClientStream::ClientStream(EventLoop& loop, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {}

ClientStream::~ClientStream() {
  drop_client(false);
  close_task_file(input_);
  close_task_file(output_);
  close_task_file(error_);
}

void ClientStream::set_task(FileDescriptor input, FileDescriptor output, FileDescriptor error,
                            bool terminal) {
  input_ = std::move(input);
  output_ = std::move(output);
  error_ = std::move(error);
  terminal_ = terminal;
  for (const FileDescriptor* file : {&input_, &output_, &error_}) {
    if (*file) set_nonblocking(file->get());
  }
  if (terminal_) {
    loop_.watch(input_.get(), EPOLLIN, [this](uint32_t events) {
      if ((events & EPOLLOUT) != 0) on_input_writable();
      if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && input_)
        on_output(input_, FrameType::stdout_data);
    });
    return;
  }
  loop_.watch(input_.get(), 0, [this](uint32_t events) {
    // Reported even when not asked for: the task has closed its input.
    if ((events & EPOLLERR) != 0) {
      to_task_.clear();
      return close_task_file(input_);
    }
    on_input_writable();
  });
  loop_.watch(output_.get(), EPOLLIN, [this](uint32_t) { on_output(output_, FrameType::stdout_data); });
  if (error_)
    loop_.watch(error_.get(), EPOLLIN, [this](uint32_t) { on_output(error_, FrameType::stderr_data); });
}

void ClientStream::set_client(FileDescriptor client) {
  if (client_) {
    queue_frame(FrameType::detached, {});
    flush_client();
    drop_client(false);
  }
  client_ = std::move(client);
  set_nonblocking(client_.get());
  outgoing_ = replay_;
  loop_.watch(client_.get(), EPOLLIN, [this](uint32_t events) { on_client(events); });
  flush_client();
}

void ClientStream::send_started() {
  queue_frame(FrameType::started, {});
  flush_client();
}

void ClientStream::finish(const wire::ExitFrame& exit, std::string_view text) {
  has_exit_ = true;
  exit_ = exit;
  exit_text_ = text;
  finish_if_possible();
}

// Once nobody of the task is left, what lies in pipe or terminal is all that will come.
void ClientStream::finish_if_possible() {
  if (!has_exit_ || finished_) return;
  if (!exit_queued_) {
    if (terminal_) {
      read_rest(input_, FrameType::stdout_data);
    } else {
      read_rest(output_, FrameType::stdout_data);
      read_rest(error_, FrameType::stderr_data);
    }
    if (client_ && outgoing_.size() >= kMaxOutgoing) return flush_client();
    queue_frame(FrameType::exit,
                std::string(reinterpret_cast<const char*>(&exit_), sizeof exit_) + exit_text_);
    exit_queued_ = true;
    flush_client();
    if (finished_) return;
  }
  if (client_ && !outgoing_.empty()) return;
  finished_ = true;
  drop_client(false);
  handlers_.finished();
}

void ClientStream::read_rest(FileDescriptor& file, FrameType type) {
  char buffer[kReadSize];
  while (file && (!client_ || outgoing_.size() < kMaxOutgoing)) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count <= 0) return close_task_file(file);
    queue_frame(type, std::string_view(buffer, static_cast<size_t>(count)));
  }
}

void ClientStream::on_output(FileDescriptor& file, FrameType type) {
  char buffer[kReadSize];
  const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // EIO: no process holds the terminal any more.
  if (count <= 0) return close_task_file(file);
  queue_frame(type, std::string_view(buffer, static_cast<size_t>(count)));
  flush_client();
}

void ClientStream::queue_frame(FrameType type, std::string_view payload) {
  remember(type, payload);
  if (!client_) return;
  outgoing_ += encode_frame(type, payload);
}

// Whole frames are forgotten from the front, so that a later client can read what is left.
void ClientStream::remember(FrameType type, std::string_view payload) {
  if (type == FrameType::detached || type == FrameType::exit) return;
  replay_ += encode_frame(type, payload);
  size_t cut = 0;
  while (replay_.size() - cut > wire::kReplayBytes) {
    wire::FrameHeader header{};
    std::memcpy(&header, replay_.data() + cut, sizeof header);
    cut += sizeof header + header.size;
  }
  replay_.erase(0, cut);
}

void ClientStream::flush_client() {
  while (client_ && !outgoing_.empty()) {
    const ssize_t count =
        ::send(client_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) return drop_client(true);
    outgoing_.erase(0, static_cast<size_t>(count));
  }
  update_interest();
}

void ClientStream::update_interest() {
  const bool may_read_task = !client_ || outgoing_.size() < kMaxOutgoing;
  const uint32_t read = may_read_task ? uint32_t{EPOLLIN} : 0;
  const uint32_t write = to_task_.empty() ? 0 : uint32_t{EPOLLOUT};
  if (terminal_ && input_) loop_.change(input_.get(), read | write);
  if (!terminal_ && input_) loop_.change(input_.get(), write);
  if (output_) loop_.change(output_.get(), read);
  if (error_) loop_.change(error_.get(), read);
  if (!client_) return;
  const bool may_read_client = to_task_.size() < wire::kMaxFramePayload;
  loop_.change(client_.get(),
               (may_read_client ? uint32_t{EPOLLIN} : 0) | (outgoing_.empty() ? 0 : uint32_t{EPOLLOUT}));
}

void ClientStream::on_client(uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush_client();
  if (client_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !read_client()) drop_client(true);
  update_interest();
  finish_if_possible();
}

bool ClientStream::read_client() {
  char buffer[kReadSize];
  const ssize_t count = ::recv(client_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  incoming_.append(buffer, static_cast<size_t>(count));
  return handle_frames();
}

bool ClientStream::handle_frames() {
  size_t begin = 0;
  while (client_ && incoming_.size() - begin >= sizeof(wire::FrameHeader)) {
    wire::FrameHeader header{};
    std::memcpy(&header, incoming_.data() + begin, sizeof header);
    if (header.size > wire::kMaxFramePayload) return false;
    if (incoming_.size() - begin - sizeof header < header.size) break;
    const std::string payload = incoming_.substr(begin + sizeof header, header.size);
    begin += sizeof header + header.size;
    handle_frame(static_cast<FrameType>(header.type), payload);
  }
  if (client_) incoming_.erase(0, begin);
  return true;
}

void ClientStream::handle_frame(FrameType type, std::string_view payload) {
  if (type == FrameType::stdin_data && input_ && !input_ends_) {
    to_task_.append(payload);
    flush_input();
  } else if (type == FrameType::stdin_end && !terminal_) {
    input_ends_ = true;
    flush_input();
  } else if (type == FrameType::window_size && terminal_ && input_) {
    wire::WindowSizeFrame frame{};
    if (!decode_payload(payload, frame)) return;
    winsize size{};
    size.ws_row = frame.rows;
    size.ws_col = frame.columns;
    ::ioctl(input_.get(), TIOCSWINSZ, &size);
  } else if (type == FrameType::signal) {
    wire::SignalFrame frame{};
    if (decode_payload(payload, frame) && frame.signal > 0 && frame.signal <= 64)
      handlers_.signal(frame.signal);
  } else if (type == FrameType::detach) {
    queue_frame(FrameType::detached, {});
    flush_client();
    drop_client(false);
    handlers_.detached();
  }
}

void ClientStream::on_input_writable() {
  flush_input();
  update_interest();
}

void ClientStream::flush_input() {
  while (input_ && !to_task_.empty()) {
    const ssize_t count = ::write(input_.get(), to_task_.data(), to_task_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      to_task_.clear();
      // The task has closed its input; the terminal's master is also its output and stays.
      if (!terminal_) close_task_file(input_);
      return;
    }
    to_task_.erase(0, static_cast<size_t>(count));
  }
  if (input_ends_ && !terminal_) close_task_file(input_);
}

void ClientStream::drop_client(bool lost) {
  if (!client_) return;
  loop_.forget(client_.get());
  client_.close();
  incoming_.clear();
  outgoing_.clear();
  if (!lost) return;
  update_interest();
  // A half-typed input ends where the client was lost; a terminal waits for the next client.
  if (!terminal_) {
    input_ends_ = true;
    flush_input();
  }
  handlers_.lost();
  finish_if_possible();
}

void ClientStream::close_task_file(FileDescriptor& file) {
  if (!file) return;
  loop_.forget(file.get());
  file.close();
}

}  // namespace tranche::launcher
