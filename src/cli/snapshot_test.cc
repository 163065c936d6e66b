#include "cli/snapshot.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/daemon.h"
#include "cli/fake_daemon.h"
#include "cli/ignore_rules.h"
#include "cli/session.h"

namespace tranche::cli {
namespace {

namespace fs = std::filesystem;

TEST(IgnoreRules, GlobsStopAtSlashes) {
  EXPECT_TRUE(matches_glob("*.pyc", "a.pyc"));
  EXPECT_FALSE(matches_glob("*.pyc", "b/a.pyc"));
  EXPECT_TRUE(matches_glob("**/*.pyc", "b/c/a.pyc"));
  EXPECT_TRUE(matches_glob("**/*.pyc", "a.pyc"));
  EXPECT_TRUE(matches_glob("data/**", "data/a/b"));
  EXPECT_FALSE(matches_glob("data/?", "data/ab"));
  EXPECT_FALSE(matches_glob("", "a"));
  EXPECT_TRUE(matches_glob("", ""));
  // What backtracks would not come back from this.
  EXPECT_FALSE(matches_glob("*a*a*a*a*a*a*a*a*a*a*a*b", std::string(5'000, 'a')));
}

TEST(IgnoreRules, TheLastRuleThatFitsDecides) {
  IgnoreRules rules;
  rules.add("", "# comment\n*.log\n!keep.log\nbuild/\n/only-here\ndocs/*.pdf\n\\#literal\n");
  rules.add("sub", "*.tmp\n/local\n");
  EXPECT_TRUE(rules.ignores("a.log", false));
  EXPECT_TRUE(rules.ignores("x/y/a.log", false));
  EXPECT_FALSE(rules.ignores("x/keep.log", false));
  EXPECT_TRUE(rules.ignores("x/build", true));
  EXPECT_FALSE(rules.ignores("x/build", false)) << "a file of that name is none of it";
  EXPECT_TRUE(rules.ignores("only-here", false));
  EXPECT_FALSE(rules.ignores("x/only-here", false));
  EXPECT_TRUE(rules.ignores("docs/a.pdf", false));
  EXPECT_FALSE(rules.ignores("x/docs/a.pdf", false));
  EXPECT_TRUE(rules.ignores("#literal", false));
  EXPECT_TRUE(rules.ignores("sub/x/a.tmp", false));
  EXPECT_FALSE(rules.ignores("a.tmp", false));
  EXPECT_TRUE(rules.ignores("sub/local", false));
}

class SnapshotTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "snapshot-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base_ = fs::canonical(pattern).string();
    fs::create_directories(project() + "/.git/objects");
    fs::create_directories(project() + "/src/deep");
    write("src/train.py", "print('old')\n");
    write("src/deep/model.py", "model\n");
    write(".git/objects/ab", "object\n");
    write(".gitignore", "*.ckpt\n/data/\n");
    fs::create_directories(project() + "/data");
    write("data/huge", "data\n");
    write("src/last.ckpt", "checkpoint\n");
    request_.directory = project() + "/src";
    request_.argv = {"python", "train.py"};
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string project() const { return base_ + "/project"; }
  std::string store() const { return base_ + "/store"; }
  void write(const std::string& path, const std::string& text) const {
    fs::remove(project() + "/" + path);
    std::ofstream(project() + "/" + path) << text;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  Session::Setup setup() const {
    Session::Setup setup;
    setup.output = setup.error = -1;
    setup.environment = {"TRANCHE_SNAPSHOTS=" + store(), "HOME=" + base_};
    setup.directory = project() + "/src";
    setup.user = "ada";
    setup.now = Time(int64_t{::time(nullptr)} * kSecond.count());
    return setup;
  }
  api::SubmitRequest taken(const TreeBounds& bounds = {}) {
    Session session(setup());
    api::SubmitRequest request = request_;
    const auto took = take_snapshot(session, request, bounds);
    EXPECT_TRUE(took.has_value()) << took.error().message();
    return request;
  }

  std::string base_;
  api::SubmitRequest request_;
};

TEST_F(SnapshotTest, TheCodeOfSubmissionRunsWhateverIsEditedLater) {
  const api::SubmitRequest request = taken();
  EXPECT_EQ(request.snapshot_of, project() + "/src");
  EXPECT_TRUE(request.directory.starts_with(store() + "/")) << request.directory;
  EXPECT_TRUE(request.directory.ends_with("/tree/src"));
  write("src/train.py", "print('new')\n");
  EXPECT_EQ(read(request.directory + "/train.py"), "print('old')\n");
  EXPECT_EQ(read(request.directory + "/deep/model.py"), "model\n");
  for (const char* left_out : {"/last.ckpt", "/../data", "/../.git"}) {
    EXPECT_FALSE(fs::exists(request.directory + left_out)) << left_out;
  }
  struct stat file {};
  ASSERT_EQ(stat((request.directory + "/train.py").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0222, 0u) << "what was submitted is not written by accident";
}

TEST_F(SnapshotTest, TheSameContentIsOneCopyAndComesBackWhole) {
  const api::SubmitRequest first = taken();
  const std::string file = first.directory + "/train.py";
  fs::remove(file);
  std::ofstream(file) << "the job changed it\n";
  fs::remove(first.directory + "/deep/model.py");
  std::ofstream(first.directory + "/result") << "0.97\n";
  const api::SubmitRequest second = taken();
  EXPECT_EQ(second.directory, first.directory) << "so that a repeated submission is the same";
  EXPECT_EQ(read(file), "print('old')\n");
  EXPECT_EQ(read(first.directory + "/deep/model.py"), "model\n");
  EXPECT_EQ(read(first.directory + "/result"), "0.97\n") << "what the job wrote stays";
  write("src/train.py", "print('new')\n");
  EXPECT_NE(taken().directory, first.directory);
}

TEST_F(SnapshotTest, LinksKeepTheirMeaning) {
  fs::create_symlink("train.py", project() + "/src/inside");
  fs::create_symlink("../../outside", project() + "/src/out");
  std::ofstream(base_ + "/outside") << "outside\n";
  const api::SubmitRequest request = taken();
  EXPECT_EQ(fs::read_symlink(request.directory + "/inside"), "train.py");
  EXPECT_EQ(read(request.directory + "/out"), "outside\n");
}

TEST_F(SnapshotTest, WhatIsNoFileIsLeftOutAndHoldsNobodyUp) {
  ASSERT_EQ(mkfifo((project() + "/src/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(fs::exists(taken().directory + "/pipe"));
}

TEST_F(SnapshotTest, ATreeBeyondTheBoundsIsRefusedByName) {
  write("src/weights.bin", std::string(3 << 20, 'w'));
  Session session(setup());
  api::SubmitRequest request = request_;
  const auto refused = take_snapshot(session, request, {.bytes = 1 << 20, .files = 100});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::too_large);
  EXPECT_NE(refused.error().message().find(".trancheignore"), std::string::npos);
  EXPECT_NE(refused.error().message().find("'src'"), std::string::npos) << refused.error().message();
  EXPECT_EQ(request.directory, request_.directory);
  const auto too_many = take_snapshot(session, request, {.bytes = 100 << 20, .files = 2});
  EXPECT_FALSE(too_many.has_value());
}

// The daemon says which jobs live; the rest is files and their times.
TEST_F(SnapshotTest, ACopyGoesAWeekAfterItsJobsAndWhatTheyWroteStays) {
  std::string live = R"({"jobs":[]})";
  const testing::FakeDaemon daemon([&](const testing::FakeRequest& request) {
    EXPECT_EQ(request.target, "/v1/jobs?user=ada");
    return testing::FakeReply{.body = live};
  });
  const api::SubmitRequest request = taken();
  const std::string snapshot = request.directory.substr(0, request.directory.rfind("/tree/"));
  std::ofstream(request.directory + "/result") << "0.97\n";
  api::SubmitResponse response;
  response.job = JobId(7);
  const auto keep = [&](Duration later) {
    Session::Setup at = setup();
    at.now = at.now + later;
    at.environment.push_back("TRANCHE_SOCKET=" + daemon.socket_path());
    Session session(at);
    Daemon client(session);
    keep_snapshot(session, client, request, response);
  };
  api::JobList running;
  running.jobs.emplace_back().job = JobId(7);
  live = api::encode(running);
  keep(30 * kDay);
  EXPECT_FALSE(fs::exists(snapshot + "/ended"));
  live = R"({"jobs":[]})";
  keep({});
  EXPECT_TRUE(fs::exists(snapshot + "/ended"));
  keep(6 * kDay);
  EXPECT_TRUE(fs::exists(request.directory + "/train.py"));
  keep(8 * kDay);
  EXPECT_FALSE(fs::exists(request.directory + "/train.py"));
  EXPECT_EQ(read(request.directory + "/result"), "0.97\n");
  fs::remove(request.directory + "/result");
  EXPECT_EQ(taken().directory, request.directory) << "and the same content can be taken again";
  EXPECT_EQ(read(request.directory + "/train.py"), "print('old')\n");
}

}  // namespace
}  // namespace tranche::cli
