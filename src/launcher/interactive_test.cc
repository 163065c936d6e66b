// The interactive client: frames, pseudo-terminal, signals, detach and attach, lost clients.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

using isolation::FileDescriptor;
using wire::ExitCause;
using wire::FrameType;
using wire::LauncherKind;

// The client's end of the attach stream.
class Client {
 public:
  Client() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own_ = FileDescriptor(ends[0]);
    other_ = FileDescriptor(ends[1]);
  }
  // What is handed to the launcher; closed here after the hand-over.
  int other() const { return other_.get(); }
  void handed_over() { other_.close(); }
  void hang_up() { own_.close(); }

  void send(FrameType type, const std::string& payload) {
    wire::FrameHeader header{};
    header.size = static_cast<uint32_t>(payload.size());
    header.type = static_cast<uint8_t>(type);
    const std::string frame = std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
    EXPECT_EQ(::send(own_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }
  template <class Payload>
  void send_struct(FrameType type, const Payload& payload) {
    send(type, std::string(reinterpret_cast<const char*>(&payload), sizeof payload));
  }
  // Reads frames until one of `type`; output before it is collected. Fails after 20 s or at the end.
  std::string wait_frame(FrameType type) {
    for (;;) {
      wire::FrameHeader header{};
      if (!read_exactly(reinterpret_cast<char*>(&header), sizeof header)) break;
      std::string payload(header.size, '\0');
      if (!read_exactly(payload.data(), payload.size())) break;
      if (header.type == static_cast<uint8_t>(FrameType::stdout_data)) output += payload;
      if (header.type == static_cast<uint8_t>(FrameType::stderr_data)) error += payload;
      if (header.type == static_cast<uint8_t>(type)) return payload;
    }
    ADD_FAILURE() << "no frame " << static_cast<int>(type) << "; output: " << output;
    return std::string(64, '\0');
  }
  wire::ExitFrame wait_exit() {
    wire::ExitFrame exit{};
    const std::string payload = wait_frame(FrameType::exit);
    memcpy(&exit, payload.data(), sizeof exit);
    exit_text = payload.substr(sizeof exit);
    return exit;
  }
  void wait_output(const std::string& text) {
    while (output.find(text) == std::string::npos && !HasFailure()) (void)wait_frame(FrameType::stdout_data);
  }

  std::string output;
  std::string error;
  std::string exit_text;

 private:
  static bool HasFailure() { return ::testing::Test::HasFailure(); }
  bool read_exactly(char* bytes, size_t size) {
    while (size > 0) {
      pollfd ready{own_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 20'000) != 1) return false;
      const ssize_t count = ::recv(own_.get(), bytes, size, 0);
      if (count <= 0) return false;
      bytes += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }
  FileDescriptor own_;
  FileDescriptor other_;
};

class InteractiveTest : public LauncherTest {
 protected:
  wire::StartRequest interactive(uint64_t job, uint32_t more_flags = 0) {
    auto request = start_request(job, kAlice);
    request.flags |= wire::kStartInteractive | more_flags;
    return request;
  }
  void begin_with(const wire::StartRequest& request, const BlockSpec& block, Client& client) {
    const auto reply = daemon().start(request, block, {client.other()});
    ASSERT_EQ(reply.status, 0) << reply.text;
    client.handed_over();
    (void)daemon().wait_for(LauncherKind::prepared, request.key);
    ASSERT_EQ(daemon().ask(LauncherKind::go, request.key).status, 0);
    (void)client.wait_frame(FrameType::started);
  }
  wire::Reply attach(const wire::TaskKey& key, Client& client) {
    wire::TaskRequest request{};
    request.header = {sizeof request, 1, static_cast<uint16_t>(LauncherKind::attach), daemon().next_id()};
    request.key = key;
    EXPECT_TRUE(daemon().send_raw(&request, sizeof request, {client.other()}));
    client.handed_over();
    return daemon().wait_reply(request.header.id);
  }
};

TEST_F(InteractiveTest, CarriesInputOutputErrorAndExitCode) {
  start_launcher();
  Client client;
  begin_with(interactive(1), shell("read line; echo \"got $line\"; echo oops >&2; cat; exit 4"), client);
  client.send(FrameType::stdin_data, "hello\nmore");
  client.send(FrameType::stdin_end, "");
  const auto exit = client.wait_exit();
  EXPECT_EQ(exit.exit_code, 4);
  EXPECT_EQ(exit.cause, static_cast<uint32_t>(ExitCause::exited));
  EXPECT_EQ(client.output, "got hello\nmore");
  EXPECT_EQ(client.error, "oops\n");
  EXPECT_EQ(end_of({1, 0, 1}).exit_code, 4);
}

TEST_F(InteractiveTest, CarriesMuchInBothDirectionsWithoutLoss) {
  start_launcher();
  Client client;
  begin_with(interactive(1, wire::kStartMergeStderr), shell("wc -c; head -c 3000000 /dev/zero | tr '\\0' x"),
             client);
  const std::string block(60'000, 'y');
  for (int i = 0; i < 20; ++i) client.send(FrameType::stdin_data, block);
  client.send(FrameType::stdin_end, "");
  EXPECT_EQ(client.wait_exit().exit_code, 0);
  EXPECT_TRUE(client.output.starts_with("1200000\n"));
  EXPECT_EQ(client.output.size(), 8 + 3'000'000U);
}

TEST_F(InteractiveTest, TerminalIsTheUsersAndHasASize) {
  start_launcher();
  Client client;
  auto request = interactive(1, wire::kStartTerminal);
  request.terminal_rows = 50;
  request.terminal_columns = 132;
  begin_with(request,
             shell("stty size; stat -c %u $(tty); [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; "
                   "trap 'stty size; exit 6' WINCH; echo ready; while :; do sleep 0.01; done"),
             client);
  client.wait_output("ready");
  EXPECT_EQ(client.output, "50 132\r\n2001\r\nterminal\r\nready\r\n");
  client.send_struct(FrameType::window_size, wire::WindowSizeFrame{30, 90});
  EXPECT_EQ(client.wait_exit().exit_code, 6);
  EXPECT_TRUE(client.output.ends_with("30 90\r\n")) << client.output;
}

TEST_F(InteractiveTest, ForwardsSignals) {
  start_launcher();
  for (const uint32_t flags : {0U, wire::kStartTerminal}) {
    Client client;
    begin_with(interactive(flags + 1, flags),
               shell("trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done"), client);
    client.wait_output("ready");
    client.send_struct(FrameType::signal, wire::SignalFrame{SIGINT});
    EXPECT_EQ(client.wait_exit().exit_code, 5);
  }
}

TEST_F(InteractiveTest, TypedInterruptReachesTheForeground) {
  start_launcher();
  Client client;
  begin_with(interactive(1, wire::kStartTerminal),
             shell("trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done"), client);
  client.wait_output("ready");
  client.send(FrameType::stdin_data, "\x03");
  EXPECT_EQ(client.wait_exit().exit_code, 5);
}

TEST_F(InteractiveTest, DetachAndAttachAgain) {
  start_launcher();
  Client first;
  const auto request = interactive(1, wire::kStartTerminal);
  begin_with(request, shell("stty -echo; echo ready; read word; echo \"word $word\"; exit 2"), first);
  first.wait_output("ready");
  first.send(FrameType::detach, "");
  (void)first.wait_frame(FrameType::detached);
  Client second;
  EXPECT_EQ(attach(request.key, second).status, 0);
  second.wait_output("ready");  // what was said before is shown again
  Client third;
  EXPECT_EQ(attach(request.key, third).status, 0);
  (void)second.wait_frame(FrameType::detached);
  third.send(FrameType::stdin_data, "go\n");
  EXPECT_EQ(third.wait_exit().exit_code, 2);
  EXPECT_NE(third.output.find("word go"), std::string::npos) << third.output;
  Client late;
  EXPECT_EQ(attach(request.key, late).status, ESRCH);
}

TEST_F(InteractiveTest, SurvivesTheDaemonAndTheLauncher) {
  start_launcher();
  Client client;
  const auto request = interactive(1);
  begin_with(request, shell("cat; exit 8"), client);
  client.send(FrameType::stdin_data, "one\n");
  client.wait_output("one\n");
  crash_launcher();
  client.send(FrameType::stdin_data, "two\n");
  client.wait_output("two\n");
  client.send(FrameType::stdin_end, "");
  EXPECT_EQ(client.wait_exit().exit_code, 8);
  EXPECT_EQ(client.output, "one\ntwo\n");
  start_launcher();
}

TEST_F(InteractiveTest, LostClientWithATerminalLeavesTheTaskRunning) {
  start_launcher();
  Client client;
  const auto request = interactive(1, wire::kStartTerminal);
  begin_with(request, shell("echo ready; read word; exit 3"), client);
  client.wait_output("ready");
  client.hang_up();
  Client second;
  EXPECT_EQ(attach(request.key, second).status, 0);
  second.send(FrameType::stdin_data, "x\n");
  EXPECT_EQ(second.wait_exit().exit_code, 3);
}

TEST_F(InteractiveTest, ClientThatSendsGarbageLosesTheConnectionOnly) {
  start_launcher();
  Client client;
  const auto request = interactive(1, wire::kStartTerminal);
  begin_with(request, shell("echo ready; read word; exit 3"), client);
  client.wait_output("ready");
  client.send(static_cast<FrameType>(200), "an unknown frame is skipped");
  client.send_struct(FrameType::signal, wire::SignalFrame{9999});
  client.send(FrameType::signal, "x");
  client.send(FrameType::stdin_data, std::string(wire::kMaxFramePayload + 1, 'z'));
  Client second;
  EXPECT_EQ(attach(request.key, second).status, 0);
  second.send(FrameType::stdin_data, "x\n");
  EXPECT_EQ(second.wait_exit().exit_code, 3);
}

TEST_F(InteractiveTest, TellsTheClientWhyItDidNotStart) {
  start_launcher();
  Client client;
  const auto request = interactive(1);
  BlockSpec block;
  block.arguments = {"no-such-command"};
  ASSERT_EQ(daemon().start(request, block, {client.other()}).status, 0);
  client.handed_over();
  (void)daemon().wait_for(LauncherKind::prepared, request.key);
  ASSERT_EQ(daemon().ask(LauncherKind::go, request.key).status, 0);
  const auto exit = client.wait_exit();
  EXPECT_EQ(exit.cause, static_cast<uint32_t>(ExitCause::none));
  EXPECT_EQ(client.exit_text, "command no-such-command was not found in PATH");
}

TEST_F(InteractiveTest, NeedsAStreamSocket) {
  start_launcher();
  EXPECT_EQ(daemon().start(interactive(1), shell("true")).status, EINVAL);
  const FileDescriptor file = make_sealed("x");
  EXPECT_EQ(daemon().start(interactive(1), shell("true"), {file.get()}).status, EINVAL);
  const auto batch = start_request(2, kAlice);
  (void)begin(batch, shell("sleep 1000"));
  Client client;
  EXPECT_EQ(attach(batch.key, client).status, EINVAL);
}

}  // namespace
}  // namespace tranche::launcher
