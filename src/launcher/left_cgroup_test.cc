// Cgroups that an earlier life left behind: empty ones are in nobody's way, populated ones are named and
// kept.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "isolation/cgroup_tree.h"
#include "isolation/task_cgroup.h"
#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

using wire::LauncherKind;
using wire::StartStage;

class LeftCgroupTest : public LauncherTest {
 protected:
  void TearDown() override {
    if (stranger_ > 0) {
      ::kill(stranger_, SIGKILL);
      ::waitpid(stranger_, nullptr, 0);
      // Its cgroups are this test's own, not the launcher's.
      for (const std::string& folder : folders(kLeft)) ::rmdir(folder.c_str());
    }
    LauncherTest::TearDown();
  }

  // Where the task's cgroup lies in every hierarchy, the unified one first.
  std::vector<std::string> folders(const wire::TaskKey& key) const {
    const auto mounts = isolation::parse_cgroup_mounts(content("/proc/self/mountinfo"));
    std::vector<std::string> all = {mounts.unified + "/" + cgroup_root() + "/" +
                                    isolation::task_cgroup_name(kAlice, key)};
    for (const std::string* mount : {&mounts.v1_memory, &mounts.v1_cpu, &mounts.v1_pids}) {
      if (!mount->empty())
        all.push_back(*mount + "/" + cgroup_root() + "/" + isolation::task_cgroup_v1_name(kAlice, key));
    }
    return all;
  }
  static void make(const std::string& folder) {
    for (size_t at = folder.find("/u2001"); at != std::string::npos; at = folder.find('/', at + 1)) {
      if (at != folder.find("/u2001")) ::mkdir(folder.substr(0, at).c_str(), 0755);
    }
    ASSERT_TRUE(::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) << folder;
  }
  void leave_all() {
    for (const std::string& folder : folders(kLeft)) make(folder);
  }
  // A process that no launcher knows, in `folder`.
  int put_stranger_into(const std::string& folder) {
    stranger_ = ::fork();
    if (stranger_ == 0) {
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
      ::_exit(127);
    }
    std::ofstream(folder + "/cgroup.procs") << stranger_;
    EXPECT_TRUE(
        eventually([&] { return content("/proc/" + std::to_string(stranger_) + "/comm") == "sleep\n"; }));
    return stranger_;
  }
  static bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }
  bool any_exists(const wire::TaskKey& key) const {
    for (const std::string& folder : folders(key)) {
      if (exists(folder)) return true;
    }
    return false;
  }

  static constexpr wire::TaskKey kLeft{1, 0, 1};
  int stranger_ = 0;
};

TEST_F(LeftCgroupTest, AnEmptyOneIsReplacedWithItsLimits) {
  start_launcher();
  leave_all();
  for (const std::string& folder : folders(kLeft)) {
    // Of an earlier task, which could not have started a child.
    if (exists(folder + "/pids.max")) std::ofstream(folder + "/pids.max") << 1;
  }
  auto request = start_request(1, kAlice);
  request.pids_limit = 0;
  EXPECT_EQ(run(request, shell("(exit 4) & wait $!")).exit_code, 4);
}

TEST_F(LeftCgroupTest, EmptyOnesGoWhenTheLauncherStarts) {
  start_launcher();
  crash_launcher();
  leave_all();
  const wire::TaskKey half{2, 3, 4};
  make(folders(half).back());  // in one hierarchy only
  start_launcher();
  EXPECT_FALSE(any_exists(kLeft));
  EXPECT_FALSE(any_exists(half));
  const std::string user = folders(kLeft)[0].substr(0, folders(kLeft)[0].find("/j1"));
  EXPECT_FALSE(exists(user)) << user;
}

TEST_F(LeftCgroupTest, WhatRunsWithARecordStaysWhenTheLauncherStarts) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  (void)begin(request, shell("while [ ! -e " + folder() + "/go ]; do sleep 0.01; done; exit 5"));
  crash_launcher();
  start_launcher();
  for (const std::string& folder : folders(request.key)) EXPECT_TRUE(exists(folder)) << folder;
  std::ofstream(folder() + "/go") << "go";
  EXPECT_EQ(end_of(request.key).exit_code, 5);
}

TEST_F(LeftCgroupTest, APopulatedOneIsKeptAndItsProcessesAreNamed) {
  start_launcher();
  leave_all();
  const int stranger = put_stranger_into(folders(kLeft)[0]);
  const auto failed = fail(start_request(1, kAlice), shell("true"));
  EXPECT_EQ(failed.stage, static_cast<uint32_t>(StartStage::cgroup));
  EXPECT_EQ(failed.error, EEXIST);
  EXPECT_NE(std::string(failed.text).find("process " + std::to_string(stranger) + " (sleep)"),
            std::string::npos)
      << failed.text;
  crash_launcher();
  start_launcher();
  EXPECT_TRUE(process_exists(stranger));
  EXPECT_TRUE(exists(folders(kLeft)[0]));
}

TEST_F(LeftCgroupTest, AFailedCreationLeavesNothingOfItsOwn) {
  start_launcher();
  const auto all = folders(kLeft);
  if (all.size() < 2) GTEST_SKIP() << "no hierarchy of version 1 here";
  make(all.back());  // the last that is made
  put_stranger_into(all.back());
  const auto failed = fail(start_request(1, kAlice), shell("true"));
  EXPECT_EQ(failed.stage, static_cast<uint32_t>(StartStage::cgroup));
  for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_FALSE(exists(all[i])) << all[i];
  EXPECT_TRUE(exists(all.back()));
}

TEST_F(LeftCgroupTest, ForgetRemovesWhatExists) {
  start_launcher();
  const auto request = start_request(1, kAlice);
  (void)begin(request, shell("sleep 1000"));
  for (const wire::TaskRecord& record : daemon().list()) ASSERT_EQ(::kill(record.shepherd_pid, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return daemon().kill(request.key, 0).status == 0; }));
  (void)daemon().wait_for(LauncherKind::tasks_gone, request.key);
  // One hierarchy lost its folder; the others must not stay for that.
  const auto all = folders(request.key);
  ASSERT_TRUE(eventually([&] { return ::rmdir(all.back().c_str()) == 0 || errno == ENOENT; }));
  ASSERT_TRUE(eventually([&] { return daemon().ask(LauncherKind::forget, request.key).status == 0; }));
  EXPECT_FALSE(any_exists(request.key));
}

}  // namespace
}  // namespace tranche::launcher
