// Launcher, shepherd and daemon die at bad moments; tasks go on, run at most once, and their ends are told
// rightly.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/failpoint.h"
#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

using wire::ExitCause;
using wire::LauncherKind;
using wire::StartStage;
using wire::TaskState;

class CrashTest : public LauncherTest {
 protected:
  wire::TaskRecord record_of(const wire::TaskKey& key) {
    for (const wire::TaskRecord& record : daemon().list()) {
      if (record.key.job == key.job && record.key.rank == key.rank && record.key.attempt == key.attempt)
        return record;
    }
    return {};
  }
  // A task that runs until the file `go` appears in folder(), then ends with code 7.
  BlockSpec until_told() {
    BlockSpec block = shell("echo up; while [ ! -e go ]; do sleep 0.01; done; echo on; exit 7");
    block.directory = folder();
    block.output = "out";
    return block;
  }
  void tell() { std::ofstream(folder() + "/go") << "go"; }
  // The answer once the shepherd has found the new launcher.
  wire::Reply ask_patiently(LauncherKind kind, const wire::TaskKey& key) {
    wire::Reply reply{};
    EXPECT_TRUE(eventually([&] { return (reply = daemon().ask(kind, key)).status != EAGAIN; }));
    return reply;
  }
};

TEST_F(CrashTest, TaskOutlivesTheLauncherAndItsEndIsRight) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  const auto started = begin(request, until_told());
  (void)wait_content(folder() + "/out");
  crash_launcher();
  EXPECT_TRUE(process_exists(started.task_pid));
  start_launcher();
  auto record = record_of(request.key);
  EXPECT_EQ(record.state, static_cast<uint32_t>(TaskState::running));
  EXPECT_EQ(record.task_pid, started.task_pid);
  EXPECT_EQ(record.task_start_ticks, started.task_start_ticks);
  EXPECT_EQ(ask_patiently(LauncherKind::freeze, request.key).status, 0);
  EXPECT_EQ(daemon().ask(LauncherKind::thaw, request.key).status, 0);
  tell();
  const auto end = end_of(request.key);
  EXPECT_EQ(end.cause, static_cast<uint32_t>(ExitCause::exited));
  EXPECT_EQ(end.exit_code, 7);
  EXPECT_EQ(content(folder() + "/out"), "up\non\n");
}

TEST_F(CrashTest, TaskThatEndsWhileNoLauncherLivesIsInTheRecord) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  const auto started = begin(request, until_told());
  (void)wait_content(folder() + "/out");
  const int shepherd = record_of(request.key).shepherd_pid;
  crash_launcher();
  tell();
  ASSERT_TRUE(eventually([&] { return !process_exists(started.task_pid) && !process_exists(shepherd); }));
  start_launcher();
  const auto record = record_of(request.key);
  EXPECT_EQ(record.state, static_cast<uint32_t>(TaskState::exited));
  EXPECT_EQ(record.tasks_gone, 1U);
  EXPECT_EQ(record.end.exit_code, 7);
}

TEST_F(CrashTest, PreparedTaskHoldsUntilANewDaemonDecides) {
  start_launcher();
  const auto go = start_request(1, kAlice);
  const auto stay = start_request(2, kAlice);
  for (const auto* request : {&go, &stay}) {
    EXPECT_EQ(
        daemon()
            .start(*request, shell("echo ran >>" + folder() + "/ran." + std::to_string(request->key.job)))
            .status,
        0);
    (void)daemon().wait_for(LauncherKind::prepared, request->key);
  }
  drop_daemon();
  connect_daemon();
  EXPECT_EQ(record_of(go.key).state, static_cast<uint32_t>(TaskState::prepared));
  crash_launcher();
  start_launcher();
  EXPECT_EQ(record_of(go.key).state, static_cast<uint32_t>(TaskState::prepared));
  EXPECT_EQ(ask_patiently(LauncherKind::go, go.key).status, 0);
  EXPECT_EQ(end_of(go.key).exit_code, 0);
  EXPECT_EQ(content(folder() + "/ran.1"), "ran\n");
  EXPECT_EQ(daemon().kill(stay.key, 0).status, 0);
  (void)daemon().wait_for(LauncherKind::start_failed, stay.key);
  EXPECT_NE(::access((folder() + "/ran.2").c_str(), F_OK), 0);
}

TEST_F(CrashTest, GoIsNotObeyedTwiceAcrossRestarts) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  (void)begin(request, until_told());
  (void)wait_content(folder() + "/out");
  crash_launcher();
  start_launcher();
  EXPECT_EQ(ask_patiently(LauncherKind::go, request.key).status, EALREADY);
  EXPECT_EQ(daemon().start(request, until_told()).status, EEXIST);
  tell();
  EXPECT_EQ(end_of(request.key).exit_code, 7);
  EXPECT_EQ(content(folder() + "/out"), "up\non\n");
}

TEST_F(CrashTest, LostShepherdBeforeGoNeverExecutes) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  EXPECT_EQ(daemon().start(request, shell("echo ran >" + folder() + "/ran")).status, 0);
  (void)daemon().wait_for(LauncherKind::prepared, request.key);
  ASSERT_EQ(::kill(record_of(request.key).shepherd_pid, SIGKILL), 0);
  const auto event = daemon().wait_for(LauncherKind::start_failed, request.key).as<wire::StartFailedEvent>();
  EXPECT_EQ(event.stage, static_cast<uint32_t>(StartStage::supervisor));
  (void)daemon().wait_for(LauncherKind::tasks_gone, request.key);
  EXPECT_NE(::access((folder() + "/ran").c_str(), F_OK), 0);
}

TEST_F(CrashTest, LauncherTakesOverFromALostShepherd) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  (void)begin(request, until_told());
  (void)wait_content(folder() + "/out");
  ASSERT_EQ(::kill(record_of(request.key).shepherd_pid, SIGKILL), 0);
  // Freeze is answered by the launcher itself once it has noticed.
  ASSERT_TRUE(eventually([&] { return daemon().ask(LauncherKind::freeze, request.key).status == 0; }));
  EXPECT_EQ(daemon().ask(LauncherKind::thaw, request.key).status, 0);
  tell();
  const auto end = end_of(request.key);
  EXPECT_EQ(end.cause, static_cast<uint32_t>(ExitCause::exited));
  EXPECT_EQ(end.exit_code, 7);
}

TEST_F(CrashTest, LostShepherdsTimeLimitStillHolds) {
  start_launcher();
  auto request = start_request(1, kAlice);
  request.time_limit_ns = 400'000'000;
  request.grace_ns = 100'000'000;
  (void)begin(request, shell("trap '' TERM; while :; do sleep 0.01; done"));
  ASSERT_EQ(::kill(record_of(request.key).shepherd_pid, SIGKILL), 0);
  EXPECT_EQ(end_of(request.key).cause, static_cast<uint32_t>(ExitCause::time_limit));
}

TEST_F(CrashTest, EndIsUnknownWhenLauncherAndShepherdAreLost) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  const auto started = begin(request, until_told());
  (void)wait_content(folder() + "/out");
  const int shepherd = record_of(request.key).shepherd_pid;
  crash_launcher();
  ASSERT_EQ(::kill(shepherd, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return !process_exists(shepherd); }));
  EXPECT_TRUE(process_exists(started.task_pid));
  start_launcher();
  EXPECT_EQ(record_of(request.key).state, static_cast<uint32_t>(TaskState::running));
  tell();
  const auto end = end_of(request.key);
  EXPECT_EQ(end.cause, static_cast<uint32_t>(ExitCause::unknown));
  EXPECT_EQ(end.exit_code, -1);
  EXPECT_EQ(content(folder() + "/out"), "up\non\n");
}

TEST_F(CrashTest, ANewerDaemonReplacesTheOlder) {
  start_launcher();
  DaemonClient newer(run_folder());
  ASSERT_TRUE(newer.is_connected());
  EXPECT_TRUE(newer.list().empty());
  EXPECT_TRUE(daemon().is_closed());
  connect_daemon();
}

TEST_F(CrashTest, OnlyTheDaemonsUserMayConnect) {
  start_launcher();
  const auto connects_as = [&](unsigned uid) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0) ::_exit(2);
      DaemonClient client(run_folder());
      if (!client.is_connected()) ::_exit(1);
      ::_exit(client.list().empty() ? 0 : 3);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(connects_as(990), 0);
  EXPECT_EQ(connects_as(kAlice), 1);
  connect_daemon();
}

// The failpoints of base/failpoint.h, without a daemon: whatever a shepherd has done when it dies, its task
// ran once or not at all, and what is told of its end is true or `unknown`.
TEST_F(CrashTest, AShepherdThatDiesAnywhereLeavesNoWrongEnd) {
  const std::string path = folder() + "/failpoints";
  const isolation::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(FailpointTable)), 0);
  void* memory = ::mmap(nullptr, sizeof(FailpointTable), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  FailpointSlot& slot =
      static_cast<FailpointTable*>(memory)->roles[static_cast<size_t>(FailpointRole::shepherd)];
  ::setenv("TRANCHE_FAILPOINTS", path.c_str(), 1);
  start_launcher();
  ::unsetenv("TRANCHE_FAILPOINTS");
  uint64_t place = 0;
  int unknown = 0;
  do {
    ++place;
    slot.passed = 0;
    slot.abort_at = place;
    const auto request = start_request(place, kAlice);
    const std::string ran = folder() + "/ran." + std::to_string(place);
    ASSERT_EQ(daemon().start(request, shell("echo ran >>" + ran + "; exit 9")).status, 0);
    ASSERT_TRUE(eventually(
        [&] { return record_of(request.key).state >= 2 || record_of(request.key).tasks_gone == 1; }));
    if (record_of(request.key).state == static_cast<uint32_t>(TaskState::prepared))
      (void)daemon().ask(LauncherKind::go, request.key);
    ASSERT_TRUE(eventually([&] { return record_of(request.key).tasks_gone == 1; })) << "place " << place;
    const wire::TaskRecord record = record_of(request.key);
    const std::string where = "place " + std::to_string(place) + " (" + slot.name + ")";
    if (record.state == static_cast<uint32_t>(TaskState::start_failed)) {
      EXPECT_NE(::access(ran.c_str(), F_OK), 0) << where << ": it ran, and is said not to have";
    } else if (record.end.cause == static_cast<uint32_t>(ExitCause::unknown)) {
      ++unknown;
      EXPECT_EQ(record.end.exit_code, -1) << where;
    } else {
      EXPECT_EQ(record.end.cause, static_cast<uint32_t>(ExitCause::exited)) << where;
      EXPECT_EQ(record.end.exit_code, 9) << where;
      EXPECT_EQ(content(ran), "ran\n") << where;
    }
    ASSERT_TRUE(eventually([&] { return daemon().ask(LauncherKind::forget, request.key).status == 0; }))
        << where;
  } while (slot.passed >= place);
  std::printf("%llu places, %d ends unknown\n", static_cast<unsigned long long>(place - 1), unknown);
  EXPECT_GT(place, 15U) << "the failpoints are not armed";
  ::munmap(memory, sizeof(FailpointTable));
}

TEST_F(CrashTest, RandomCrashesNeitherLoseNorRepeatATask) {
  start_launcher();
  constexpr uint64_t kTasks = 12;
  for (uint64_t job = 1; job <= kTasks; ++job) {
    BlockSpec block =
        shell("echo ran; sleep 0.0" + std::to_string(job % 10) + "; exit " + std::to_string(job));
    block.output = folder() + "/out." + std::to_string(job);
    const auto request = start_request(job, job % 2 == 0 ? kAlice : kBob);
    EXPECT_EQ(daemon().start(request, block).status, 0);
    (void)daemon().wait_for(LauncherKind::prepared, request.key);
    if (job % 3 == 0) {
      crash_launcher();
      start_launcher();
    }
    EXPECT_EQ(ask_patiently(LauncherKind::go, request.key).status, 0);
    if (job % 4 == 0) {
      crash_launcher();
      start_launcher();
    }
  }
  for (uint64_t job = 1; job <= kTasks; ++job) {
    const wire::TaskKey key{job, 0, 1};
    ASSERT_TRUE(eventually([&] { return record_of(key).tasks_gone == 1; })) << "job " << job;
    EXPECT_EQ(record_of(key).end.exit_code, static_cast<int>(job));
    EXPECT_EQ(content(folder() + "/out." + std::to_string(job)), "ran\n");
  }
}

}  // namespace
}  // namespace tranche::launcher
