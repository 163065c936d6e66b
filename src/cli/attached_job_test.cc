// Interactive sessions against a daemon of frames, with pipes and with a real terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <cstring>

#include "cli/fake_daemon.h"
#include "cli/frame_stream.h"
#include "cli/program.h"
#include "wire/attach.h"
#include "wire/launcher.h"

namespace tranche::cli {
namespace {

using testing::FakeDaemon;
using testing::FakeReply;
using testing::FakeRequest;
using testing::Outcome;
using testing::run_words;
using wire::FrameType;

// The server's end of a session, blocking.
class Peer {
 public:
  explicit Peer(int socket) : socket_(socket), frames_(socket, {}) {}

  void send(FrameType type, std::string_view payload = {}) { frames_.send(type, payload); }

  void send_exit(wire::ExitCause cause, int code, int signal, std::string_view text = {}) {
    const wire::ExitFrame frame{code, signal, static_cast<uint32_t>(cause), 0};
    send(FrameType::exit,
         std::string(reinterpret_cast<const char*>(&frame), sizeof frame) + std::string(text));
  }

  // The next frame, or none when the client has closed.
  std::optional<Frame> next() {
    while (true) {
      Result<std::optional<Frame>> frame = frames_.next();
      if (frame && *frame) return std::move(**frame);
      pollfd waiting{socket_, POLLIN, 0};
      poll(&waiting, 1, -1);
      const Result<bool> open = frames_.receive();
      if (!open || !*open) return std::nullopt;
    }
  }

 private:
  int socket_;
  FrameStream frames_;
};

FakeDaemon::Handler session_of(std::function<void(Peer&)> script) {
  return [script = std::move(script)](const FakeRequest& request) -> FakeReply {
    if (request.target != "/v1/run") return {.body = "{}"};
    return {.status = 101, .extra_headers = "Tranche-Job: 7\r\n", .upgraded = [script](int socket) {
              Peer peer(socket);
              script(peer);
            }};
  };
}

Outcome run_session(std::function<void(Peer&)> script, std::vector<std::string> words = {"run", "--", "cat"},
                    std::string_view input = {}) {
  const FakeDaemon daemon(session_of(std::move(script)));
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  EXPECT_EQ(write(writing.get(), input.data(), input.size()), static_cast<ssize_t>(input.size()));
  writing.reset();
  Session::Setup setup;
  setup.input = reading.get();
  return run_words(daemon.socket_path(), std::move(words), setup);
}

TEST(AttachedJob, CarriesInputAndOutputAndTheExitCode) {
  const Outcome outcome = run_session(
      [](Peer& peer) {
        peer.send(FrameType::started);
        std::string input;
        for (auto frame = peer.next(); frame && frame->type != FrameType::stdin_end; frame = peer.next()) {
          EXPECT_EQ(frame->type, FrameType::stdin_data);
          input += frame->payload;
        }
        peer.send(FrameType::stdout_data, "out:" + input);
        peer.send(FrameType::stderr_data, "err");
        peer.send(static_cast<FrameType>(200), "from a newer server");
        peer.send_exit(wire::ExitCause::exited, 42, 0);
      },
      {"run", "--", "cat"}, "hello");
  EXPECT_EQ(outcome.code, 42);
  EXPECT_EQ(outcome.output, "out:hello");
  EXPECT_EQ(outcome.error, "err");
}

TEST(AttachedJob, ShowsEachChangeOfTheWaitOnce) {
  const auto script = [](Peer& peer) {
    peer.send(FrameType::progress, "position 2");
    peer.send(FrameType::progress, "position 2");
    peer.send(FrameType::progress, "position 1\x1b[2J");
    peer.send(FrameType::started);
    peer.send_exit(wire::ExitCause::exited, 0, 0);
  };
  EXPECT_EQ(run_session(script).error, "job 7: position 2\njob 7: position 1\\x1b[2J\n");
  EXPECT_EQ(run_session(script, {"-q", "run", "--", "cat"}).error, "");
}

TEST(AttachedJob, ExitCodes) {
  const auto code = [](wire::ExitCause cause, int exit, int signal) {
    return run_session([=](Peer& peer) { peer.send_exit(cause, exit, signal, "because"); });
  };
  EXPECT_EQ(code(wire::ExitCause::signalled, -1, SIGSEGV).code, 139);
  EXPECT_EQ(code(wire::ExitCause::time_limit, -1, SIGTERM).code, 124);
  EXPECT_EQ(code(wire::ExitCause::oom, -1, SIGKILL).code, 137);
  EXPECT_EQ(code(wire::ExitCause::none, 127, 0).code, 127);
  EXPECT_EQ(code(wire::ExitCause::none, -1, 0).code, 125);
  EXPECT_EQ(code(wire::ExitCause::none, 0, 0).code, 125);
  EXPECT_EQ(code(wire::ExitCause::unknown, -1, 0).code, 125);
  EXPECT_EQ(code(wire::ExitCause::none, -1, 0).error, "tranche: because\n");
}

TEST(AttachedJob, ALostConnectionIsSaid) {
  const Outcome outcome = run_session([](Peer& peer) { peer.send(FrameType::started); });
  EXPECT_EQ(outcome.code, 125);
  EXPECT_NE(outcome.error.find("'tranche show 7' tells"), std::string::npos) << outcome.error;
}

TEST(AttachedJob, AFrameTooLargeEndsIt) {
  const FakeDaemon daemon([](const FakeRequest&) -> FakeReply {
    return {.status = 101, .extra_headers = "Tranche-Job: 7\r\n", .upgraded = [](int socket) {
              const wire::FrameHeader header{wire::kMaxFramePayload + 1, 64, {}};
              EXPECT_EQ(send(socket, &header, sizeof header, MSG_NOSIGNAL), 8);
            }};
  });
  EXPECT_EQ(run_words(daemon.socket_path(), {"run", "--", "cat"}).code, 1);
}

TEST(AttachedJob, ARefusalIsAProblem) {
  const FakeDaemon daemon([](const FakeRequest&) { return testing::problem(422, "never_fits", "no"); });
  const Outcome outcome = run_words(daemon.socket_path(), {"run", "-G", "9", "--", "cat"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error, "tranche: no\n");
}

// Runs the program in a child with a terminal of its own; gives the terminal's other end to `drive`, and the
// exit code at the end. The settings of the terminal must be those of before.
int run_in_terminal(const std::string& socket_path,
                    const std::function<void(int terminal, pid_t child)>& drive) {
  int terminal = -1;
  int inner = -1;
  termios before{};
  EXPECT_EQ(openpty(&terminal, &inner, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(tcgetattr(inner, &before), 0);
  const pid_t child = fork();
  if (child == 0) {
    login_tty(dup(inner));
    Session::Setup setup = Session::current();
    setup.directory = "/";
    int code = 0;
    {
      Session session(setup);
      session.socket_path = socket_path;
      code = run_program(session, {"run", "--", "cat"});
    }
    _exit(code);
  }
  drive(terminal, child);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  termios after{};
  EXPECT_EQ(tcgetattr(inner, &after), 0);
  EXPECT_EQ(after.c_lflag, before.c_lflag);
  EXPECT_EQ(after.c_iflag, before.c_iflag);
  EXPECT_EQ(after.c_oflag, before.c_oflag);
  close(inner);
  close(terminal);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Reads from the terminal until `wanted` has come.
std::string expect_text(int terminal, std::string_view wanted) {
  std::string seen;
  char block[1024];
  while (seen.find(wanted) == std::string::npos) {
    const ssize_t got = read(terminal, block, sizeof block);
    if (got <= 0) break;
    seen.append(block, static_cast<size_t>(got));
  }
  EXPECT_NE(seen.find(wanted), std::string::npos) << seen;
  return seen;
}

TEST(AttachedTerminal, IsRawWhileTheJobRunsAndRestored) {
  std::string typed;
  bool window_seen = false;
  const FakeDaemon daemon(session_of([&](Peer& peer) {
    peer.send(FrameType::started);
    while (typed.size() < 2) {
      const std::optional<Frame> frame = peer.next();
      if (!frame) break;
      window_seen = window_seen || frame->type == FrameType::window_size;
      // The first frame that tells that raw mode is on.
      if (frame->type == FrameType::window_size) peer.send(FrameType::stdout_data, "ready");
      if (frame->type == FrameType::stdin_data) typed += frame->payload;
    }
    peer.send_exit(wire::ExitCause::exited, 5, 0);
  }));
  const int code = run_in_terminal(daemon.socket_path(), [](int terminal, pid_t) {
    expect_text(terminal, "ready");
    // In raw mode Ctrl-C and a lone return are bytes for the job.
    EXPECT_EQ(write(terminal, "\x03\r", 2), 2);
  });
  EXPECT_EQ(code, 5);
  EXPECT_EQ(typed, "\x03\r");
  EXPECT_TRUE(window_seen);
}

TEST(AttachedTerminal, IsRestoredWhenTheConnectionBreaks) {
  const FakeDaemon daemon(session_of([](Peer& peer) {
    peer.send(FrameType::started);
    while (true) {
      const std::optional<Frame> frame = peer.next();
      if (!frame || frame->type == FrameType::window_size) return;
    }
  }));
  EXPECT_EQ(
      run_in_terminal(daemon.socket_path(), [](int terminal, pid_t) { expect_text(terminal, "broke"); }),
      125);
}

TEST(AttachedTerminal, TermIsForwardedToTheRunningJob) {
  int signal = 0;
  const FakeDaemon daemon(session_of([&](Peer& peer) {
    peer.send(FrameType::started);
    peer.send(FrameType::stdout_data, "ready");
    for (auto frame = peer.next(); frame; frame = peer.next()) {
      if (frame->type != FrameType::signal) continue;
      std::memcpy(&signal, frame->payload.data(), sizeof signal);
      break;
    }
    peer.send_exit(wire::ExitCause::signalled, -1, SIGTERM);
  }));
  const int code = run_in_terminal(daemon.socket_path(), [](int terminal, pid_t child) {
    expect_text(terminal, "ready");
    kill(child, SIGTERM);
  });
  EXPECT_EQ(signal, SIGTERM);
  EXPECT_EQ(code, 128 + SIGTERM);
}

TEST(AttachedTerminal, TwoInterruptsCancelAWaitingJob) {
  const FakeDaemon daemon(session_of([](Peer& peer) {
    peer.send(FrameType::progress, "position 4");
    while (peer.next()) {
    }
  }));
  const int code = run_in_terminal(daemon.socket_path(), [](int terminal, pid_t) {
    expect_text(terminal, "position 4");
    EXPECT_EQ(write(terminal, "\x03", 1), 1);  // not raw yet: the terminal makes it a signal
    expect_text(terminal, "press Ctrl-C again to cancel");
    EXPECT_EQ(write(terminal, "\x03", 1), 1);
    expect_text(terminal, "is cancelled");
  });
  EXPECT_EQ(code, 128 + SIGINT);
  EXPECT_EQ(daemon.asked(), (std::vector<std::string>{"POST /v1/run", "POST /v1/jobs/7/cancel"}));
}

}  // namespace
}  // namespace tranche::cli
