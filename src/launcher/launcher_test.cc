// The life of a task as the daemon sees it, with real processes of real users.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

using isolation::FileDescriptor;
using wire::ExitCause;
using wire::LauncherKind;
using wire::StartStage;
using wire::TaskState;

constexpr uint64_t kSecondNs = 1'000'000'000;

uint32_t as_number(ExitCause cause) { return static_cast<uint32_t>(cause); }
uint32_t as_number(StartStage stage) { return static_cast<uint32_t>(stage); }
uint32_t as_number(TaskState state) { return static_cast<uint32_t>(state); }

TEST_F(LauncherTest, ReportsExitCodes) {
  start_launcher();
  for (const int code : {0, 1, 42, 255}) {
    const auto end =
        run(start_request(static_cast<uint64_t>(code) + 1, kAlice), shell("exit " + std::to_string(code)));
    EXPECT_EQ(end.cause, as_number(ExitCause::exited));
    EXPECT_EQ(end.exit_code, code);
    EXPECT_EQ(end.signal, 0);
  }
}

TEST_F(LauncherTest, ReportsTheSignalThatEndedATask) {
  start_launcher();
  const auto end = run(start_request(1, kAlice), shell("kill -SEGV $$"));
  EXPECT_EQ(end.cause, as_number(ExitCause::signalled));
  EXPECT_EQ(end.signal, SIGSEGV);
  EXPECT_EQ(end.exit_code, -1);
}

TEST_F(LauncherTest, DeliversSignals) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  BlockSpec block = shell("trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.01; done");
  block.output = folder() + "/out";
  (void)begin(request, block);
  (void)wait_content(block.output);
  wire::SignalRequest signal{};
  signal.header = {sizeof signal, 1, static_cast<uint16_t>(LauncherKind::signal), daemon().next_id()};
  signal.key = request.key;
  signal.signal = SIGUSR1;
  daemon().send(signal);
  EXPECT_EQ(daemon().wait_reply(signal.header.id).status, 0);
  EXPECT_EQ(end_of(request.key).exit_code, 3);
  EXPECT_EQ(content(block.output), "ready\ncaught\n");
}

TEST_F(LauncherTest, RunsAsTheUserWithExactEnvironmentDirectoryAndUmask) {
  start_launcher();
  BlockSpec block;
  block.arguments = {
      "/bin/sh", "-c",
      "id -u; id -g; id -G; pwd; umask; env -0 | tr '\\0' '|'; tr '\\0' '|' </proc/$$/environ"};
  block.variables = {"PATH=/usr/bin:/bin", "A=b c\nd", "PWD=/run/lab/home/alice"};
  block.directory = home("alice");
  block.output = "out";
  block.umask = 0027;
  EXPECT_EQ(run(start_request(1, kAlice), block).exit_code, 0);
  const std::string text = content(home("alice") + "/out");
  EXPECT_TRUE(text.starts_with("2001\n2001\n2001 2100\n/run/lab/home/alice\n0027\n")) << text;
  EXPECT_TRUE(text.ends_with("PATH=/usr/bin:/bin|A=b c\nd|PWD=/run/lab/home/alice|")) << text;
  struct stat status {};
  ASSERT_EQ(::stat((home("alice") + "/out").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kAlice);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST_F(LauncherTest, GivesTaskNoFileAndNoRightBeyondItsOwn) {
  start_launcher();
  BlockSpec block = shell(
      "ls -1 /proc/self/fd | sort -n | tr '\\n' ' '; echo; grep -E '^(CapPrm|CapEff|CapAmb|SigBlk|SigIgn)' "
      "/proc/self/status");
  block.output = folder() + "/out";
  EXPECT_EQ(run(start_request(1, kAlice), block).exit_code, 0);
  const std::string text = content(block.output);
  EXPECT_TRUE(text.starts_with("0 1 2 3 \n")) << text;  // 3 is the folder that ls reads
  for (const char* none :
       {"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000",
        "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"}) {
    EXPECT_NE(text.find(none), std::string::npos) << none << " in\n" << text;
  }
}

TEST_F(LauncherTest, EndsATaskAtItsTimeLimitFirstGently) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.time_limit_ns = kSecondNs / 5;
  BlockSpec block = shell("trap 'echo term; exit 9' TERM; while :; do sleep 0.01; done");
  block.output = folder() + "/out";
  block.error = "/dev/null";  // the shell tells there that its sleep was ended too
  const auto end = run(request, block);
  EXPECT_EQ(end.cause, as_number(ExitCause::time_limit));
  EXPECT_EQ(end.exit_code, 9);
  EXPECT_EQ(content(block.output), "term\n");
  EXPECT_GE(end.ended_boottime_ns - end.started_boottime_ns, request.time_limit_ns);
}

TEST_F(LauncherTest, KillsATaskThatIgnoresItsTimeLimit) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.time_limit_ns = kSecondNs / 5;
  request.grace_ns = kSecondNs / 5;
  const auto end = run(request, shell("trap '' TERM; while :; do sleep 1; done"));
  EXPECT_EQ(end.cause, as_number(ExitCause::time_limit));
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_GE(end.ended_boottime_ns - end.started_boottime_ns, request.time_limit_ns + request.grace_ns);
}

TEST_F(LauncherTest, TimeLimitStandsStillWhileFrozen) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.time_limit_ns = kSecondNs / 2;
  (void)begin(request, shell("while :; do sleep 0.01; done"));
  EXPECT_EQ(daemon().ask(LauncherKind::freeze, request.key).status, 0);
  // Longer than the limit, by the clock that the limit is on.
  BlockSpec other = shell("sleep 0.6");
  EXPECT_EQ(run(start_request(2, kAlice), other).exit_code, 0);
  const auto records = daemon().list();
  for (const auto& record : records) {
    if (record.key.job == 1) {
      EXPECT_EQ(record.state, as_number(TaskState::running));
      EXPECT_EQ(record.frozen, 1U);
    }
  }
  EXPECT_EQ(daemon().ask(LauncherKind::thaw, request.key).status, 0);
  EXPECT_EQ(end_of(request.key).cause, as_number(ExitCause::time_limit));
}

TEST_F(LauncherTest, KillEndsAFrozenTask) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  (void)begin(request, shell("while :; do sleep 0.01; done"));
  EXPECT_EQ(daemon().ask(LauncherKind::freeze, request.key).status, 0);
  EXPECT_EQ(daemon().kill(request.key, 0).status, 0);
  EXPECT_EQ(end_of(request.key).cause, as_number(ExitCause::killed));
}

TEST_F(LauncherTest, EndsWhatTheMainProcessLeavesBehind) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.grace_ns = kSecondNs / 10;
  // Two daemons with sessions of their own: one that obeys TERM, one that ignores it.
  BlockSpec block = shell(
      "setsid sh -c 'echo $$ >a; exec sleep 1000' & setsid sh -c 'trap \"\" TERM; echo $$ >b; while :; do "
      "sleep 1; done' &"
      "while [ ! -s a ] || [ ! -s b ]; do sleep 0.01; done; exit 5");
  block.directory = folder();
  EXPECT_EQ(run(request, block).exit_code, 5);
  for (const char* name : {"/a", "/b"}) {
    const int pid = std::stoi(content(folder() + name));
    EXPECT_FALSE(process_exists(pid)) << name;
  }
}

TEST_F(LauncherTest, KillBeforeGoNeverExecutes) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  EXPECT_EQ(daemon().start(request, shell("echo ran >" + folder() + "/ran")).status, 0);
  (void)daemon().wait_for(LauncherKind::prepared, request.key);
  EXPECT_EQ(daemon().kill(request.key, kSecondNs).status, 0);
  const auto event = daemon().wait_for(LauncherKind::start_failed, request.key).as<wire::StartFailedEvent>();
  EXPECT_EQ(event.stage, as_number(StartStage::cancelled));
  EXPECT_EQ(daemon().ask(LauncherKind::go, request.key).status, ESRCH);
  (void)daemon().wait_for(LauncherKind::tasks_gone, request.key);
  EXPECT_NE(::access((folder() + "/ran").c_str(), F_OK), 0);
}

TEST_F(LauncherTest, AnAttemptRunsAtMostOnce) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  BlockSpec block = shell("echo ran");
  block.output = folder() + "/out";
  EXPECT_EQ(run(request, block).exit_code, 0);
  EXPECT_EQ(daemon().ask(LauncherKind::go, request.key).status, ESRCH);
  EXPECT_EQ(daemon().start(request, block).status, EEXIST);
  EXPECT_EQ(content(block.output), "ran\n");
  EXPECT_EQ(daemon().ask(LauncherKind::forget, request.key).status, 0);
  EXPECT_EQ(daemon().ask(LauncherKind::forget, request.key).status, 0);
}

TEST_F(LauncherTest, ForgetWaitsForTheEnd) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  (void)begin(request, shell("sleep 1000"));
  EXPECT_EQ(daemon().ask(LauncherKind::forget, request.key).status, EBUSY);
}

TEST_F(LauncherTest, RefusesWhomItMustNotServe) {
  start_launcher();
  auto request = start_request(1, 0);
  EXPECT_EQ(daemon().start(request, shell("true")).status, EPERM);
  request = start_request(1, 990);  // tranche, a system user
  EXPECT_EQ(daemon().start(request, shell("true")).status, EPERM);
  request = start_request(1, 54321);
  const auto unknown = daemon().start(request, shell("true"));
  EXPECT_EQ(unknown.status, EPERM);
  EXPECT_NE(std::string(unknown.text).find("not known"), std::string::npos) << unknown.text;
  request = start_request(1, 65534);
  EXPECT_EQ(daemon().start(request, shell("true")).status, EPERM);
  request = start_request(1, kAlice);
  request.gid = 0;
  EXPECT_EQ(daemon().start(request, shell("true")).status, EPERM);
  request.gid = kBob;
  EXPECT_EQ(daemon().start(request, shell("true")).status, EPERM);
  request.gid = 2100;  // a team she is in
  EXPECT_EQ(run(request, shell("[ $(id -g) = 2100 ]")).exit_code, 0);
}

TEST_F(LauncherTest, SeesAChangedGroupAtOnce) {
  start_launcher();
  auto request = start_request(1, kCarol);
  request.gid = 2100;
  EXPECT_EQ(daemon().start(request, shell("true")).status, EPERM);
  std::ofstream("/etc/group", std::ios::app) << "new-team:x:2200:carol\n";
  request.gid = 2200;
  EXPECT_EQ(run(request, shell("true")).exit_code, 0);
}

TEST_F(LauncherTest, SaysWhyATaskCannotStart) {
  start_launcher();
  BlockSpec block = shell("true");
  block.directory = "/nowhere/at/all";
  auto event = fail(start_request(1, kAlice), block);
  EXPECT_EQ(event.stage, as_number(StartStage::directory));
  EXPECT_EQ(event.error, ENOENT);
  EXPECT_STREQ(event.text, "working directory /nowhere/at/all: No such file or directory");

  block = shell("true");
  block.directory = home("bob");
  event = fail(start_request(2, kAlice), block);
  EXPECT_EQ(event.stage, as_number(StartStage::directory));
  EXPECT_EQ(event.error, EACCES);

  block = shell("true");
  block.output = folder() + "/missing/out";
  event = fail(start_request(3, kAlice), block);
  EXPECT_EQ(event.stage, as_number(StartStage::files));
  EXPECT_NE(std::string(event.text).find("folder " + folder() + "/missing does not exist"), std::string::npos)
      << event.text;

  block.output = "/etc/out";
  event = fail(start_request(4, kAlice), block);
  EXPECT_EQ(event.stage, as_number(StartStage::files));
  EXPECT_EQ(event.error, EACCES);
}

TEST_F(LauncherTest, SaysWhyACommandCannotExecute) {
  start_launcher();
  const auto expect = [&](uint64_t job, const std::string& command, int error) {
    BlockSpec block;
    block.arguments = {command};
    const auto request = start_request(job, kAlice);
    EXPECT_EQ(daemon().start(request, block).status, 0);
    (void)daemon().wait_for(LauncherKind::prepared, request.key);
    EXPECT_EQ(daemon().ask(LauncherKind::go, request.key).status, 0);
    const auto event =
        daemon().wait_for(LauncherKind::start_failed, request.key).as<wire::StartFailedEvent>();
    EXPECT_EQ(event.stage, as_number(StartStage::execute));
    EXPECT_EQ(event.error, error) << event.text;
    (void)daemon().wait_for(LauncherKind::tasks_gone, request.key);
  };
  expect(1, "no-such-command", ENOENT);
  expect(2, "/no/such/command", ENOENT);
  expect(3, "/etc/passwd", EACCES);
}

TEST_F(LauncherTest, LogsAreRegularFilesOfTheUser) {
  start_launcher();
  const auto refused = [&](uint64_t job, const std::string& path, int error) {
    BlockSpec block = shell("echo hello");
    block.output = path;
    const auto event = fail(start_request(job, kAlice), block);
    EXPECT_EQ(event.stage, as_number(StartStage::files)) << path;
    EXPECT_EQ(event.error, error) << path << ": " << event.text;
  };
  const std::string target = home("bob") + "/precious";
  std::ofstream(target) << "precious";
  ASSERT_EQ(::symlink(target.c_str(), (folder() + "/link").c_str()), 0);
  refused(1, folder() + "/link", ELOOP);
  ASSERT_EQ(::mkfifo((folder() + "/fifo").c_str(), 0666), 0);
  ASSERT_EQ(::chmod((folder() + "/fifo").c_str(), 0666), 0);
  refused(2, folder() + "/fifo", ENXIO);
  std::ofstream(folder() + "/foreign") << "root's";
  ASSERT_EQ(::chmod((folder() + "/foreign").c_str(), 0666), 0);
  ASSERT_EQ(::chown((folder() + "/foreign").c_str(), kBob, kBob), 0);
  ASSERT_EQ(::chmod(folder().c_str(), 0777), 0);
  refused(3, folder() + "/foreign", EPERM);
  refused(4, "/dev/zero", EINVAL);
  refused(5, folder(), EISDIR);
  EXPECT_EQ(content(target), "precious");
  BlockSpec block = shell("echo hello; echo trouble >&2");
  block.output = "/dev/null";
  block.error = folder() + "/trouble";
  EXPECT_EQ(run(start_request(6, kAlice), block).exit_code, 0);
  EXPECT_EQ(content(folder() + "/trouble"), "trouble\n");
}

TEST_F(LauncherTest, UsersCannotTouchOneAnothersTasks) {
  start_launcher();
  BlockSpec block = shell("echo secret; exec sleep 1000");
  block.directory = home("alice");
  block.output = folder() + "/alice.log";
  const auto request = start_request(1, kAlice);
  const auto started = begin(request, block);
  (void)wait_content(block.output);
  const std::string pid = std::to_string(started.task_pid);
  BlockSpec attack =
      shell("kill -9 " + pid + " && echo killed; cat " + folder() + "/alice.log; cat /proc/" + pid +
            "/environ; ls /proc/" + pid + "/fd /run/lab/home/alice; cat " + run_folder() +
            "/tasks/1.0.1; ls " + run_folder() + "/jobs; ls " + run_folder() + "/tasks; echo over");
  attack.output = folder() + "/bob.log";
  attack.error = "/dev/null";
  EXPECT_EQ(run(start_request(2, kBob), attack).exit_code, 0);
  EXPECT_EQ(content(folder() + "/bob.log"), "over\n");
  EXPECT_TRUE(process_exists(started.task_pid));
}

TEST_F(LauncherTest, MemoryLimitEndsInOom) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.memory_mib = 32;
  const auto end = run(request, shell("exec dd if=/dev/zero of=/dev/null bs=200M count=1"));
  EXPECT_EQ(end.cause, as_number(ExitCause::oom));
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_GE(end.oom_kills, 1U);
  EXPECT_GE(end.memory_peak_bytes, 30U << 20);
}

TEST_F(LauncherTest, ProcessLimitHolds) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.pids_limit = 8;
  BlockSpec block = shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; echo forked all");
  block.output = folder() + "/out";
  block.error = folder() + "/err";
  request.grace_ns = kSecondNs / 10;
  EXPECT_NE(run(request, block).exit_code, 0);
  EXPECT_EQ(content(block.output), "");
  EXPECT_NE(content(block.error).find("fork"), std::string::npos);
}

TEST_F(LauncherTest, LimitsCanBeChangedWhileRunning) {
  start_launcher();
  auto request = start_request(1, kAlice);
  BlockSpec block = shell(
      "echo up; while [ ! -e go ]; do sleep 0.01; done; exec dd if=/dev/zero of=/dev/null bs=200M count=1");
  block.directory = folder();
  block.output = "out";
  (void)begin(request, block);
  (void)wait_content(folder() + "/out");
  wire::SetLimitsRequest limits{};
  limits.header = {sizeof limits, 1, static_cast<uint16_t>(LauncherKind::set_limits), daemon().next_id()};
  limits.key = request.key;
  limits.which = wire::kSetMemory;
  limits.memory_mib = 16;
  daemon().send(limits);
  const auto reply = daemon().wait_reply(limits.header.id);
  EXPECT_EQ(reply.status, 0) << reply.text;
  std::ofstream(folder() + "/go") << "go";
  EXPECT_EQ(end_of(request.key).cause, as_number(ExitCause::oom));
}

TEST_F(LauncherTest, SharedMemoryIsTheJobsOwn) {
  start_launcher();
  auto first = start_request(1, kAlice, 0);
  auto second = start_request(1, kAlice, 1);
  auto other = start_request(2, kAlice, 0);
  for (auto* request : {&first, &second, &other}) request->flags |= wire::kStartJobShares;
  BlockSpec writer =
      shell("echo hello >/dev/shm/x; ipcmk -Q >/dev/null; ipcs -q | grep -c alice; echo up; exec sleep 1000");
  writer.output = folder() + "/writer";
  (void)begin(first, writer);
  ASSERT_TRUE(eventually([&] { return content(folder() + "/writer").ends_with("up\n"); }));
  BlockSpec reader = shell("cat /dev/shm/x; ipcs -q | grep -c alice");
  reader.output = folder() + "/reader";
  EXPECT_EQ(run(second, reader).exit_code, 0);
  EXPECT_EQ(content(folder() + "/reader"), "hello\n1\n");
  BlockSpec stranger =
      shell("ls /dev/shm; ipcs -q | grep -c alice; ls " + run_folder() + "/jobs 2>&1 | grep -c 1");
  stranger.output = folder() + "/stranger";
  (void)run(other, stranger);
  EXPECT_EQ(content(folder() + "/stranger").substr(0, 2), "0\n");
  auto alone = start_request(3, kAlice);  // without sharing: a tmpfs of its own
  BlockSpec lonely =
      shell("ls /dev/shm; ipcs -q | grep -c alice; echo x >/dev/shm/y; stat -f -c %T /dev/shm");
  lonely.output = folder() + "/alone";
  (void)run(alone, lonely);
  EXPECT_EQ(content(folder() + "/alone"), "0\ntmpfs\n");
  EXPECT_NE(::access("/dev/shm/x", F_OK), 0);
  EXPECT_NE(::access("/dev/shm/y", F_OK), 0);
}

TEST_F(LauncherTest, OpensFilesAsTheUserOnly) {
  start_launcher();
  std::ofstream(home("alice") + "/log") << "mine";
  ASSERT_EQ(::chown((home("alice") + "/log").c_str(), kAlice, kAlice), 0);
  ASSERT_EQ(::chmod((home("alice") + "/log").c_str(), 0600), 0);
  const auto open = [&](uint32_t uid, const std::string& path, FileDescriptor& file) {
    wire::OpenAsUserRequest request{};
    request.header = {sizeof request, 1, static_cast<uint16_t>(LauncherKind::open_as_user),
                      daemon().next_id()};
    request.uid = uid;
    path.copy(request.path, sizeof request.path - 1);
    EXPECT_TRUE(daemon().send_raw(&request, sizeof request));
    return daemon().wait_reply(request.header.id, &file).status;
  };
  FileDescriptor file;
  EXPECT_EQ(open(kAlice, home("alice") + "/log", file), 0);
  char text[16] = {};
  EXPECT_EQ(::read(file.get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "mine");
  FileDescriptor none;
  EXPECT_EQ(open(kBob, home("alice") + "/log", none), EACCES);
  EXPECT_FALSE(none);
  EXPECT_EQ(open(0, "/etc/shadow", none), EPERM);
  EXPECT_EQ(open(kAlice, "/etc/shadow", none), EACCES);
  EXPECT_EQ(open(kAlice, "relative", none), EINVAL);
}

}  // namespace
}  // namespace tranche::launcher
