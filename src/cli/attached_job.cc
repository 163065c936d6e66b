#include "cli/attached_job.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/frame_stream.h"
#include "cli/job_text.h"
#include "cli/raw_terminal.h"
#include "cli/session.h"
#include "cli/text.h"
#include "linux/files.h"
#include "linux/system_error.h"
#include "wire/attach.h"
#include "wire/launcher.h"

namespace tranche::cli {
namespace {

// What a shell, a terminal or a batch system may send to us and means for the job.
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};
constexpr size_t kInputBlock = size_t{16} << 10;
// No more input is read while this much waits for a job that does not read.
constexpr size_t kUnsentMax = size_t{64} << 10;

// Signals of the session as a descriptor; the mask of before comes back at the end.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kForwarded) sigaddset(&set, signal);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGTSTP);
    // Not for the queue: a reader that is gone shows in write(), and ends us when the mask comes back.
    sigset_t blocked = set;
    sigaddset(&blocked, SIGPIPE);
    sigprocmask(SIG_BLOCK, &blocked, &before_);
    queue_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalQueue() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return queue_.get(); }
  // The next signal, or 0.
  int next() const {
    signalfd_siginfo info{};
    return read(queue_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  UniqueFd queue_;
  sigset_t before_{};
};

// The one line that says how long the wait may be: replaced on a terminal, printed when it changes elsewhere.
class ProgressLine {
 public:
  ProgressLine(Session& session, std::string label) : session_(session), label_(std::move(label)) {}

  void show(std::string_view text) {
    const std::string line = label_ + ": " + printable(text);
    if (line == shown_) return;
    shown_ = line;
    if (!session_.setup().error_is_terminal) {
      session_.note(line + "\n");
      return;
    }
    const size_t width = window_size(session_.setup().error).columns;
    session_.note("\r\x1b[K" + (width > 1 ? fit_width(line, width - 1) : line));
    open_ = true;
  }

  void clear() {
    if (open_) session_.note("\r\x1b[K");
    open_ = false;
    shown_.clear();
  }

 private:
  Session& session_;
  std::string label_;
  std::string shown_;
  bool open_ = false;
};

AttachedEnd end_of(std::string_view payload) {
  wire::ExitFrame frame{};
  AttachedEnd end;
  end.lost = payload.size() < sizeof frame;
  if (end.lost) return end;
  std::memcpy(&frame, payload.data(), sizeof frame);
  end.text = payload.substr(sizeof frame);
  switch (static_cast<wire::ExitCause>(frame.cause)) {
    case wire::ExitCause::time_limit:
      end.exit_code = kExitTimeLimit;
      if (end.text.empty()) end.text = "the job was ended at its time limit; -t asks for more";
      return end;
    case wire::ExitCause::oom:
      end.exit_code = kExitOutOfMemory;
      if (end.text.empty()) end.text = "the job ran out of host memory at its limit; --mem asks for more";
      return end;
    case wire::ExitCause::killed:
      if (end.text.empty()) end.text = "the job was stopped; 'tranche show' says by whom and why";
      break;
    case wire::ExitCause::none:
    case wire::ExitCause::unknown:
    case wire::ExitCause::exited:
    case wire::ExitCause::signalled:
      break;
  }
  if (frame.signal > 0 && frame.signal < 128) {
    end.exit_code = kExitSignalBase + frame.signal;
  } else if (frame.exit_code >= 0 && frame.exit_code < 256) {
    end.exit_code = frame.exit_code;
  } else {
    end.exit_code = kExitTrancheFailed;
  }
  // What never executed cannot have succeeded.
  const bool never = frame.cause == static_cast<uint32_t>(wire::ExitCause::none);
  if (never && end.exit_code == 0) end.exit_code = kExitTrancheFailed;
  return end;
}

class Attendance {
 public:
  Attendance(Session& session, int socket, std::string early_bytes, AttachedOptions options)
      : session_(session),
        options_(std::move(options)),
        socket_(socket),
        frames_(socket, std::move(early_bytes)),
        terminal_(session.setup().input),
        progress_(session, options_.label) {}

  Result<AttachedEnd> run() {
    // A read that would block must not stop the output, so input is only read when poll says so.
    while (true) {
      TRY(take_frames());
      if (end_) return finish(std::move(*end_));
      pollfd waiting[] = {{socket_, events_of_socket(), 0},
                          {signals_.descriptor(), POLLIN, 0},
                          {wants_input() ? session_.setup().input : -1, POLLIN, 0}};
      if (poll(waiting, 3, -1) < 0 && errno != EINTR) return fail(system_error("wait for the job"));
      if ((waiting[1].revents & POLLIN) != 0) TRY(take_signals());
      if ((waiting[2].revents & (POLLIN | POLLHUP | POLLERR)) != 0) take_input();
      if ((waiting[0].revents & POLLOUT) != 0) frames_.flush();
      if ((waiting[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        TRY_ASSIGN(const bool open, frames_.receive());
        if (!open) {
          TRY(take_frames());
          if (!end_) end_.emplace().lost = true;
        }
      }
    }
  }

 private:
  short events_of_socket() const { return static_cast<short>(POLLIN | (frames_.unsent() > 0 ? POLLOUT : 0)); }
  bool wants_input() const { return started_ && !input_ended_ && frames_.unsent() < kUnsentMax; }

  AttachedEnd finish(AttachedEnd end) {
    progress_.clear();
    terminal_.leave();
    end.cancelled = cancelled_;
    return end;
  }

  Result<void> take_frames() {
    while (!end_) {
      TRY_ASSIGN(const std::optional<Frame> frame, frames_.next());
      if (!frame) return {};
      TRY(take_frame(*frame));
    }
    return {};
  }

  Result<void> take_frame(const Frame& frame) {
    switch (frame.type) {
      case wire::FrameType::stdout_data:
        return show(session_.setup().output, frame.payload);
      case wire::FrameType::stderr_data:
        return show(session_.setup().error, frame.payload);
      case wire::FrameType::progress:
        progress_.show(frame.payload);
        return {};
      case wire::FrameType::started:
        start();
        return {};
      case wire::FrameType::exit:
        end_ = end_of(frame.payload);
        return {};
      case wire::FrameType::detached:
        end_.emplace().text = options_.label + " goes on; somebody else is attached to it now";
        return {};
      case wire::FrameType::stdin_data:
      case wire::FrameType::stdin_end:
      case wire::FrameType::window_size:
      case wire::FrameType::signal:
      case wire::FrameType::detach:
        return {};
    }
    return {};  // a type that only a newer server knows
  }

  // A job whose output nobody gets any more would only hold its GPUs: it ends, as a program here would.
  Result<void> show(int output, std::string_view bytes) {
    Result<void> written = write_all(output, bytes);
    if (written) return {};
    const bool reader_left = errno == EPIPE;
    TRY(options_.cancel());
    end_.emplace().exit_code = reader_left ? kExitSignalBase + SIGPIPE : 1;
    const std::string after = options_.inside ? "" : "; " + options_.label + " is cancelled";
    end_->text = reader_left ? "" : written.error().message() + after;
    return {};
  }

  void start() {
    started_ = true;
    progress_.clear();
    if (!options_.terminal && !options_.input) {
      input_ended_ = true;
      frames_.send(wire::FrameType::stdin_end, {});
    }
    if (!options_.terminal) return;
    terminal_.enter();
    send_window_size();
  }

  void send_window_size() {
    const WindowSize size = window_size(session_.setup().input);
    const wire::WindowSizeFrame frame{size.rows, size.columns};
    frames_.send(wire::FrameType::window_size, {reinterpret_cast<const char*>(&frame), sizeof frame});
  }

  Result<void> take_signals() {
    for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
      if (signal == SIGWINCH) {
        if (started_ && options_.terminal) send_window_size();
      } else if (signal == SIGTSTP) {
        stop_ourselves();
      } else if (signal == SIGHUP && started_ && options_.terminal) {
        // Our window was closed; the job keeps its own terminal.
        end_.emplace().exit_code = kExitSignalBase + SIGHUP;
        if (!options_.inside) end_->text = options_.label + " goes on; 'tranche attach' returns to it";
      } else if (started_) {
        const wire::SignalFrame frame{signal};
        frames_.send(wire::FrameType::signal, {reinterpret_cast<const char*>(&frame), sizeof frame});
      } else {
        TRY(interrupt_wait(signal));
      }
    }
    return {};
  }

  // While the job waits: the first Ctrl-C asks, the second cancels. Anything stronger cancels at once.
  Result<void> interrupt_wait(int signal) {
    if (options_.inside) {
      end_.emplace().exit_code = kExitSignalBase + signal;
      return {};
    }
    if (signal == SIGINT && !asked_) {
      asked_ = true;
      progress_.clear();
      session_.warn(options_.label + " waits; press Ctrl-C again to cancel it");
      return {};
    }
    cancelled_ = true;
    progress_.clear();
    TRY(options_.cancel());
    end_.emplace().exit_code = kExitSignalBase + signal;
    end_->text = options_.label + " is cancelled";
    return {};
  }

  // Ctrl-Z stops this program, not the job; the terminal must be usable meanwhile.
  void stop_ourselves() {
    terminal_.leave();
    kill(getpid(), SIGSTOP);
    if (!started_ || !options_.terminal) return;
    terminal_.enter();
    send_window_size();
  }

  void take_input() {
    char block[kInputBlock];
    const ssize_t got = read(session_.setup().input, block, sizeof block);
    if (got > 0) {
      frames_.send(wire::FrameType::stdin_data, {block, static_cast<size_t>(got)});
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      input_ended_ = true;
      frames_.send(wire::FrameType::stdin_end, {});
    }
  }

  Session& session_;
  AttachedOptions options_;
  int socket_;
  SignalQueue signals_;
  FrameStream frames_;
  RawTerminal terminal_;
  ProgressLine progress_;
  bool started_ = false;
  bool input_ended_ = false;
  bool asked_ = false;
  bool cancelled_ = false;
  std::optional<AttachedEnd> end_;
};

}  // namespace

Result<AttachedEnd> attend_job(Session& session, UniqueFd socket, std::string early_bytes,
                               AttachedOptions options) {
  return Attendance(session, socket.get(), std::move(early_bytes), std::move(options)).run();
}

}  // namespace tranche::cli
