// The interactive client of a task: frames of wire/attach.h on one side, the task's pipes or pseudo-terminal
// on the other. Everything is bounded: a client that does not read stops the task's output, a task that does
// not read stops the client's input. Nothing blocks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/event_loop.h"
#include "wire/attach.h"

namespace tranche::launcher {

class ClientStream {
 public:
  struct Handlers {
    std::function<void(int signal)> signal;
    std::function<void()> lost;  // hung up or broke the protocol, without having said detach
    std::function<void()> detached;
    std::function<void()> finished;  // the exit frame has been taken, or nobody is there to take it
  };

  ClientStream(EventLoop& loop, Handlers handlers);
  ~ClientStream();
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // The shepherd's ends. With a terminal all three are its master, given as `input` alone.
  void set_task(isolation::FileDescriptor input, isolation::FileDescriptor output,
                isolation::FileDescriptor error, bool terminal);
  // Takes over from an earlier client, which is told `detached`; gets what was said lately.
  void set_client(isolation::FileDescriptor client);
  bool has_client() const { return static_cast<bool>(client_); }
  bool has_terminal() const { return terminal_; }
  int terminal() const { return terminal_ ? input_.get() : -1; }

  void send_started();
  // The task has ended: once its output has been read to the end, or to where it is if somebody outside still
  // holds it, the client gets `exit`; then finished() is called.
  void finish(const wire::ExitFrame& exit, std::string_view text);

 private:
  static constexpr size_t kMaxOutgoing = 256U << 10;
  static constexpr size_t kReadSize = 32U << 10;

  void on_client(uint32_t events);
  void on_output(isolation::FileDescriptor& file, wire::FrameType type);
  void on_input_writable();
  bool read_client();
  bool handle_frames();
  void handle_frame(wire::FrameType type, std::string_view payload);
  void read_rest(isolation::FileDescriptor& file, wire::FrameType type);
  void queue_frame(wire::FrameType type, std::string_view payload);
  void remember(wire::FrameType type, std::string_view payload);
  void flush_client();
  void flush_input();
  void drop_client(bool lost);
  void update_interest();
  void close_task_file(isolation::FileDescriptor& file);
  void finish_if_possible();

  EventLoop& loop_;
  Handlers handlers_;
  isolation::FileDescriptor client_;
  isolation::FileDescriptor input_;   // to the task, or the terminal's master
  isolation::FileDescriptor output_;  // from the task
  isolation::FileDescriptor error_;
  bool terminal_ = false;
  bool input_ends_ = false;
  std::string incoming_;  // from the client, not yet whole frames
  std::string outgoing_;  // to the client
  std::string to_task_;   // stdin not yet taken
  std::string replay_;    // last output, as frames
  bool has_exit_ = false;
  bool exit_queued_ = false;
  bool finished_ = false;
  wire::ExitFrame exit_{};
  std::string exit_text_;
};

}  // namespace tranche::launcher
