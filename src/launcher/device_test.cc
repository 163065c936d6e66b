// Which device nodes a task can open, and what it sees of the driver's libraries.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "launcher/launcher_test_support.h"

namespace tranche::launcher {
namespace {

using wire::LauncherKind;

// Unbound loop-device nodes far beyond what the kernel makes, as the emulator's: open without being there.
constexpr unsigned kLoopMajor = 7;
constexpr unsigned kFirstMinor = 1U << 18;

class DeviceTest : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    if (IsSkipped()) return;
    make_node("/dev/nvidia0", kFirstMinor);
    make_node("/dev/nvidia1", kFirstMinor + 1);
    make_node("/dev/nvidiactl", kFirstMinor + 100);
    make_node("/dev/nvidia-uvm", kFirstMinor + 101);
    start_launcher();
  }
  void TearDown() override {
    LauncherTest::TearDown();
    for (const char* node : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"})
      ::unlink(node);
  }
  static void make_node(const char* path, unsigned minor) {
    ::unlink(path);
    ASSERT_EQ(::mknod(path, S_IFBLK | 0666, makedev(kLoopMajor, minor)), 0) << path;
    ASSERT_EQ(::chmod(path, 0666), 0);
  }
  // Prints "NAME ok" or "NAME ERRNO" for each node.
  static std::string opens(const std::vector<std::string>& nodes) {
    std::string script = "import os,errno\n";
    for (const std::string& node : nodes) {
      script += "try: os.close(os.open('" + node + "', os.O_RDWR|os.O_NONBLOCK)); print('" + node +
                " ok')\n" + "except OSError as e: print('" + node + "', errno.errorcode[e.errno])\n";
    }
    return script;
  }
  std::string run_python(const wire::StartRequest& request, const std::string& script) {
    BlockSpec block;
    block.arguments = {"/usr/bin/python3", "-c", script};
    block.output =
        folder() + "/out." + std::to_string(request.key.job) + "." + std::to_string(request.key.rank);
    const auto end = run(request, block);
    EXPECT_EQ(end.exit_code, 0);
    return content(block.output);
  }
};

TEST_F(DeviceTest, OnlyItsOwnGpuOpens) {
  auto request = start_request(1, kAlice);
  request.gpu_count = 1;
  request.gpu_minors[0] = 1;
  request.flags |= wire::kStartEmulatedNodes;
  EXPECT_EQ(run_python(request, opens({"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"})),
            "/dev/nvidia0 EPERM\n/dev/nvidia1 ok\n/dev/nvidiactl ok\n/dev/nvidia-uvm ok\n");
}

TEST_F(DeviceTest, WithoutGpuNoNvidiaNodeOpens) {
  EXPECT_EQ(run_python(start_request(1, kAlice),
                       opens({"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"})),
            "/dev/nvidia0 EPERM\n/dev/nvidia1 EPERM\n/dev/nvidiactl EPERM\n/dev/nvidia-uvm EPERM\n");
}

// The launcher keeps the filters that it made: each task gets that of its own GPUs, whoever asked for which
// before.
TEST_F(DeviceTest, OneAfterTheOtherEachOpensItsOwn) {
  constexpr uint32_t kOrder[] = {0, 1, 0, 1, 1};
  auto request = start_request(1, kAlice);
  request.gpu_count = 1;
  for (const uint32_t gpu : kOrder) {
    request.gpu_minors[0] = gpu;
    EXPECT_EQ(run_python(request, opens({"/dev/nvidia0", "/dev/nvidia1"})),
              gpu == 0 ? "/dev/nvidia0 ok\n/dev/nvidia1 EPERM\n" : "/dev/nvidia0 EPERM\n/dev/nvidia1 ok\n");
    ++request.key.job;
  }
  request.gpu_count = 0;
  EXPECT_EQ(run_python(request, opens({"/dev/nvidia0", "/dev/nvidia1"})),
            "/dev/nvidia0 EPERM\n/dev/nvidia1 EPERM\n");
}

TEST_F(DeviceTest, OrdinaryNodesOpen) {
  EXPECT_EQ(run_python(start_request(1, kAlice), opens({"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                                        "/dev/urandom", "/dev/ptmx"})),
            "/dev/null ok\n/dev/zero ok\n/dev/full ok\n/dev/random ok\n/dev/urandom ok\n/dev/ptmx ok\n");
}

TEST_F(DeviceTest, LoopControlsAreRefusedOnEmulatedNodesOnly) {
  const std::string script =
      "import os,fcntl,errno\n"
      "f=os.open('/dev/nvidia0', os.O_RDWR)\n"
      "for request in (0x4C00, 0x4C05, 0x4C0A, 0x5401):\n"
      "  try: fcntl.ioctl(f, request, 0); print('done')\n"
      "  except OSError as e: print(errno.errorcode[e.errno])\n";
  auto request = start_request(1, kAlice);
  request.gpu_count = 1;
  request.flags |= wire::kStartEmulatedNodes;
  const std::string text = run_python(request, script);
  EXPECT_TRUE(text.starts_with("EPERM\nEPERM\nEPERM\n")) << text;
  EXPECT_FALSE(text.ends_with("EPERM\n")) << text;
}

TEST_F(DeviceTest, TasksOfManyGpus) {
  auto request = start_request(1, kAlice);
  request.gpu_count = 2;
  request.gpu_minors[1] = 1;
  EXPECT_EQ(run_python(request, opens({"/dev/nvidia0", "/dev/nvidia1"})),
            "/dev/nvidia0 ok\n/dev/nvidia1 ok\n");
  request.key.job = 2;
  request.gpu_minors[1] = 0;
  EXPECT_EQ(daemon().start(request, shell("true")).status, EINVAL);
  request.gpu_minors[1] = 9;
  EXPECT_EQ(daemon().start(request, shell("true")).status, ENODEV);
  request.gpu_count = 65;
  EXPECT_EQ(daemon().start(request, shell("true")).status, EINVAL);
}

TEST_F(DeviceTest, ANodeThatIsALinkIsRefused) {
  ::unlink("/dev/nvidia1");
  ASSERT_EQ(::symlink("/dev/null", "/dev/nvidia1"), 0);
  auto request = start_request(1, kAlice);
  request.gpu_count = 1;
  request.gpu_minors[0] = 1;
  EXPECT_EQ(daemon().start(request, shell("true")).status, ENODEV);
}

TEST_F(DeviceTest, ScanFindsHoldersAndTheirTasks) {
  auto request = start_request(5, kAlice, 2, 3);
  request.gpu_count = 1;
  request.gpu_minors[0] = 1;
  BlockSpec block;
  block.arguments = {
      "/usr/bin/python3", "-c",
      "import "
      "os,time,sys\nf=os.open('/dev/nvidia1',os.O_RDWR)\nprint('up');sys.stdout.flush()\ntime.sleep(1000)"};
  block.output = folder() + "/out";
  const auto started = begin(request, block);
  (void)wait_content(block.output);
  const int foreign = ::open("/dev/nvidia0", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(foreign, 0);
  wire::ScanRequest scan{};
  scan.header = {sizeof scan, 1, static_cast<uint16_t>(LauncherKind::scan), daemon().next_id()};
  scan.gpu_count = 2;
  scan.gpu_minors[1] = 1;
  daemon().send(scan);
  EXPECT_EQ(daemon().wait_reply(scan.header.id).entries, 2U);
  ::close(foreign);
  for (int i = 0; i < 2; ++i) {
    const auto entry =
        daemon()
            .wait_for([](const Received& one) { return one.kind() == LauncherKind::scan_entry; }, "entry")
            .as<wire::ScanEntry>();
    if (entry.gpu_minor == 0) {
      EXPECT_EQ(entry.pid, ::getpid());
      EXPECT_EQ(entry.key.job, 0U);
      continue;
    }
    EXPECT_EQ(entry.pid, started.task_pid);
    EXPECT_EQ(entry.start_ticks, started.task_start_ticks);
    EXPECT_EQ(entry.uid, kAlice);
    EXPECT_EQ(entry.key.job, 5U);
    EXPECT_EQ(entry.key.rank, 2U);
    EXPECT_EQ(entry.key.attempt, 3U);
    EXPECT_STREQ(entry.command, "python3");
  }
}

class DriverLibraryTest : public LauncherTest {};

TEST_F(DriverLibraryTest, AreSeenByTasksAloneAlsoWithoutEnvironment) {
  const std::string driver = folder() + "/driver";
  ASSERT_EQ(::mkdir(driver.c_str(), 0755), 0);
  std::ofstream(driver + "/libtranche-test-driver.so.1") << "not really";
  start_launcher({"--driver-library-dir", driver});
  BlockSpec block;
  block.arguments = {"/bin/sh", "-c",
                     "cat /usr/lib/*-linux-gnu/libtranche-test-driver.so.1 && touch /usr/lib/*-linux-gnu/x "
                     "2>&1 | grep -c Read-only"};
  block.variables = {};
  block.output = folder() + "/out";
  (void)run(start_request(1, kAlice), block);
  EXPECT_TRUE(content(block.output).starts_with("not really")) << content(block.output);
  EXPECT_EQ(content("/proc/self/mountinfo").find("libtranche"), std::string::npos);
  EXPECT_EQ(content("/proc/self/mountinfo").find("lowerdir=" + driver), std::string::npos);
}

}  // namespace
}  // namespace tranche::launcher
